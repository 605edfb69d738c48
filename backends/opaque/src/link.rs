//! The stream to a peer, and what has been asked there.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use unipgas_core::agent::{Answer, Place, Request, land, wire};
use unipgas_core::transport::Life;
use unipgas_core::{Error, Flags, Result, process};

use crate::completion::Completions;
use crate::stream;

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

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Sends what there is room for. Errors: the stream has ended.
    pub fn push(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while !self.is_empty() {
            match stream::push(&socket, &self.bytes[self.sent..])? {
                0 => return Ok(()),
                sent => self.sent += sent,
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Where an answer's bytes go.
#[derive(Clone, Copy)]
pub struct Landing {
    pub into: *mut u8,
    pub len: usize,
    pub flags: Flags,
}

/// An operation whose answer has not come.
pub struct Waiting {
    pub completions: Arc<Completions>,
    pub context: u64,
    pub landing: Option<Landing>,
}

impl Waiting {
    fn end(self, result: Result<()>) {
        if self.landing.is_some() {
            self.completions.landed();
        }
        self.completions.end(self.context, result);
    }
}

// SAFETY:
// - the landing is valid until the operation is complete, on any thread: the contract of the operation.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct Asked {
    outgoing: Outgoing,
    waiting: VecDeque<Waiting>,
}

/// Whether a region of the peer is still registered there: 0 when it is not.
pub type Current = Arc<AtomicU32>;

/// The stream to a peer.
pub struct Link {
    socket: OwnedFd,
    process: u32,
    asked: Mutex<Asked>,
    imported: Mutex<HashMap<Place, Current>>,
    gone: AtomicBool,
    left: AtomicBool,
}

impl Link {
    pub fn new(socket: OwnedFd) -> Self {
        Link {
            socket,
            process: process::id(),
            asked: Mutex::default(),
            imported: Mutex::default(),
            gone: AtomicBool::new(false),
            left: AtomicBool::new(false),
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Nobody is there any more.
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

    /// The peer has refused it.
    pub fn unwatch(&self, place: Place) {
        self.imported.lock().remove(&place);
    }

    pub fn life(&self) -> Life {
        match (self.left.load(Ordering::Acquire), self.is_gone()) {
            (true, _) => Life::Left,
            (false, true) => Life::Dead,
            (false, false) => Life::Alive,
        }
    }

    /// Asks the peer what `encode` appends; true: the agent has to send the rest. Errors: [`Error::PeerDead`], also in the child of a fork.
    pub fn ask(&self, encode: impl FnOnce(&mut Vec<u8>), waiting: Waiting) -> Result<bool> {
        if self.process != process::id() {
            return Err(Error::PeerDead);
        }
        let mut asked = self.asked.lock();
        if self.is_gone() {
            return Err(Error::PeerDead);
        }
        let was_empty = asked.outgoing.is_empty();
        encode(asked.outgoing.bytes());
        asked.waiting.push_back(waiting);
        if !was_empty {
            // The agent sends it after what comes before.
            return Ok(false);
        }
        // The end of the stream is the agent's business, which hears of it, too.
        let _ = asked.outgoing.push(&self.socket);
        Ok(!asked.outgoing.is_empty())
    }

    pub fn has_more_to_send(&self) -> bool {
        !self.asked.lock().outgoing.is_empty()
    }

    /// For the agent: sends what there is room for.
    pub fn push(&self) {
        let _ = self.asked.lock().outgoing.push(&self.socket);
    }

    /// For the agent: takes the answers that have come whole off `bytes`. Errors: the peer makes no sense.
    pub fn take(&self, bytes: &mut Vec<u8>) -> Result<bool, wire::Malformed> {
        let (mut at, mut news) = (0, false);
        while let Some((message, len)) = wire::first_message(&bytes[at..])? {
            self.answered(message)?;
            news = true;
            at += len;
        }
        bytes.drain(..at);
        Ok(news)
    }

    fn answered(&self, message: &[u8]) -> Result<(), wire::Malformed> {
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
                let mut asked = self.asked.lock();
                Request::Forgotten { place }.encode(asked.outgoing.bytes());
                let _ = asked.outgoing.push(&self.socket);
                return Ok(());
            }
            Answer::Done(_) | Answer::Failed(_) => {}
        }
        let waiting = self.asked.lock().waiting.pop_front();
        let waiting = waiting.ok_or(wire::Malformed)?;
        let result = match (answer, waiting.landing) {
            (Answer::Failed(failure), _) => Err(Error::from(failure)),
            (_, None) if bytes.is_empty() => Ok(()),
            (_, Some(landing)) if bytes.len() == landing.len => {
                // SAFETY:
                // - valid for `len` bytes until the operation is complete (contract of the operation).
                unsafe { land(bytes, landing.into, landing.flags) };
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

    /// For the agent: nobody answers any more.
    pub fn bury(&self) {
        let mut asked = self.asked.lock();
        self.gone.store(true, Ordering::Release);
        for current in self.imported.lock().values() {
            current.store(0, Ordering::Release);
        }
        asked.outgoing = Outgoing::default();
        for waiting in asked.waiting.drain(..) {
            waiting.end(Err(Error::PeerDead));
        }
    }
}
