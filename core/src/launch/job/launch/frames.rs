//! What the launchers of a job on several hosts tell each other, as frames on pipes: length, kind, payload.

use std::io::Write;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;

use crate::{Error, Result};

/// No frame is longer.
const LONGEST: usize = 16 << 20;
const HEAD: usize = 5;

/// What is new of a rank: for [`Board::take`](crate::job::Board).
pub(super) const NEWS: u8 = 0;
/// The end of a rank is wanted.
pub(super) const END: u8 = 1;
/// A signal for all ranks.
pub(super) const SIGNAL: u8 = 2;
/// The job is to be ended.
pub(super) const END_ALL: u8 = 3;
/// The launcher of a rank's host has ended, and tells nothing of it any more.
pub const LOST: u8 = 4;
/// Frames of this kind and higher are the user's.
pub const OWN: u8 = 16;

/// One end of a pipe; its threads may send at the same time.
#[derive(Debug)]
pub(super) struct Sender(Mutex<std::fs::File>);

impl Sender {
    pub fn new(pipe: OwnedFd) -> Self {
        Sender(Mutex::new(pipe.into()))
    }

    /// Errors: [`Error::Os`] where nobody reads any more.
    pub fn send(&self, kind: u8, payload: &[u8]) -> Result<()> {
        if payload.len() > LONGEST {
            return Err(Error::InvalidArgument(format!(
                "a frame of {} bytes: at most {LONGEST}",
                payload.len()
            )));
        }
        let mut frame = Vec::with_capacity(HEAD + payload.len());
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frame.push(kind);
        frame.extend_from_slice(payload);
        let mut pipe = self.0.lock();
        pipe.write_all(&frame)
            .map_err(|e| Error::os("cannot tell the job's other launchers", e))
    }
}

/// Bytes that have come, until they are frames.
#[derive(Debug, Default)]
pub(super) struct Frames(Vec<u8>);

impl Frames {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole one. Errors: [`Error::InvalidArgument`] for what can be none.
    pub fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>> {
        let Some((head, rest)) = self.0.split_at_checked(HEAD) else {
            return Ok(None);
        };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len > LONGEST {
            return Err(Error::InvalidArgument(format!(
                "what came from a job's other launcher is no frame, which would have {len} bytes"
            )));
        }
        let Some(payload) = rest.get(..len) else {
            return Ok(None);
        };
        let frame = (head[4], payload.to_vec());
        self.0.drain(..HEAD + len);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let sender = Sender::new(writer);
        sender.send(NEWS, b"").unwrap();
        sender.send(OWN, b"hello").unwrap();
        drop(sender);
        let mut frames = Frames::default();
        let mut seen = Vec::new();
        let mut byte = [0];
        while rustix::io::read(&reader, &mut byte).unwrap() == 1 {
            frames.add(&byte);
            seen.extend(frames.next().unwrap());
        }
        assert_eq!(seen, [(NEWS, Vec::new()), (OWN, b"hello".to_vec())]);
        frames.add(&[0xff; HEAD]);
        assert!(frames.next().is_err(), "no such length");
    }
}
