//! The stream to a peer, and what has been asked there.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytemuck::Zeroable;
use parking_lot::Mutex;
use rustix::io::Errno;
use unipgas_core::agent::{Answer, Place, Request, land, wire};
use unipgas_core::op::Reply;
use unipgas_core::transport::LONGEST_MESSAGE;
use unipgas_core::transport::Life;
use unipgas_core::{Error, Flags, Local, Result, process};

use crate::completion::Completions;
use crate::envelope::{self, Answered, Envelope};
use crate::stream;
use crate::transport::Home;

/// Room that is kept for what leaves next.
const KEPT: usize = 1 << 20;

/// Bytes on their way out.
#[derive(Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    /// Where frames are appended.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Sends what there is room for. Errors: the stream has ended.
    pub fn push(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while !self.is_empty() {
            match stream::push(&socket, &self.bytes[self.sent..])? {
                0 => break,
                sent => self.sent += sent,
            }
        }
        // Not more often than what is moved has left.
        if self.sent >= self.left() {
            self.bytes.drain(..self.sent);
            self.bytes.shrink_to(KEPT);
            self.sent = 0;
        }
        Ok(())
    }
}

/// How `len` bytes are written: whole, or in parts, the last one first, so that nobody relies on an order that is not promised. What may be
/// a word is not torn.
pub fn parts(len: usize, backwards: bool) -> impl Iterator<Item = Range<usize>> {
    let part = match backwards && len > 8 {
        true => (len / 8).max(16),
        false => len.max(1),
    };
    let starts = (0..len.div_ceil(part).max(1)).rev();
    starts.map(move |nth| nth * part..len.min((nth + 1) * part))
}

/// Where an answer's bytes go.
#[derive(Clone, Copy)]
pub enum Landing {
    /// So many, to registered memory.
    Read {
        into: Local,
        len: usize,
        flags: Flags,
    },
    /// Those that the answer to a message has.
    Reply(Reply),
}

impl Landing {
    /// Whether it writes what the operation's caller reads.
    pub fn reads(&self) -> bool {
        match self {
            Landing::Read { .. } => true,
            Landing::Reply(reply) => reply.room() > 0,
        }
    }
}

/// An operation whose answer has not come.
pub struct Waiting {
    pub completions: Arc<Completions>,
    pub peer: u32,
    pub context: u64,
    pub landing: Option<Landing>,
}

impl Waiting {
    fn end(self, result: Result<()>) {
        if self.landing.is_some_and(|landing| landing.reads()) {
            self.completions.landed(self.peer);
        }
        self.completions.end(self.peer, self.context, result);
    }
}

// SAFETY:
// - the landing is valid until the operation is complete, on any thread: the contract of the operation.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct Asked {
    outgoing: Outgoing,
    /// By their numbers.
    waiting: BTreeMap<u64, Waiting>,
    last: u64,
}

/// Whether a region of the peer is still registered there: 0 when it is not.
pub type Current = Arc<AtomicU32>;

/// The stream to a peer.
pub struct Link {
    socket: OwnedFd,
    address: Box<[u8]>,
    process: u32,
    asked: Mutex<Asked>,
    imported: Mutex<HashMap<Place, Current>>,
    /// The greeting has left, so the socket is connected.
    reached: AtomicBool,
    gone: AtomicBool,
    left: AtomicBool,
}

