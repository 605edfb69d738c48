//! A byte stream to a process, as messages in rings.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::streams::{Link, Stream, StreamEnded, StreamState, TransitState, pull_from};
use unipgas_core::{Error, Result};

use crate::address::TofuAddress;
use crate::blocks::Block;
use crate::greeting::StreamEnd;
use crate::mail::{self, MessageType, RingReader, RingWriter};
use crate::net::{PeerVcq, TofuNet};

/// Looks without an answer, over five seconds, after which a process is dead.
const SILENT: u32 = 10;

/// Result of the previous looks.
#[derive(Default)]
struct Pulse {
    heard: u32,
    silent: u32,
}

/// Output to the peer.
struct Out {
    end: StreamEnd,
    mail: RingWriter,
    /// The last message is sent.
    closed: bool,
}

/// Input from the peer.
#[derive(Default)]
struct In {
    mail: RingReader,
    bytes: Vec<u8>,
    /// The peer has sent its last message.
    closed: bool,
}

/// One end of a stream.
pub(crate) struct TofuStream {
    net: Weak<TofuNet>,
    /// Its number in this process.
    pub number: u32,
    /// Address of the peer.
    pub with: TofuAddress,
    /// This process began the stream.
    pub begun_here: bool,
    /// The peer's VCQ.
    pub target: Arc<PeerVcq>,
    /// The ring of this end. Behind it is the peer's read position.
    block: Block,
    own: StreamEnd,
    out: Mutex<Option<Out>>,
    incoming: Mutex<In>,
    pub state: StreamState,
    pulse: Mutex<Pulse>,
}

/// Parts of a new stream.
pub(crate) struct StreamParts {
    pub net: Weak<TofuNet>,
    pub number: u32,
    pub with: TofuAddress,
    pub begun_here: bool,
    pub target: Arc<PeerVcq>,
    pub block: Block,
    pub own: StreamEnd,
}

impl TofuStream {
    /// A stream that is not open yet.
    pub fn new(new: StreamParts) -> Self {
        let conversation = TofuStream {
            net: new.net,
            number: new.number,
            with: new.with,
            begun_here: new.begun_here,
            target: new.target,
            block: new.block,
            own: new.own,
            out: Mutex::default(),
            incoming: Mutex::default(),
            state: StreamState::default(),
            pulse: Mutex::default(),
        };
        // The block may contain data of an earlier stream.
        conversation.read_there().store(0, Ordering::Release);
        conversation
    }

    /// The stream of a link of this network.
    pub fn of(link: &Link) -> &TofuStream {
        let stream: *const dyn Stream = Arc::as_ptr(link.stream());
        // SAFETY:
        // - all streams of this network are conversations, and the link keeps its stream.
        unsafe { &*stream.cast() }
    }

