//! The descriptor of PMI_FD, with the framing of PMI-1 and of PMI-2.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use unipgas_base::{Deadline, Error, Result};

/// Longest answer, in bytes.
pub(super) const MAX_ANSWER: usize = 64 << 10;
/// Bytes of the decimal length before a message of PMI-2.
const LENGTH: usize = 6;

/// A server's descriptor.
pub(super) struct Stream {
    fd: OwnedFd,
    /// Bytes behind the last answer that was read.
    rest: Vec<u8>,
}

impl Stream {
    pub fn new(fd: OwnedFd) -> Self {
        let rest = Vec::new();
        Stream { fd, rest }
    }

    /// Uses a copy of the descriptor that the server has passed, which stays open.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if it is not open.
    pub(crate) fn of(fd: RawFd) -> Result<Self> {
        let own = match fd {
            ..0 => Err(Errno::BADF),
            // SAFETY:
            // - borrowed for one call, which fails if it is not open.
            fd => rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 3),
        };
        let own = own.map_err(|e| Error::Unreachable(format!("PMI_FD={fd}: {e}")))?;
        Ok(Stream::new(own))
    }

    /// Sends a line.
    pub(crate) fn say_line(&self, text: &str) -> Result<()> {
        self.say(format!("{text}\n").as_bytes())
    }

    /// Sends a message with a length prefix.
    pub(crate) fn say_counted(&self, text: &str) -> Result<()> {
        self.say(format!("{:LENGTH$}{text}", text.len()).as_bytes())
    }

    fn say(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match send(&self.fd, bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(_) => return Err(gone()),
            }
        }
        Ok(())
    }

    /// The next line. Errors: [`Error::Timeout`]: the caller may call again. [`Error::Unreachable`] for a malformed answer, or if the server has ended.
    pub fn line(&mut self, deadline: Deadline) -> Result<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=end).collect();
                line.pop();
                return text(line);
            }
            if self.rest.len() > MAX_ANSWER {
                self.rest.clear();
                return Err(refused("it answers without end"));
            }
            self.more(deadline)?;
        }
    }

    /// The next message with a length prefix. Errors: as [`line`](Self::line).
    pub fn counted(&mut self, deadline: Deadline) -> Result<String> {
        loop {
            if let Some(length) = self.rest.get(..LENGTH) {
                let length = std::str::from_utf8(length).map(str::trim).unwrap_or("");
                let end = match length.parse::<usize>() {
                    Ok(length @ 1..=MAX_ANSWER) => LENGTH + length,
                    _ => {
                        let why = format!("{length:?} is no length of an answer");
                        self.rest.clear();
                        return Err(refused(&why));
                    }
                };
                if self.rest.len() >= end {
                    let message = self.rest.drain(..end).skip(LENGTH).collect();
                    return text(message);
                }
            }
            self.more(deadline)?;
        }
    }

    /// Reads available bytes.
    fn more(&mut self, deadline: Deadline) -> Result<()> {
        let limit = deadline.remaining();
        let limit = limit.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, limit.as_ref()) {
            Ok(0) => return Err(Error::Timeout),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(e) => return Err(Error::os("cannot wait for the PMI server (poll)", e)),
        }
        let mut chunk = [0; 1024];
        match rustix::io::read(&self.fd, &mut chunk) {
            Ok(0) => Err(gone()),
            Ok(count) => {
                self.rest.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(_) => Err(gone()),
        }
    }

    /// Whether the server keeps its end open.
    pub(crate) fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(1) => !fds[0].revents().intersects(ended),
            _ => true,
        }
    }
}

/// Sends without SIGPIPE: the end of the server is an error.
fn send(fd: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    // SAFETY:
    // - the descriptor is open, and the call only reads the bytes.
    let sent = unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        // Some servers pass a pipe.
        Err(_) => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOTSOCK) => rustix::io::write(fd, bytes),
            code => Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO))),
        },
    }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| refused("it does not answer in text"))
}

fn gone() -> Error {
    Error::Unreachable("the launcher of this job (its PMI server) has ended".into())
}

pub(super) fn refused(why: &str) -> Error {
    Error::Unreachable(format!(
        "the PMI server that has started this process does not do what it should: {why}"
    ))
}
