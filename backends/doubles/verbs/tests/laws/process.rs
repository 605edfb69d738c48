//! Each test runs in a separate process, because a process sets the properties of the device once.

#![allow(
    dead_code,
    reason = "tests of the double and of the backend use different parts"
)]

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const ROLE: &str = "VERBS_TEST_ROLE";
const CALL: &str = "VERBS_TEST_CALL";
const STREAM: &str = "VERBS_TEST_STREAM";

/// The path of the test that passes this closure, in the test harness.
pub fn test_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let (_, path) = path.split_once("::").unwrap();
    path.split("::{{closure}}").next().unwrap()
}

/// The test `name` again, by its path, in another process.
fn again(name: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role);
    command
}

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// The number of this process, in a test that starts several.
fn next_call() -> String {
    CALLS.set(CALLS.get() + 1);
    CALLS.get().to_string()
}

/// The task of this process. `None`: it is the first one.
fn role(call: &str) -> Option<String> {
    let role = std::env::var(ROLE).ok()?;
    let is_this = std::env::var(CALL).is_ok_and(|this| this == *call);
    Some(if is_this { role } else { String::new() })
}

/// A fabric for one test alone, and the properties of its devices.
fn fabric(verbs: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.fetch_add(1, Relaxed);
    format!("fabric=verbs-{}-{next},{verbs}", std::process::id())
}

/// Runs `body` in a separate process with these devices. Returns its standard error; in the separate process, nothing.
pub fn alone(verbs: &str, body: impl FnOnce()) -> Option<String> {
    alone_as(test_of(&body), verbs, &[], body)
}

/// As [`alone`], with this environment.
pub fn alone_with(
    verbs: &str,
    environment: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<String> {
    alone_as(test_of(&body), verbs, environment, body)
}

/// As [`alone_with`], for a function that tests share.
pub fn alone_as(
    test: &str,
    verbs: &str,
    environment: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<String> {
    run(&next_call(), test, verbs, environment, body)
}

fn run(
    call: &str,
    name: &str,
    verbs: &str,
    environment: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<String> {
    if let Some(role) = role(call) {
        if role == "alone" {
            body();
        }
        return None;
    }
    let output = again(name, "alone")
        .env(CALL, call)
        .env("VERBS_DOUBLE", fabric(verbs))
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{name}: {}\n{said}\n{told}",
        output.status
    );
    print!("{said}");
    Some(told)
}

/// As [`alone`]; `second` runs in processes that the first one [begins](OtherProcesses::begin).
pub fn with_others(
    first: impl FnOnce(&OtherProcesses),
    second: impl FnOnce(ProcessPipe),
) -> Option<String> {
    let test = test_of(&first);
    with_others_as(test, "", &[], first, second)
}

/// As [`with_others`], with these devices and this environment.
pub fn with_others_on(
    verbs: &str,
    environment: &[(&str, &str)],
    first: impl FnOnce(&OtherProcesses),
    second: impl FnOnce(ProcessPipe),
) -> Option<String> {
    let test = test_of(&first);
    with_others_as(test, verbs, environment, first, second)
}

/// As [`with_others`], for a function that tests share.
pub fn with_others_as(
    name: &str,
    verbs: &str,
    environment: &[(&str, &str)],
    first: impl FnOnce(&OtherProcesses),
    second: impl FnOnce(ProcessPipe),
) -> Option<String> {
    let call = next_call();
    if role(&call).is_some_and(|role| role == "second") {
        let stream: i32 = std::env::var(STREAM).unwrap().parse().unwrap();
        // SAFETY:
        // - this end of the stream was opened for this process, and only this call takes it.
        let stream = unsafe { OwnedFd::from_raw_fd(stream) };
        second(ProcessPipe(stream.into()));
        return None;
    }
    let others = OtherProcesses { name: name.into() };
    run(&call, name, verbs, environment, || first(&others))
}

/// Starts processes.
pub(crate) struct OtherProcesses {
    name: String,
}

impl OtherProcesses {
    /// Starts another process, with this environment in addition.
    pub fn begin(&self, environment: &[(&str, &str)]) -> Other {
        let (here, there) = UnixStream::pair().unwrap();
        rustix::io::fcntl_setfd(&there, rustix::io::FdFlags::empty()).unwrap();
        let child = again(&self.name, "second")
            .env(STREAM, there.as_raw_fd().to_string())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Other {
            child,
            wire: ProcessPipe(here),
        }
    }
}

/// Another process. It ends with this one.
pub(crate) struct Other {
    child: Child,
    pub wire: ProcessPipe,
}

impl Other {
    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY:
        // - a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Kills it at any point of its work.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its own end, which must be a success.
    pub fn ends(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes between processes.
pub(crate) struct ProcessPipe(UnixStream);

impl ProcessPipe {
    /// A pair of connected ends.
    pub fn pair() -> (ProcessPipe, ProcessPipe) {
        let (one, other) = UnixStream::pair().unwrap();
        (ProcessPipe(one), ProcessPipe(other))
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.0
            .write_all(&(bytes.len() as u32).to_ne_bytes())
            .unwrap();
        self.0.write_all(bytes).unwrap();
    }

    pub fn hear(&mut self) -> Vec<u8> {
        self.try_hear().expect("the other process is there")
    }

    /// `None`: the other process has ended.
    pub fn try_hear(&mut self) -> Option<Vec<u8>> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).ok()?;
        let mut bytes = vec![0; u32::from_ne_bytes(len) as usize];
        self.0.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    pub fn say_number(&mut self, number: u64) {
        self.say(&number.to_ne_bytes());
    }

    pub fn hear_number(&mut self) -> u64 {
        u64::from_ne_bytes(self.hear().try_into().unwrap())
    }
}