impl Link {
    /// `greeting` goes ahead of everything.
    pub fn new(socket: OwnedFd, address: &[u8], greeting: &[u8]) -> Self {
        let mut asked = Asked::default();
        asked.outgoing.bytes().extend_from_slice(greeting);
        Link {
            socket,
            address: address.into(),
            process: process::id(),
            asked: Mutex::new(asked),
            imported: Mutex::default(),
            reached: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            left: AtomicBool::new(false),
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Of the peer.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Somebody is there.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    /// Nobody is there, or not any more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The word of a region that the peer is asked for next. It is there before the answer, so that no end is missed.
    pub fn watch(&self, place: Place) -> Current {
        let mut imported = self.imported.lock();
        let current = imported
            .entry(place)
            .or_insert_with(|| Arc::new(AtomicU32::new(1)));
        if self.is_gone() {
            current.store(0, Ordering::Release);
        }
        current.clone()
    }

    /// The peer has refused it: it is registered no more, also for those who have imported it before.
    pub fn refused(&self, place: Place) {
        if let Some(current) = self.imported.lock().remove(&place) {
            current.store(0, Ordering::Release);
        }
    }

    /// The peer has not answered. Others may have imported it before.
    pub fn unwatch(&self, place: Place, current: Current) {
        let mut imported = self.imported.lock();
        let shared = Arc::strong_count(&current) > 2;
        if !shared {
            imported.remove(&place);
        }
    }

    pub fn life(&self) -> Life {
        match (self.left.load(Ordering::Acquire), self.is_gone()) {
            (true, _) => Life::Left,
            (false, true) => Life::Dead,
            (false, false) => Life::Alive,
        }
    }

    /// Asks the peer what `encode` appends; true: the agent has to send the rest. Errors: those of `encode`; [`Error::PeerDead`], also in the child
    /// of a fork.
    /// `channel`: that of the operation, and whether it is ordered there.
    pub fn ask(
        &self,
        (channel, ordered): (u32, bool),
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        waiting: Waiting,
    ) -> Result<bool> {
        if self.process != process::id() {
            return Err(Error::PeerDead);
        }
        let mut asked = self.asked.lock();
        if self.is_gone() {
            return Err(Error::PeerDead);
        }
        let was_empty = asked.outgoing.is_empty();
        let number = asked.last + 1;
        let head = Envelope {
            number,
            channel,
            ordered: ordered.into(),
        };
        envelope::frame(asked.outgoing.bytes(), head, encode)?;
        asked.last = number;
        asked.waiting.insert(number, waiting);
        if !was_empty {
            // The agent sends it after what comes before.
            return Ok(false);
        }
        // The end of the stream is the agent's business, which hears of it, too.
        let _ = asked.outgoing.push(&self.socket);
        Ok(!asked.outgoing.is_empty())
    }

    /// Sends what there is room for; true: there is more, which the agent sends.
    pub fn push(&self) -> bool {
        let outgoing = &mut self.asked.lock().outgoing;
        let before = outgoing.left();
        let _ = outgoing.push(&self.socket);
        if outgoing.left() < before {
            self.reached.store(true, Ordering::Release);
        }
        !outgoing.is_empty()
    }

    /// For the agent: takes the answers that have come whole off `bytes`. Errors: the peer makes no sense.
    pub fn take(&self, bytes: &mut Vec<u8>, home: &Home) -> Result<bool, wire::Malformed> {
        let (mut at, mut news) = (0, false);
        while let Some((number, message, len)) = envelope::first::<Answered>(&bytes[at..])? {
            self.answered(number, message, home)?;
            news = true;
            at += len;
        }
        bytes.drain(..at);
        Ok(news)
    }

    fn answered(
        &self,
        number: Answered,
        message: &[u8],
        home: &Home,
    ) -> Result<(), wire::Malformed> {
        let (answer, bytes) = Answer::decode(message)?;
        match answer {
            Answer::Leaving => {
                self.left.store(true, Ordering::Release);
                return Ok(());
            }
            Answer::Released(place) => {
                if let Some(current) = self.imported.lock().remove(&place) {
                    current.store(0, Ordering::Release);
                }
                let forgotten = Request::Forgotten { place };
                let outgoing = &mut self.asked.lock().outgoing;
                envelope::frame(outgoing.bytes(), Envelope::zeroed(), |into| {
                    forgotten.encode(into)
                })
                .map_err(|_| wire::Malformed)?;
                let _ = outgoing.push(&self.socket);
                home.watch_silence();
                return Ok(());
            }
            Answer::Done(_) | Answer::Failed(_) => {}
        }
        let waiting = self.asked.lock().waiting.remove(&number);
        let waiting = waiting.ok_or(wire::Malformed)?;
        let result = match (answer, waiting.landing) {
            (Answer::Failed(failure), _) => Err(Error::from(failure)),
            (_, None) if bytes.is_empty() => Ok(()),
            (_, Some(Landing::Read { into, len, flags })) if bytes.len() == len => {
                // Registered until now, not only when it was asked for.
                let backwards = !home.options.limits.lines;
                home.check_local(into, len).map(|()| {
                    for part in parts(bytes.len(), backwards) {
                        // SAFETY:
                        // - valid for `len` bytes until the operation is complete (contract of the operation).
                        unsafe {
                            let into = into.ptr.wrapping_add(part.start);
                            land(&bytes[part], into, flags);
                        }
                    }
                })
            }
            (_, Some(Landing::Reply(reply))) if bytes.len() <= LONGEST_MESSAGE => {
                reply.take(bytes);
                Ok(())
            }
            _ => {
                waiting.end(Err(Error::PeerDead));
                return Err(wire::Malformed);
            }
        };
        waiting.end(result);
        Ok(())
    }

    /// Nothing goes there or comes from there any more; the agent will notice.
    pub fn cut(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// For the agent: nobody answers any more, and nobody is asked.
    pub fn close(&self) {
        // Those who have imported from there keep the socket.
        self.cut();
        let mut asked = self.asked.lock();
        self.gone.store(true, Ordering::Release);
        for current in self.imported.lock().values() {
            current.store(0, Ordering::Release);
        }
        asked.outgoing = Outgoing::default();
        for waiting in std::mem::take(&mut asked.waiting).into_values() {
            waiting.end(Err(Error::PeerDead));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_has_left_takes_no_room() {
        const PART: usize = 64 << 10;
        let (one, mut other) = UnixStream::pair().unwrap();
        let mut outgoing = Outgoing::default();
        let (mut pushed, mut taken) = (0, 0);
        let push = |outgoing: &mut Outgoing, pushed: &mut usize| {
            outgoing.bytes().extend([*pushed as u8; PART]);
            *pushed += 1;
            outgoing.push(&one).unwrap();
        };
        let mut take = || {
            let mut part = [0; PART];
            other.read_exact(&mut part).unwrap();
            assert_eq!(part, [taken as u8; PART]);
            taken += 1;
            taken
        };
        // More than the socket takes.
        while outgoing.is_empty() {
            push(&mut outgoing, &mut pushed);
        }
        for _ in 0..1000 {
            push(&mut outgoing, &mut pushed);
            assert!(!outgoing.is_empty());
            assert!(outgoing.bytes.capacity() < 16 * PART);
            take();
        }
        while take() < pushed {
            outgoing.push(&one).unwrap();
        }
        assert!(outgoing.is_empty());
    }
}