    /// Number of the first message that the peer has not read. The peer writes it.
    fn read_there(&self) -> &AtomicU64 {
        let at = self.block.base.wrapping_add(self.own.len as usize);
        // SAFETY:
        // - the word is behind the ring, aligned to a line, and lives as long as the block. It is atomic, since the network writes it.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Number of its ring.
    pub fn block(&self) -> u32 {
        self.block.number
    }

    /// This end.
    pub fn own_end(&self) -> StreamEnd {
        self.own
    }

    /// Sets the peer's end. Bytes may leave now.
    pub fn mark_ready(&self, end: StreamEnd) {
        let mail = RingWriter::new(end.len as usize, end.promised as usize, end.first);
        *self.out.lock() = Some(Out {
            end,
            mail,
            closed: false,
        });
        self.state.mark_open();
        self.state.hear();
    }

    /// Whether `end` is the peer's end.
    pub fn is_to(&self, end: StreamEnd) -> bool {
        self.out.lock().as_ref().is_some_and(|out| out.end == end)
    }

    /// Ends the stream before it opens. `why`: the reason.
    pub fn on_refused(&self, why: Error) {
        self.state.refuse(why);
        self.fail();
    }

    /// Ends the stream in both directions, without a message to the peer.
    pub fn fail(&self) {
        self.state.end();
        if let Some(out) = &mut *self.out.lock() {
            out.closed = true;
        }
        self.incoming.lock().closed = true;
    }

    /// Whether both sides have stopped writing to the other's ring.
    pub fn is_quiet(&self) -> bool {
        let closed = self.out.lock().as_ref().is_some_and(|out| out.closed);
        (closed || self.state.refusal().is_some()) && self.incoming.lock().closed
            || self.target.is_lost()
    }

    /// Whether a caller waits for room, and there is some.
    pub fn has_wanted_room(&self) -> bool {
        if !self.state.wants_room() {
            return false;
        }
        let mut out = self.out.lock();
        let Some(out) = &mut *out else {
            return false;
        };
        out.mail
            .have_been_read(self.read_there().load(Ordering::Acquire));
        let most = mail::size(mail::most(out.end.len as usize));
        out.mail.place(MessageType::Bytes, most).is_some()
    }

    /// Takes the message that ends at offset `end` of the ring. Errors: the message is malformed, or an earlier one is lost.
    pub fn take(&self, end: usize) -> std::result::Result<(), StreamEnded> {
        // The TNI writes a message before its notice.
        fence(Ordering::Acquire);
        let (base, len) = (self.block.base, self.own.len as usize);
        if end > len || !end.is_multiple_of(size_of::<u64>()) || end < size_of::<u64>() {
            return Err(StreamEnded);
        }
        let at_trailer = end - size_of::<u64>();
        // SAFETY:
        // - the word is in the ring (checked above), and aligned. The peer overwrites it only after this process has reported it as read.
        let trailer = unsafe { base.wrapping_add(at_trailer).cast::<u64>().read_volatile() };
        let (kind, body, number) = mail::split(trailer).ok_or(StreamEnded)?;
        let size = mail::size(body);
        let begin = end.checked_sub(size).ok_or(StreamEnded)?;
        let mut incoming = self.incoming.lock();
        let next = self.own.first.wrapping_add(incoming.mail.read) as u32;
        match number.wrapping_sub(next) {
            0 => {}
            // Notices arrive in order, so an earlier one is lost. The peer then sends its last message.
            ahead if ahead <= self.own.promised => return Err(StreamEnded),
            // The message is for a process that had the VCQ before.
            _ => return Ok(()),
        }
        if body > mail::most(len) {
            return Err(StreamEnded);
        }
        let at = base.wrapping_add(begin);
        // SAFETY:
        // - as above.
        let bytes = unsafe { std::slice::from_raw_parts(at, body) };
        incoming.bytes.extend_from_slice(bytes);
        let promised = self.own.promised as usize;
        let tells = incoming.mail.mark_read(size, len, promised);
        if kind == MessageType::Close {
            incoming.closed = true;
            self.state.end();
        }
        drop(incoming);
        self.state.hear();
        if tells && !self.tell_of_read() {
            self.net.upgrade().inspect(|net| net.owes(self.number));
        }
        Ok(())
    }

    /// Reports the read position to the peer. False: no room now.
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
            Ok(()) | Err(Error::PeerDead) => incoming.mail.mark_reported(),
            Err(error) => {
                // Without the report, the peer would wait for room forever.
                drop(incoming);
                net.stream_fails(self, &error);
            }
        }
        true
    }

    /// Sends a message. Errors: [`Error::NotNow`], [`Error::PeerDead`], and errors of the network.
    fn say(&self, net: &TofuNet, out: &mut Out, kind: MessageType, bytes: &[u8]) -> Result<()> {
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
        out.mail.mark_written((at, takes), size);
        Ok(())
    }

    /// Sends the last message. False: no room now. True also if the peer cannot read it.
    pub fn close(&self) -> bool {
        let Some(net) = self.net.upgrade() else {
            return true;
        };
        let mut out = self.out.lock();
        let Some(open) = &mut *out else {
            return self.state.refusal().is_some();
        };
        if open.closed {
            return true;
        }
        match self.say(&net, open, MessageType::Close, &[]) {
            Err(Error::NotNow) => false,
            _ => {
                open.closed = true;
                true
            }
        }
    }

    /// Look at a stream that is not open.
    fn look_for(&self, pulse: &mut Pulse) -> TransitState {
        pulse.silent += 1;
        if let Some(net) = self.net.upgrade() {
            // The previous greeting may have reached an earlier process with this VCQ.
            net.greet_again(self.number);
        }
        // The greeting has reached the process, which may be stopped.
        if self.state.is_reachable() || pulse.silent < SILENT {
            return TransitState::Waits;
        }
        if let Some(net) = self.net.upgrade() {
            let place = net.place(self.with.vcq);
            unipgas_core::tell(&format!(
                "tofu: nothing answers at {place}: its node is down"
            ));
        }
        self.depart()
    }

    fn depart(&self) -> TransitState {
        self.state.refuse(Error::PeerDead);
        if let Some(net) = self.net.upgrade() {
            net.departed.add(self.with.secret, true, Error::PeerDead);
        }
        TransitState::Silence
    }
}

impl Stream for TofuStream {
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, StreamEnded> {
        let net = self.net.upgrade().ok_or(StreamEnded)?;
        if self.state.has_ended() {
            return Err(StreamEnded);
        }
        let mut out = self.out.lock();
        let Some(out) = &mut *out else {
            return Ok(0);
        };
        let most = mail::most(out.end.len as usize);
        let mut sent = 0;
        for body in bytes.chunks(most) {
            match self.say(&net, out, MessageType::Bytes, body) {
                Ok(()) => sent += body.len(),
                Err(Error::NotNow) => break,
                Err(error) => {
                    if error != Error::PeerDead {
                        unipgas_core::tell_refusal(&Error::Os(format!(
                            "tofu: a message cannot be sent: {error}"
                        )));
                    }
                    self.state.end();
                    return Err(StreamEnded);
                }
            }
        }
        Ok(sent)
    }

    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), StreamEnded> {
        // Bytes from before the end are delivered too.
        let ended = self.state.has_ended();
        pull_from(&mut self.incoming.lock().bytes, into, ended)
    }

    fn want_room(&self, wanted: bool) {
        if self.state.want_room(wanted)
            && let Some(net) = self.net.upgrade()
        {
            net.blocked(self.number, wanted);
        }
    }

    fn state(&self) -> Option<&StreamState> {
        Some(&self.state)
    }

    fn look(&self) -> TransitState {
        let mut pulse = self.pulse.lock();
        if self.state.has_ended() {
            return TransitState::Nothing;
        }
        if !self.is_open() {
            return self.look_for(&mut pulse);
        }
        let (news, wanted) = self.state.look(&mut pulse.heard);
        if news || !wanted && pulse.silent == 0 {
            pulse.silent = 0;
            return TransitState::of_living(wanted);
        }
        pulse.silent += 1;
        if pulse.silent > SILENT {
            return self.depart();
        }
        if let Some(net) = self.net.upgrade() {
            // The probe's completion reports a live peer, its failure a dead one.
            let _ = net.probe(self);
        }
        TransitState::Waits
    }

    fn declare_dead(&self) {
        match self.net.upgrade() {
            Some(net) => net.declare_dead(&self.target),
            None => self.end(),
        }
    }

    fn end(&self) {
        self.state.end();
        if let Some(net) = self.net.upgrade() {
            net.forget(self);
        }
    }
}
