//! A stream of bytes to a process, and the queue pair that it and all accesses to that process's memory go by.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use unipgas_core::streams::{Ended, Found, Link, Stream};
use unipgas_core::{Error, Result};
use unipgas_verbs_sys::*;

use crate::address::Address;
use crate::buffers::MESSAGE;
use crate::net::Net;
use crate::posting::{Ends, SendQueue, Takes, write};
use crate::queues::Pair;
use crate::staged::Staging;
use crate::wire::{self, Kind};

/// The most bytes that a work request takes along.
pub const INLINE: usize = 128;
/// Messages that are sent beside those that the peer has promised to take: they tell how many are taken. A side tells after each half of them, so no more are
/// under way.
pub const RESERVE: u32 = 4;
/// A process whose port has not answered in so many looks, five seconds, is not there.
const SILENT: u32 = 10;

/// What the looks have found.
#[derive(Default)]
struct Pulse {
    heard: u32,
    silent: u32,
    asked: bool,
}

/// One side of it.
pub struct Connection {
    net: Weak<Net>,
    /// As this process numbers it: a place, and how often that was used.
    pub number: u32,
    /// Whom it is with.
    pub with: Address,
    /// This process has begun it.
    pub begun_here: bool,
    /// Work requests that the peer may send before it is told of more.
    pub promised: u32,
    inline: u32,
    pub pair: Pair,
    queue: Mutex<SendQueue>,
    incoming: Mutex<Vec<u8>>,
    /// Both sides are connected.
    open: AtomicBool,
    /// The peer's port has been reached.
    answers: AtomicBool,
    ended: AtomicBool,
    why: OnceLock<Error>,
    wants_room: AtomicBool,
    /// Somebody asks whether the other process lives.
    watched: AtomicBool,
    /// What has come from there, and what has reached it.
    heard: AtomicU32,
    pulse: Mutex<Pulse>,
    /// Goes when the queue pair has gone.
    _lives: Arc<()>,
}

/// What a new one is made of.
pub struct New {
    pub net: Weak<Net>,
    pub number: u32,
    pub with: Address,
    pub begun_here: bool,
    pub promised: u32,
    pub inline: u32,
    pub depth: u32,
    pub pair: Pair,
    /// Of all of the process.
    pub lives: Arc<()>,
    pub staging: Staging,
}

impl Connection {
    /// One that is not open yet.
    pub fn new(new: New) -> Self {
        Connection {
            net: new.net,
            number: new.number,
            with: new.with,
            begun_here: new.begun_here,
            promised: new.promised,
            inline: new.inline,
            pair: new.pair,
            queue: Mutex::new(SendQueue::new(new.depth, new.staging)),
            incoming: Mutex::default(),
            open: AtomicBool::new(false),
            answers: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            why: OnceLock::new(),
            wants_room: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            heard: AtomicU32::new(0),
            pulse: Mutex::default(),
            _lives: new.lives,
        }
    }

    /// That of a link of this network's.
    pub fn of(link: &Link) -> &Connection {
        let stream: *const dyn Stream = Arc::as_ptr(link.stream());
        // SAFETY:
        // - all streams of this network are connections; the link keeps its own.
        unsafe { &*stream.cast() }
    }

    /// Its send queue.
    pub fn queue(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock()
    }

    /// The other side takes so many messages, once it is ready.
    pub fn expects(&self, credits: u32) {
        self.queue().credits = credits;
    }

    /// Both sides are connected: bytes may go.
    pub fn is_ready(&self) {
        self.queue().open = !self.has_ended();
        self.open.store(true, Ordering::Release);
    }

    /// The peer's port has been reached.
    pub fn answers(&self) {
        self.answers.store(true, Ordering::Relaxed);
    }

    /// Bytes of the stream have come.
    pub fn take(&self, bytes: &[u8]) {
        self.incoming.lock().extend_from_slice(bytes);
    }

    /// Something has come, or has reached the peer.
    pub fn hear(&self) {
        let heard = self.heard.load(Ordering::Relaxed);
        self.heard.store(heard.wrapping_add(1), Ordering::Relaxed);
    }

    /// It does not come about, for this reason.
    pub fn is_refused(&self, why: Error) {
        let _ = self.why.set(why);
        self.fail();
    }

