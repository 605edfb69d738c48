//! Tests run in processes of their own, as the library is told once for each what its device is like.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const ROLE: &str = "VERBS_DOUBLE_TEST_ROLE";

/// The path of the test that calls with this closure, as the harness knows it.
fn test_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let (_, path) = path.split_once("::").unwrap();
    path.split("::{{closure}}").next().unwrap()
}

fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role);
    command
}

/// The body of a test in a process of its own, with a fabric of its own.
pub fn alone(config: &str, body: impl FnOnce()) {
    alone_with(config, &[], body);
}

pub fn alone_with(config: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    let test = test_of(&body);
    run(test, config, environment, body);
}

fn run(test: &str, config: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(ROLE).is_some() {
        return body();
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let fabric = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let status = again(test, "alone")
        .env("VERBS_DOUBLE", format!("fabric={fabric},{config}"))
        .envs(environment.iter().copied())
        .status()
        .unwrap();
    assert!(status.success(), "{test} fails in its own process");
}

/// Two processes with a stream between them; the first one has the other one as its child.
pub fn two(
    config: &str,
    first: impl FnOnce(WordStream, &mut Child),
    second: impl FnOnce(WordStream),
) {
    let name = || {
        let config = std::env::var("VERBS_DOUBLE").unwrap();
        SocketAddr::from_abstract_name(format!("test of {config}")).unwrap()
    };
    if std::env::var_os(ROLE).is_some_and(|role| role == "second") {
        return second(WordStream(UnixStream::connect_addr(&name()).unwrap()));
    }
    let test = test_of(&first);
    run(test, config, &[], || {
        let listener = UnixListener::bind_addr(&name()).unwrap();
        let mut child = again(test, "second").spawn().unwrap();
        let stream = WordStream(listener.accept().unwrap().0);
        first(stream, &mut child);
        let _ = child.kill();
        child.wait().unwrap();
    });
}

/// Words between processes.
pub(crate) struct WordStream(UnixStream);

impl WordStream {
    /// Both ends.
    pub fn pair() -> (WordStream, WordStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (WordStream(one), WordStream(other))
    }

    pub fn say<const N: usize>(&mut self, words: [u64; N]) {
        for word in words {
            self.0.write_all(&word.to_ne_bytes()).unwrap();
        }
    }

    pub fn hear<const N: usize>(&mut self) -> [u64; N] {
        let mut words = [0; N];
        for word in &mut words {
            let mut bytes = [0; 8];
            self.0.read_exact(&mut bytes).unwrap();
            *word = u64::from_ne_bytes(bytes);
        }
        words
    }
}
