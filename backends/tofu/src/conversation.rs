//! A stream of bytes to a process, by messages in rings.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use unipgas_core::streams::{Ended, Found, Link, Stream};
use unipgas_core::{Error, Result};

use crate::address::Address;
use crate::blocks::Block;
use crate::greeting::End;
use crate::mail::{self, Inbox, Kind, Outbox};
use crate::net::{Net, Target};

/// A process that has not answered in so many looks, five seconds, is not there.
const SILENT: u32 = 10;

/// What the looks have found.
#[derive(Default)]
struct Pulse {
    heard: u32,
    silent: u32,
}

/// What goes to the peer.
struct Out {
    end: End,
    mail: Outbox,
    /// The last message has been sent.
    closed: bool,
}

/// What has come from there.
#[derive(Default)]
struct In {
    mail: Inbox,
    bytes: Vec<u8>,
    /// The peer has sent its last message.
    closed: bool,
}

/// One side of it.
pub struct Conversation {
    net: Weak<Net>,
    /// As this process numbers it.
    pub number: u32,
    /// Whom it is with.
    pub with: Address,
    /// This process has begun it.
    pub begun_here: bool,
    /// The peer's VCQ.
    pub target: Arc<Target>,
    /// The ring, and behind it the word that the peer writes.
    block: Block,
    own: End,
    out: Mutex<Option<Out>>,
    incoming: Mutex<In>,
    open: AtomicBool,
    /// The peer's node has been reached.
    answers: AtomicBool,
    ended: AtomicBool,
    why: OnceLock<Error>,
    wants_room: AtomicBool,
    /// Somebody asks whether the other process lives.
    watched: AtomicBool,
    /// What has come from there, and what has reached it.
    heard: AtomicU32,
    pulse: Mutex<Pulse>,
}

/// What a new one is made of.
pub struct New {
    pub net: Weak<Net>,
    pub number: u32,
    pub with: Address,
    pub begun_here: bool,
    pub target: Arc<Target>,
    pub block: Block,
    pub own: End,
}

impl Conversation {
    /// One that is not open yet.
    pub fn new(new: New) -> Self {
        let conversation = Conversation {
            net: new.net,
            number: new.number,
            with: new.with,
            begun_here: new.begun_here,
            target: new.target,
            block: new.block,
            own: new.own,
            out: Mutex::default(),
            incoming: Mutex::default(),
            open: AtomicBool::new(false),
            answers: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            why: OnceLock::new(),
            wants_room: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            heard: AtomicU32::new(0),
            pulse: Mutex::default(),
        };
        // The block may have been another one's.
        conversation.read_there().store(0, Ordering::Release);
        conversation
    }

    /// That of a link of this network's.
    pub fn of(link: &Link) -> &Conversation {
        let stream: *const dyn Stream = Arc::as_ptr(link.stream());
        // SAFETY:
        // - all streams of this network are conversations; the link keeps its own.
        unsafe { &*stream.cast() }
    }