    /// Nothing comes any more, and nothing goes.
    pub fn fail(&self) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.stop();
        }
    }

    fn stop(&self) {
        self.queue().open = false;
        self.pair.stop();
    }

    /// The peer has said that it is over: what has come before counts.
    pub fn is_closed(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether somebody waits for room.
    pub fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::Relaxed)
    }

    /// So many messages of the peer's have been read, and their buffers are there again. Those that he has promised to take.
    pub fn has_read(&self, net: &Net, messages: u32, credits: u32) {
        let mut queue = self.queue();
        queue.owed += messages;
        queue.credits = queue.credits.saturating_add(credits);
        if queue.owed >= self.promised / 2 {
            // Where there is no place in the queue another message takes it along.
            let _ = self.say(net, &mut queue, Kind::Credits, &[], Takes::Reserve);
        }
    }

    /// Sends a message. Errors: [`Error::NotNow`], [`Error::PeerDead`]; those of registrations.
    fn say(
        &self,
        net: &Net,
        queue: &mut SendQueue,
        kind: Kind,
        bytes: &[u8],
        takes: Takes,
    ) -> Result<()> {
        if takes == Takes::Credit && queue.credits == 0 || !queue.open {
            // Before a buffer is taken.
            return Err(if queue.open {
                Error::NotNow
            } else {
                Error::PeerDead
            });
        }
        let inline = bytes.len() <= self.inline as usize;
        let (buffer, at, key) = match inline {
            true => (None, bytes.as_ptr().cast_mut(), 0),
            false => {
                let (buffer, at, key) = net.sends.take(bytes)?.ok_or(Error::NotNow)?;
                (Some(buffer), at, key)
            }
        };
        let mut place = ibv_sge {
            addr: at.expose_provenance() as u64,
            length: bytes.len() as u32,
            lkey: key,
        };
        let mut request = write(&mut place, (0, 0));
        request.opcode = IBV_WR_SEND_WITH_IMM;
        request.imm_data = wire::word(kind, queue.owed);
        if inline && place.length > 0 {
            request.send_flags = IBV_SEND_INLINE;
        }
        let ends = match (kind, buffer) {
            (Kind::Close, _) => Ends::Close,
            (_, Some(buffer)) => Ends::Message(buffer),
            (_, None) => Ends::Nothing,
        };
        // SAFETY:
        // - the bytes are taken in the call, or in a buffer that is kept until the end.
        let posted = unsafe { queue.post(&self.pair, (self.number, &mut [request]), takes, ends) };
        if posted.is_ok() {
            queue.owed = 0;
        }
        posted
    }

    /// Posts a chain of accesses, of which the last one wakes the peer if `wakes`. Errors: [`Error::NotNow`], [`Error::PeerDead`].
    ///
    /// # Safety
    /// As [`Pair::post`].
    #[inline]
    pub unsafe fn post<const N: usize>(
        &self,
        requests: &mut [ibv_send_wr; N],
        wakes: bool,
        ends: Ends,
    ) -> Result<()> {
        let mut queue = self.queue.lock();
        let takes = match wakes {
            true => {
                let last = &mut requests[N - 1];
                last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
                last.imm_data = wire::word(Kind::Written, queue.owed);
                Takes::Credit
            }
            false => Takes::Nothing,
        };
        // SAFETY:
        // - the caller's word.
        unsafe { queue.post(&self.pair, (self.number, requests), takes, ends) }?;
        if wakes {
            queue.owed = 0;
        } else if requests[N - 1].opcode != IBV_WR_RDMA_WRITE {
            queue.reads();
        }
        Ok(())
    }

    /// Whether anything that has been posted has not reached the peer yet, as far as is known; the device will tell.
    pub fn is_under_way(&self) -> bool {
        let is_quiet = self.queue().is_quiet();
        !is_quiet && (self.ask() || !self.has_ended())
    }

    /// Looks whether the other side is there: a write of nothing comes back, or fails.
    fn ask(&self) -> bool {
        let mut queue = self.queue();
        if queue.is_watched() {
            return true;
        }
        let mut nothing = ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        let request = write(&mut nothing, (0, 0));
        // SAFETY:
        // - no memory is named.
        unsafe {
            let chain = (self.number, &mut [request]);
            queue.post(&self.pair, chain, Takes::Nothing, Ends::Probe)
        }
        .is_ok()
    }

    /// A look while it is not open.
    fn look_for(&self, pulse: &mut Pulse) -> Found {
        pulse.silent += 1;
        // The process is there, though it has stopped.
        if self.answers.load(Ordering::Relaxed) || pulse.silent < SILENT {
            return Found::Waits;
        }
        let text = format!(
            "nothing answers at {}: the host is down, or a firewall drops what is sent there",
            self.with.door
        );
        unipgas_core::tell(&format!("verbs: {text}"));
        let _ = self.why.set(Error::PeerDead);
        if let Some(net) = self.net.upgrade() {
            net.departed.add(self.with.secret, true, Error::PeerDead);
        }
        Found::Silence
    }
}

