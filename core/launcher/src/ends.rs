//! Properties of the launcher's standard output and error. Each rank gets standard streams with the same properties.

use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Properties of standard output and error, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputProperties {
    /// The stream is a terminal: lines appear as they are written.
    pub terminals: [bool; 2],
    /// Both are the same file. The output of a rank keeps its order.
    pub one: bool,
    /// The user permits colours on terminals.
    pub colours: bool,
}

impl OutputProperties {
    /// Properties of the streams of this process.
    pub fn own() -> OutputProperties {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        let file = |fd: BorrowedFd<'_>| {
            let stat = rustix::fs::fstat(fd).ok()?;
            Some((stat.st_dev, stat.st_ino))
        };
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        OutputProperties {
            terminals: [out.is_terminal(), err.is_terminal()],
            one: file(out.as_fd()).is_some_and(|one| Some(one) == file(err.as_fd())),
            colours: !is_set("NO_COLOR") && !dumb,
        }
    }

    /// Whether labels in this stream have a colour.
    pub(super) fn is_coloured(&self, is_stderr: bool) -> bool {
        self.colours && self.terminals[usize::from(is_stderr)]
    }
}

/// Writes all of `text` to this process's standard output or error.
pub(super) fn write_own(is_stderr: bool, text: &[u8]) -> std::io::Result<()> {
    match is_stderr {
        true => write_all(std::io::stderr().as_fd(), text),
        false => {
            let mut out = std::io::stdout().lock();
            out.flush()?;
            write_all(out.as_fd(), text)
        }
    }
}

fn write_all(fd: BorrowedFd<'_>, mut text: &[u8]) -> std::io::Result<()> {
    while !text.is_empty() {
        match rustix::io::write(fd, text) {
            Ok(count) => text = &text[count..],
            Err(Errno::INTR) => {}
            // Another process that shares the terminal may have set O_NONBLOCK.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
