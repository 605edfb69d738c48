//! What ranks write, when it does not simply go through.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use super::Part;
use crate::{Error, Result};

/// A line longer than this, in bytes, is passed on in parts.
const LONGEST: usize = 64 * 1024;

/// Where it goes.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    /// It is kept.
    Kept,
    /// To the launcher's own standard output and error.
    Own,
    /// To the launcher of the whole, for its own.
    Whole(Part),
}

/// One end of a rank's standard output or error.
pub(super) struct Stream {
    pub rank: u32,
    pub is_stderr: bool,
    file: Option<std::fs::File>,
    sink: Sink,
    /// Whole lines, each with the rank before it.
    tag: bool,
    /// Kept: everything; tagged: the line that is not complete yet.
    bytes: Vec<u8>,
    /// Why it cannot be passed on any more, unless its reader has gone.
    pub failure: Option<std::io::Error>,
}

impl Stream {
    pub fn new(rank: u32, is_stderr: bool, fd: OwnedFd, sink: Sink, tag: bool) -> Result<Stream> {
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|e| Error::os("cannot set up a rank's output", e))?;
        Ok(Stream {
            rank,
            is_stderr,
            file: Some(fd.into()),
            sink,
            tag,
            bytes: Vec::new(),
            failure: None,
        })
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Takes what there is, at most some blocks of it so that no rank keeps the others waiting. How many bytes have been passed on.
    pub fn pump(&mut self) -> usize {
        let mut block = [0u8; 16 * 1024];
        let mut passed = 0;
        for _ in 0..16 {
            let Some(file) = &mut self.file else { break };
            match file.read(&mut block) {
                Ok(0) => passed += self.close(),
                Ok(n) => {
                    self.bytes.extend_from_slice(&block[..n]);
                    match self.pass_on(false) {
                        Some(n) => passed += n,
                        // Nothing is read any more: closing lets the rank know, as it would without a label.
                        None => self.shut(),
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => passed += self.close(),
            }
        }
        passed
    }

    /// Takes what is left and closes. Processes that the rank has left behind may still hold the other end, and write:
    /// what a pipe holds is less than what one call takes.
    pub fn finish(&mut self) {
        self.pump();
        if self.file.is_some() {
            self.close();
        }
    }

    /// Nobody reads any more.
    pub fn shut(&mut self) {
        self.file = None;
    }

    fn close(&mut self) -> usize {
        self.file = None;
        self.pass_on(true).unwrap_or(0)
    }

    /// Passes on what can be: where lines are tagged, the complete ones, and at the end of all the rest too. How many bytes; `None`: that is
    /// not possible any more.
    fn pass_on(&mut self, at_end: bool) -> Option<usize> {
        if matches!(self.sink, Sink::Kept) {
            return Some(0);
        }
        let text = match self.tag {
            true => self.tagged(at_end),
            false => std::mem::take(&mut self.bytes),
        };
        if text.is_empty() {
            return Some(0);
        }
        match self.write(&text) {
            Ok(()) => Some(text.len()),
            Err(error) => {
                // A reader that has gone, such as `head`, has read enough.
                if error.kind() != std::io::ErrorKind::BrokenPipe {
                    self.failure = Some(error);
                }
                None
            }
        }
    }

    fn tagged(&mut self, at_end: bool) -> Vec<u8> {
        let mut end = self
            .bytes
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        if at_end || self.bytes.len() - end > LONGEST {
            end = self.bytes.len();
        }
        let mut text = Vec::new();
        for line in self.bytes[..end].split_inclusive(|&b| b == b'\n') {
            // Writing to a vector does not fail.
            let _ = write!(text, "[{}] ", self.rank);
            text.extend_from_slice(line);
        }
        if text.last().is_some_and(|&last| last != b'\n') {
            text.push(b'\n');
        }
        self.bytes.drain(..end);
        text
    }

    fn write(&self, text: &[u8]) -> std::io::Result<()> {
        match &self.sink {
            Sink::Kept => Ok(()),
            Sink::Own => write_own(self.is_stderr, text),
            // Without one to tell, the job is killed.
            Sink::Whole(part) => part
                .tell_output(self.is_stderr, text)
                .map_err(|_| std::io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// To this process's own standard output, or error.
pub(super) fn write_own(is_stderr: bool, text: &[u8]) -> std::io::Result<()> {
    if is_stderr {
        return std::io::stderr().lock().write_all(text);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush())
}
