//! What ranks write, when it does not simply go through.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use super::Output;
use crate::{Error, Result};

/// A line longer than this, in bytes, is passed on in parts.
const LONGEST: usize = 64 * 1024;

/// One end of a rank's standard output or error.
pub(super) struct Stream {
    pub rank: u32,
    pub is_stderr: bool,
    file: Option<std::fs::File>,
    /// Captured: everything; tagged: the line that is not complete yet.
    bytes: Vec<u8>,
    /// Why it cannot be passed on any more, unless its reader has gone.
    pub failure: Option<std::io::Error>,
}

impl Stream {
    pub fn new(rank: u32, is_stderr: bool, fd: OwnedFd) -> Result<Stream> {
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|e| Error::os("cannot set up a rank's output", e))?;
        Ok(Stream {
            rank,
            is_stderr,
            file: Some(fd.into()),
            bytes: Vec::new(),
            failure: None,
        })
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Takes what there is, at most some blocks of it so that no rank keeps the others waiting.
    pub fn pump(&mut self, output: Output) {
        let mut block = [0u8; 16 * 1024];
        for _ in 0..16 {
            let Some(file) = &mut self.file else { return };
            match file.read(&mut block) {
                Ok(0) => self.close(output),
                Ok(n) => {
                    self.bytes.extend_from_slice(&block[..n]);
                    if output == Output::Tag && !self.pass_lines(false) {
                        // Nothing is read any more: closing lets the rank know, as it would without a label.
                        self.file = None;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => self.close(output),
            }
        }
    }

    /// Takes what is left and closes. Processes that the rank has left behind may still hold the other end, and write:
    /// what a pipe holds is less than what one call takes.
    pub fn finish(&mut self, output: Output) {
        self.pump(output);
        if self.file.is_some() {
            self.close(output);
        }
    }

    fn close(&mut self, output: Output) {
        self.file = None;
        if output == Output::Tag {
            self.pass_lines(true);
        }
    }

    /// Writes the complete lines, and at the end of all the rest too. False when that is not possible any more.
    fn pass_lines(&mut self, at_end: bool) -> bool {
        let mut end = self
            .bytes
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        if at_end || self.bytes.len() - end > LONGEST {
            end = self.bytes.len();
        }
        if end == 0 {
            return true;
        }
        let mut text = Vec::with_capacity(end + 64);
        for line in self.bytes[..end].split_inclusive(|&b| b == b'\n') {
            // Writing to a vector does not fail.
            let _ = write!(text, "[{}] ", self.rank);
            text.extend_from_slice(line);
        }
        if text.last() != Some(&b'\n') {
            text.push(b'\n');
        }
        self.bytes.drain(..end);
        let written = if self.is_stderr {
            std::io::stderr().lock().write_all(&text)
        } else {
            let mut out = std::io::stdout().lock();
            out.write_all(&text).and_then(|()| out.flush())
        };
        match written {
            Ok(()) => true,
            Err(error) => {
                // A reader that has gone, such as `head`, has read enough.
                if error.kind() != std::io::ErrorKind::BrokenPipe {
                    self.failure = Some(error);
                }
                false
            }
        }
    }
}
