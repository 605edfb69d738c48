//! Processes that tests start: this test binary, with a role.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

const ROLE: &str = "UNIPGAS_TEST_RENDEZVOUS";

/// Sets the role of a command that runs this test binary.
pub fn as_helper<'a>(command: &'a mut Command, role: &str, arguments: &[&str]) -> &'a mut Command {
    let arguments = std::iter::once(role).chain(arguments.iter().copied());
    command
        .args(["--exact", "helper", "--test-threads=1"])
        .env(ROLE, arguments.collect::<Vec<_>>().join(","))
}

/// The role of this process, with its arguments.
pub fn role() -> Option<(String, Vec<String>)> {
    let text = std::env::var(ROLE).ok()?;
    let mut parts = text.split(',').map(str::to_owned);
    Some((parts.next()?, parts.collect()))
}

/// Sends a message to the test. The prefix tells it from lines of the test harness in the same stream.
pub fn tell(message: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n@{message}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The messages in `text`.
pub fn messages(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix('@'))
}

/// Waits for a word of the test.
pub fn wait_for_word() {
    std::io::stdin().read_exact(&mut [0]).unwrap();
}

/// Waits until the test closes the input or ends.
pub fn wait_for_end_of_input() {
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A process with a role. It is killed when dropped.
pub struct Helper {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Helper {
    pub fn start(role: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = as_helper(&mut command, role, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Helper { child, out }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next message.
    pub fn hear(&mut self) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 {
                panic!("the process has ended: {all}");
            }
            if let Some(message) = messages(&line).next() {
                return message.into();
            }
            all.push_str(&line);
        }
    }

    /// Sends the word that [`wait_for_word`] waits for.
    pub fn say_word(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b".").unwrap();
    }

    pub fn end_input(&mut self) {
        self.child.stdin.take();
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        // `wait` would close the input, which a child of the child may read.
        let input = self.child.stdin.take();
        self.child.wait().unwrap();
        self.child.stdin = input;
    }

    /// Waits for the end of the process, which must succeed.
    pub fn succeed(mut self) {
        self.end_input();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