    /// How many messages the peer has read, as it writes.
    fn read_there(&self) -> &AtomicU64 {
        let at = self.block.base.wrapping_add(self.own.len as usize);
        // SAFETY:
        // - behind the ring, aligned to a line, and there as long as the block; shared with the network by purpose.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Its ring.
    pub fn block(&self) -> u32 {
        self.block.number
    }

    /// This end.
    pub fn own_end(&self) -> End {
        self.own
    }

    /// The other side has this end: bytes may go.
    pub fn is_ready(&self, end: End) {
        let mail = Outbox::new(end.len as usize, end.promised as usize, end.first);
        *self.out.lock() = Some(Out {
            end,
            mail,
            closed: false,
        });
        self.open.store(true, Ordering::Release);
        self.hear();
    }

    /// Whether this is the other side's end.
    pub fn is_to(&self, end: End) -> bool {
        self.out.lock().as_ref().is_some_and(|out| out.end == end)
    }

    /// The peer's node has been reached.
    pub fn answers(&self) {
        self.answers.store(true, Ordering::Relaxed);
    }

    /// Something has come, or has reached the peer.
    pub fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// It does not come about, for this reason.
    pub fn is_refused(&self, why: Error) {
        let _ = self.why.set(why);
        self.fail();
    }

    /// Nothing comes any more, and nothing goes.
    pub fn fail(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(out) = &mut *self.out.lock() {
            out.closed = true;
        }
        self.incoming.lock().closed = true;
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether neither side writes to the other's ring any more.
    pub fn is_quiet(&self) -> bool {
        let closed = self.out.lock().as_ref().is_some_and(|out| out.closed);
        (closed || self.why.get().is_some()) && self.incoming.lock().closed || self.target.is_lost()
    }

    /// Whether somebody waits for room, and there is some.
    pub fn has_wanted_room(&self) -> bool {
        if !self.wants_room.load(Ordering::Relaxed) {
            return false;
        }
        let mut out = self.out.lock();
        let Some(out) = &mut *out else {
            return false;
        };
        out.mail
            .have_been_read(self.read_there().load(Ordering::Acquire));
        let most = mail::size(mail::most(out.end.len as usize));
        out.mail.place(Kind::Bytes, most).is_some()
    }

    /// A message ends here in the ring. Errors: the peer makes no sense, or a message has been lost.
    pub fn take(&self, end: usize) -> std::result::Result<(), Ended> {
        // What is there was written before the notice that tells of it.
        fence(Ordering::Acquire);
        let (base, len) = (self.block.base, self.own.len as usize);
        if end > len || !end.is_multiple_of(size_of::<u64>()) || end < size_of::<u64>() {
            return Err(Ended);
        }
        let at_trailer = end - size_of::<u64>();
        // SAFETY:
        // - in the ring, as just looked, and aligned; the peer writes there only when it has been told that this has been read.
        let trailer = unsafe { base.wrapping_add(at_trailer).cast::<u64>().read_volatile() };
        let (kind, body, number) = mail::split(trailer).ok_or(Ended)?;
        let size = mail::size(body);
        let begin = end.checked_sub(size).ok_or(Ended)?;
        let mut incoming = self.incoming.lock();
        let next = self.own.first.wrapping_add(incoming.mail.read) as u32;
        match number.wrapping_sub(next) {
            0 => {}
            // Notices come in their order: one before it has been lost on the way, and the peer says farewell.
            ahead if ahead <= self.own.promised => return Err(Ended),
            // Meant for a process that had the VCQ before.
            _ => return Ok(()),
        }
        if body > mail::most(len) {
            return Err(Ended);
        }
        let at = base.wrapping_add(begin);
        // SAFETY:
        // - as above.
        let bytes = unsafe { std::slice::from_raw_parts(at, body) };
        incoming.bytes.extend_from_slice(bytes);
        let promised = self.own.promised as usize;
        let tells = incoming.mail.has_read(size, len, promised);
        if kind == Kind::Close {
            incoming.closed = true;
            self.ended.store(true, Ordering::Release);
        }
        drop(incoming);
        self.hear();
        if tells && !self.tell_of_read() {
            self.net.upgrade().inspect(|net| net.owes(self.number));
        }
        Ok(())
    }

    /// Tells the peer how many messages have been read. False: there is no room for that now.
    pub fn tell_of_read(&self) -> bool {
        let (Some(net), Some(end)) = (
            self.net.upgrade(),
            self.out.lock().as_ref().map(|out| out.end),
        ) else {
            return true;
        };
        let mut incoming = self.incoming.lock();
        let word = (self.own.first.wrapping_add(incoming.mail.read)).to_ne_bytes();
        let told = net.write_word(&self.target, word, end.ring + u64::from(end.len));
        match told {
            Err(Error::NotNow) => return false,
            Ok(()) | Err(Error::PeerDead) => incoming.mail.has_told(),
            Err(error) => {
                // The peer would wait for room without end.
                drop(incoming);
                net.stream_fails(self, &error);
            }
        }
        true
    }

    /// Sends a message. Errors: [`Error::NotNow`], [`Error::PeerDead`]; others.
    fn say(&self, net: &Net, out: &mut Out, kind: Kind, bytes: &[u8]) -> Result<()> {
        if out.closed {
            return Err(Error::PeerDead);
        }
        let size = mail::size(bytes.len());
        let mut place = out.mail.place(kind, size);
        if place.is_none() {
            out.mail
                .have_been_read(self.read_there().load(Ordering::Acquire));
            place = out.mail.place(kind, size);
        }
        let (at, takes, number) = place.ok_or(Error::NotNow)?;
        let trailer = mail::trailer(kind, bytes.len(), number);
        net.send(&self.target, bytes, trailer, out.end.ring + at as u64)?;
        out.mail.is_written((at, takes), size);
        Ok(())
    }

    /// The last message. Whether it has gone, or nobody would read it.
    pub fn close(&self) -> bool {
        let Some(net) = self.net.upgrade() else {
            return true;
        };
        let mut out = self.out.lock();
        let Some(open) = &mut *out else {
            return self.why.get().is_some();
        };
        if open.closed {
            return true;
        }
        match self.say(&net, open, Kind::Close, &[]) {
            Err(Error::NotNow) => false,
            _ => {
                open.closed = true;
                true
            }
        }
    }

    /// A look while it is not open.
    fn look_for(&self, pulse: &mut Pulse) -> Found {
        pulse.silent += 1;
        if let Some(net) = self.net.upgrade() {
            // Where another process had its place, some time ago, that one may have been greeted.
            net.greet_again(self.number);
        }
        // The process is there, though it has stopped.
        if self.answers.load(Ordering::Relaxed) || pulse.silent < SILENT {
            return Found::Waits;
        }
        if let Some(net) = self.net.upgrade() {
            let place = net.place(self.with.vcq);
            unipgas_core::tell(&format!(
                "tofu: nothing answers at {place}: its node is down"
            ));
        }
        self.depart()
    }

    fn depart(&self) -> Found {
        let _ = self.why.set(Error::PeerDead);
        if let Some(net) = self.net.upgrade() {
            net.departed.add(self.with.secret, true, Error::PeerDead);
        }
        Found::Silence
    }
}

impl Stream for Conversation {
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, Ended> {
        let net = self.net.upgrade().ok_or(Ended)?;
        if self.has_ended() {
            return Err(Ended);
        }
        let mut out = self.out.lock();
        let Some(out) = &mut *out else {
            return Ok(0);
        };
        let most = mail::most(out.end.len as usize);
        let mut sent = 0;
        for body in bytes.chunks(most) {
            match self.say(&net, out, Kind::Bytes, body) {
                Ok(()) => sent += body.len(),
                Err(Error::NotNow) => break,
                Err(error) => {
                    if error != Error::PeerDead {
                        unipgas_core::tell_refusal(&Error::Os(format!(
                            "tofu: a message cannot be sent: {error}"
                        )));
                    }
                    self.ended.store(true, Ordering::Release);
                    return Err(Ended);
                }
            }
        }
        Ok(sent)
    }

    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), Ended> {
        // What has come before the end counts.
        let ended = self.has_ended();
        let mut incoming = self.incoming.lock();
        match into.is_empty() {
            true => std::mem::swap(into, &mut incoming.bytes),
            false => into.append(&mut incoming.bytes),
        }
        match ended {
            true => Err(Ended),
            false => Ok(()),
        }
    }

    fn want_room(&self, wanted: bool) {
        if self.wants_room.swap(wanted, Ordering::AcqRel) != wanted
            && let Some(net) = self.net.upgrade()
        {
            net.blocked(self.number, wanted);
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
        let wanted =
            self.watched.swap(false, Ordering::Relaxed) || self.wants_room.load(Ordering::Relaxed);
        pulse.heard = heard;
        if news || !wanted && pulse.silent == 0 {
            pulse.silent = 0;
            return if wanted { Found::Waits } else { Found::Nothing };
        }
        pulse.silent += 1;
        if pulse.silent > SILENT {
            return self.depart();
        }
        if let Some(net) = self.net.upgrade() {
            // The network tells when it asks in vain, or that it has reached the peer.
            let _ = net.probe(self);
        }
        Found::Waits
    }

    fn watch(&self) -> bool {
        self.watched.store(true, Ordering::Relaxed);
        true
    }

    fn declare_dead(&self) {
        match self.net.upgrade() {
            Some(net) => net.declare_dead(&self.target),
            None => self.end(),
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(net) = self.net.upgrade() {
            net.forget(self);
        }
    }
}