impl Stream for Connection {
    fn push(&self, bytes: &[u8]) -> Result<usize, Ended> {
        let net = self.net.upgrade().ok_or(Ended)?;
        if self.has_ended() {
            return Err(Ended);
        }
        if !self.is_open() {
            return Ok(0);
        }
        let mut queue = self.queue();
        let (mut sent, mut most) = (0, MESSAGE);
        while sent < bytes.len() {
            let body = &bytes[sent..bytes.len().min(sent + most)];
            match self.say(&net, &mut queue, Kind::Bytes, body, Takes::Credit) {
                Ok(()) => sent += body.len(),
                Err(Error::NotNow) => break,
                Err(Error::Os(_) | Error::Exhausted(_)) if most > self.inline as usize => {
                    // No buffer can be registered now, and what is taken along needs none.
                    most = self.inline as usize;
                }
                Err(error) => {
                    drop(queue);
                    if error != Error::PeerDead {
                        tracing::warn!("verbs: a message cannot be sent: {error}");
                    }
                    self.fail();
                    return Err(Ended);
                }
            }
        }
        Ok(sent)
    }

    fn pull(&self, into: &mut Vec<u8>) -> Result<(), Ended> {
        // What has come before the end counts.
        let ended = self.has_ended();
        let mut incoming = self.incoming.lock();
        match into.is_empty() {
            true => std::mem::swap(into, &mut incoming),
            false => into.append(&mut incoming),
        }
        match ended {
            true => Err(Ended),
            false => Ok(()),
        }
    }

    fn want_room(&self, wanted: bool) {
        self.wants_room.store(wanted, Ordering::Release);
        if wanted && let Some(net) = self.net.upgrade() {
            // There may be some already.
            net.has_room(self);
        }
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn refusal(&self) -> Option<Error> {
        self.why.get().cloned()
    }

    fn look(&self) -> Found {
        let mut pulse = self.pulse.lock();
        if self.has_ended() {
            return Found::Nothing;
        }
        if !self.is_open() {
            return self.look_for(&mut pulse);
        }
        let heard = self.heard.load(Ordering::Relaxed);
        let news = heard != pulse.heard;
        let watched = self.watched.swap(false, Ordering::Relaxed);
        let wanted = watched || self.wants_room();
        pulse.heard = heard;
        if news {
            pulse.asked = false;
            return if wanted { Found::Waits } else { Found::Nothing };
        }
        if wanted || pulse.asked {
            // The device tells when it has asked in vain.
            pulse.asked = self.ask();
            return Found::Waits;
        }
        Found::Nothing
    }

    fn watch(&self) -> bool {
        self.watched.store(true, Ordering::Relaxed);
        true
    }

    fn end(&self) {
        let net = self.net.upgrade();
        if !self.ended.swap(true, Ordering::AcqRel) {
            let mut queue = self.queue();
            let farewell = match (&net, queue.has_accesses()) {
                (Some(net), false) => self.say(net, &mut queue, Kind::Close, &[], Takes::Reserve),
                // Nothing may be read or written any more.
                _ => Err(Error::PeerDead),
            };
            queue.open = false;
            drop(queue);
            if farewell.is_err() {
                self.pair.stop();
            }
        } else if self.queue().open {
            self.stop();
        }
        if let Some(net) = net {
            net.forget(self);
        }
    }
}
