//! What ranks write, when it does not simply go through: it is taken from them as it is written, and a rank that writes more waits, as it would at
//! a terminal.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossbeam::channel::Sender;

use super::Part;
use super::printer::Print;
use unipgas_core::{Error, Result};

/// Bytes of a stream that have been read and not yet written.
const ON_THE_WAY: usize = 64 << 10;

/// Where it goes.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    /// It is kept.
    Kept,
    /// To who writes it.
    Printer(Sender<Print>),
    /// To the launcher of the whole, which does.
    Whole(Part),
}

/// One end of a rank's standard output or error.
pub(super) struct Stream {
    pub rank: u32,
    pub is_stderr: bool,
    file: Option<std::fs::File>,
    sink: Sink,
    on_the_way: usize,
    /// What is kept.
    bytes: Vec<u8>,
}

impl Stream {
    pub fn new(rank: u32, is_stderr: bool, fd: OwnedFd, sink: Sink) -> Result<Stream> {
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|e| Error::os("cannot set up a rank's output", e))?;
        Ok(Stream {
            rank,
            is_stderr,
            file: Some(fd.into()),
            sink,
            on_the_way: 0,
            bytes: Vec::new(),
        })
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What to wait at, if more of it may be read.
    pub fn wants(&self) -> Option<BorrowedFd<'_>> {
        let file = self.file.as_ref().filter(|_| self.on_the_way < ON_THE_WAY);
        file.map(AsFd::as_fd)
    }

    /// Takes what there is, but not more than may be on the way.
    pub fn pump(&mut self) {
        while self.wants().is_some() && self.read() {}
    }

    /// Takes all that there is: the last words of a rank. That is not without end: a process that it has left behind may write there, too.
    pub fn drain(&mut self) {
        for _ in 0..64 {
            if !self.read() {
                return;
            }
        }
    }

    /// Takes what is left and closes.
    pub fn finish(&mut self) {
        self.drain();
        self.shut();
    }

    /// Nobody reads any more.
    pub fn shut(&mut self) {
        self.file = None;
    }

    /// Of so many bytes at most that have been written some are this stream's: how many.
    pub fn count_written(&mut self, bytes: usize) -> usize {
        let own = bytes.min(self.on_the_way);
        self.on_the_way -= own;
        own
    }

    /// Whether something was read.
    fn read(&mut self) -> bool {
        let mut block = [0u8; 16 * 1024];
        let Some(file) = &mut self.file else {
            return false;
        };
        match file.read(&mut block) {
            Ok(count @ 1..) => {
                self.pass_on(&block[..count]);
                true
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => true,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => false,
            // The end; of a terminal it is an error.
            Ok(0) | Err(_) => {
                self.shut();
                false
            }
        }
    }

    fn pass_on(&mut self, bytes: &[u8]) {
        let passed = match &self.sink {
            Sink::Kept => {
                self.bytes.extend_from_slice(bytes);
                return;
            }
            Sink::Printer(printer) => printer
                .send(Print::Output {
                    host: 0,
                    rank: self.rank,
                    is_stderr: self.is_stderr,
                    bytes: bytes.to_vec(),
                })
                .is_ok(),
            Sink::Whole(part) => part.tell_output(self.rank, self.is_stderr, bytes).is_ok(),
        };
        match passed {
            true => self.on_the_way += bytes.len(),
            // Nothing is read any more: closing lets the rank know.
            false => self.shut(),
        }
    }
}
