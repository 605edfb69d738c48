//! Output of ranks, unless they inherit the launcher's streams. The launcher reads it as it is written. Limited buffers slow down a rank that writes
//! faster, as a terminal does.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossbeam::channel::Sender;

use super::NodeRanks;
use super::printer::Print;
use unipgas_core::{Error, Result};

/// Most bytes of a stream that have been read and not yet written.
const ON_THE_WAY: usize = 64 << 10;

/// Destination of a stream.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    /// [`Stream::into_bytes`].
    Kept,
    /// The thread that writes the launcher's output.
    Printer(Sender<Print>),
    /// The launcher of the whole, which writes it.
    Whole(NodeRanks),
}

/// The launcher's end of a rank's standard output or error.
pub(super) struct Stream {
    pub rank: u32,
    pub is_stderr: bool,
    file: Option<std::fs::File>,
    sink: Sink,
    on_the_way: usize,
    /// Bytes for [`Sink::Kept`].
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

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The descriptor to wait for, if more bytes may be in flight.
    pub(crate) fn wants(&self) -> Option<BorrowedFd<'_>> {
        let file = self.file.as_ref().filter(|_| self.on_the_way < ON_THE_WAY);
        file.map(AsFd::as_fd)
    }

    /// Reads available bytes, up to the limit of bytes in flight.
    pub(crate) fn pump(&mut self) {
        while self.wants().is_some() && self.read() {}
    }

    /// Reads the last output of a rank. The number of reads is limited, since a process that the rank has left behind may write without end.
    pub fn drain(&mut self) {
        for _ in 0..64 {
            if !self.read() {
                return;
            }
        }
    }

    /// Reads the rest, and closes.
    pub(crate) fn finish(&mut self) {
        self.drain();
        self.shut();
    }

    /// Closes the stream. Later writes of the rank fail.
    pub(crate) fn shut(&mut self) {
        self.file = None;
    }

    /// Assigns at most `bytes` written bytes to this stream. Returns the number assigned.
    pub(crate) fn count_written(&mut self, bytes: usize) -> usize {
        let own = bytes.min(self.on_the_way);
        self.on_the_way -= own;
        own
    }

    /// Whether more bytes may be available.
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
            // End of file. A terminal reports it as an error.
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
            // The destination has no reader. The close tells the rank.
            false => self.shut(),
        }
    }
}
