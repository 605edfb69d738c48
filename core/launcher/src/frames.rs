//! Messages between the launchers of a job on several hosts. They are frames on pipes: length, kind, payload. Payloads of several fields are JSON.

use std::io::Write;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Exit;
use unipgas_core::{Error, Result};

/// Longest payload, in bytes.
const LONGEST: usize = 16 << 20;
const HEAD: usize = 5;

/// News of a rank, for [`Board::take`](unipgas_core::job::Board).
pub(super) const NEWS: u8 = 0;
/// A process wants the end of a rank.
pub(super) const END: u8 = 1;
/// A signal for all ranks.
pub(super) const SIGNAL: u8 = 2;
/// Order: end the job.
pub(super) const END_ALL: u8 = 3;
/// The launcher of a rank's host has ended, so it sends no more news of the rank.
pub(super) const LOST: u8 = 4;
/// First frame to a launcher: its ranks and the plan, see [`Begin`].
pub(super) const BEGIN: u8 = 5;
/// Order: start a replacement process for this rank.
pub(super) const START: u8 = 6;
/// This rank gets no replacement.
pub(super) const GIVEN_UP: u8 = 7;
/// No process runs, and none will be started.
pub(super) const OVER: u8 = 8;
/// A process has ended: [`End`].
pub(super) const ENDED: u8 = 9;
/// A rank that could not be started, and the reason.
pub(super) const CANNOT: u8 = 10;
/// Output of a rank: the rank, a byte that is 1 for standard error, then the bytes.
pub(super) const OUTPUT: u8 = 11;
/// Output has been written: [`Written`].
pub(super) const WRITTEN: u8 = 12;
/// Standard input of rank 0. Empty: end of input.
pub(super) const INPUT: u8 = 13;
/// Rank 0 has taken the input, so there is room for more.
pub(super) const TAKEN: u8 = 14;
/// The launcher has started the ranks of its host.
pub(super) const STARTED: u8 = 15;
/// Request for a picture of the ranks.
pub(super) const SHOW: u8 = 16;
/// Picture of the ranks of a host: a [`JobSnapshot`](crate::job::JobSnapshot) as JSON.
pub(super) const SHOWN: u8 = 17;
/// Text that the launcher of the whole prints.
pub(super) const SAID: u8 = 18;
/// Frames of this kind and higher are the user's.
pub const OWN: u8 = 19;

/// End of a rank's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub rank: u32,
    pub pid: u32,
    pub exit: Exit,
    /// The process had left the job by a call.
    pub left: bool,
    /// Another process had requested its end by a call.
    pub wanted: bool,
}

/// First frame to the launcher of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    /// Number of hosts.
    pub hosts: u32,
    /// Identity of the job: see [`Board::everywhere`](unipgas_core::job::Board::everywhere).
    pub job: u64,
    /// The ranks on its host.
    pub here: Vec<u32>,
    /// Data for the caller, in the caller's format.
    pub plan: Vec<u8>,
}

/// The payload of a record: [`End`], [`Begin`], [`Written`], or a picture.
pub(super) fn payload(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have no maps with other keys than text")
}

/// The record of a payload. `None`: malformed.
pub(super) fn record<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Option<T> {
    serde_json::from_slice(payload).ok()
}

/// Reads one frame, and leaves the bytes behind it in the pipe. `None`: end of file.
pub(super) fn first(pipe: &OwnedFd) -> Result<Option<(u8, Vec<u8>)>> {
    let cannot = |e| Error::os("cannot hear the job's other launchers", e);
    let mut frames = Frames::default();
    let mut wanted = HEAD;
    loop {
        let mut block = vec![0; wanted];
        match rustix::io::read(pipe, &mut block) {
            Ok(0) => return Ok(None),
            Ok(n) => frames.add(&block[..n]),
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(cannot(e)),
        }
        if let Some(frame) = frames.next()? {
            return Ok(Some(frame));
        }
        wanted = frames.missing();
    }
}

/// Report that bytes of a rank's standard output or error are no longer in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    pub rank: u32,
    pub is_stderr: bool,
    pub bytes: usize,
    /// Standard output and error: the stream has no reader any more.
    pub closed: [bool; 2],
}

/// Payload of [`OUTPUT`].
pub(super) fn to_output(rank: u32, is_stderr: bool, text: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(5 + text.len());
    payload.extend(rank.to_le_bytes());
    payload.push(u8::from(is_stderr));
    payload.extend_from_slice(text);
    payload
}

/// Parses [`OUTPUT`]: the rank, whether it is standard error, and the bytes.
pub(super) fn output(payload: &[u8]) -> Option<(u32, bool, &[u8])> {
    let (rank, rest) = rank_of(payload)?;
    let (is_stderr, text) = rest.split_first()?;
    Some((rank, *is_stderr != 0, text))
}

pub(super) fn rank_of(payload: &[u8]) -> Option<(u32, &[u8])> {
    let (rank, rest) = payload.split_first_chunk()?;
    Some((u32::from_le_bytes(*rank), rest))
}

/// Write end of a pipe. Several threads may send.
#[derive(Debug)]
pub(super) struct Sender(Mutex<std::fs::File>);

impl Sender {
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Sender(Mutex::new(pipe.into()))
    }

    /// Errors: [`Error::Os`] if the pipe has no reader. [`Error::InvalidArgument`] for a payload of more than 16 MiB.
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

/// Received bytes that do not make a whole frame yet.
#[derive(Debug, Default)]
pub(super) struct Frames(Vec<u8>);

impl Frames {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Missing bytes of the next frame, at least 1.
    fn missing(&self) -> usize {
        match self.0.first_chunk::<4>() {
            Some(len) => {
                let whole = HEAD + (u32::from_le_bytes(*len) as usize).min(LONGEST);
                whole.saturating_sub(self.0.len()).max(1)
            }
            None => HEAD - self.0.len(),
        }
    }

    /// The next whole frame. Errors: [`Error::InvalidArgument`] for an impossible length.
    pub fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>> {
        let Some((head, rest)) = self.0.split_at_checked(HEAD) else {
            return Ok(None);
        };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len > LONGEST {
            return Err(Error::InvalidArgument(format!(
                "the bytes from a job's other launcher are no frame, which would have {len} bytes"
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

    #[test]
    fn the_first_frame_is_read_alone() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let sender = Sender::new(writer);
        let begin = Begin {
            hosts: 2,
            job: 7 << 40,
            here: vec![1, 3],
            plan: b"plan".to_vec(),
        };
        sender.send(BEGIN, &payload(&begin)).unwrap();
        sender.send(OVER, b"").unwrap();
        let (kind, bytes) = first(&reader).unwrap().unwrap();
        assert_eq!((kind, record(&bytes)), (BEGIN, Some(begin)));
        assert_eq!(record::<Begin>(&bytes[..12]), None);
        assert_eq!(first(&reader).unwrap(), Some((OVER, Vec::new())));
        drop(sender);
        assert_eq!(first(&reader).unwrap(), None);
        let text = to_output(3, true, b"text");
        assert_eq!(output(&text), Some((3, true, &b"text"[..])));
    }
}
