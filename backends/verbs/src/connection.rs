//! A byte stream to a process, and its queue pair, which also carries all accesses to that process's memory.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use unipgas_core::streams::{Link, Stream, StreamEnded, StreamState, TransitState, pull_from};
use unipgas_core::{Error, Result};
use unipgas_verbs_sys::*;

use crate::address::VerbsAddress;
use crate::buffers::MESSAGE;
use crate::net::VerbsNet;
use crate::posting::{PostedWork, SendQueue, Takes, write};
use crate::queues::Pair;
use crate::staged::Staging;
use crate::wire::{self, ImmediateKind};

/// Maximum inline bytes of a work request.
pub const INLINE: usize = 128;
/// Receive buffers for messages without a credit, which return credits. A side sends one after half of the promised messages, so no more are in flight.
pub const RESERVE: u32 = 4;
/// Looks without an answer from the peer's port, over five seconds, after which a process is dead.
const SILENT: u32 = 10;

/// Result of the previous looks.
#[derive(Default)]
struct Pulse {
    heard: u32,
    silent: u32,
    asked: bool,
}

/// One end of a connection.
pub(crate) struct Connection {
    net: Weak<VerbsNet>,
    /// Its number in this process: a place, and the use count of the place.
    pub number: u32,
    /// Address of the peer.
    pub with: VerbsAddress,
    /// This process began the connection.
    pub begun_here: bool,
    /// Credits of the peer: messages and wakes that it may send before this process returns credits.
    pub promised: u32,
    inline: u32,
    pub pair: Pair,
    queue: Mutex<SendQueue>,
    incoming: Mutex<Vec<u8>>,
    pub state: StreamState,
    pulse: Mutex<Pulse>,
    /// Released after the queue pair.
    _lives: Arc<()>,
}

/// Parts of a new connection.
pub(crate) struct ConnectionParts {
    pub net: Weak<VerbsNet>,
    pub number: u32,
    pub with: VerbsAddress,
    pub begun_here: bool,
    pub promised: u32,
    pub inline: u32,
    pub depth: u32,
    pub pair: Pair,
    /// Shared by all connections of the process.
    pub lives: Arc<()>,
    pub staging: Staging,
}

impl Connection {
    /// A connection that is not open yet.
    pub fn new(new: ConnectionParts) -> Self {
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
            state: StreamState::default(),
            pulse: Mutex::default(),
            _lives: new.lives,
        }
    }

    /// The connection of a link of this network.
    pub fn of(link: &Link) -> &Connection {
        let stream: *const dyn Stream = Arc::as_ptr(link.stream());
        // SAFETY:
        // - all streams of this network are connections, and the link keeps its stream.
        unsafe { &*stream.cast() }
    }

    /// Locks its send queue.
    pub fn queue(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock()
    }

    /// Sets the initial credits of this side.
    pub fn expects(&self, credits: u32) {
        self.queue().credits = credits;
    }

    /// Opens the connection: bytes may leave now.
    pub fn mark_ready(&self) {
        self.queue().open = !self.state.has_ended();
        self.state.mark_open();
    }

    /// Appends received bytes of the stream.
    pub fn take(&self, bytes: &[u8]) {
        self.incoming.lock().extend_from_slice(bytes);
    }

    /// Ends the connection before it opens. `why`: the reason.
    pub fn on_refused(&self, why: Error) {
        self.state.refuse(why);
        self.fail();
    }

    /// Ends the connection in both directions, without a message to the peer.
    pub fn fail(&self) {
        if self.state.end() {
            self.stop();
        }
    }

    fn stop(&self) {
        self.queue().open = false;
        self.pair.stop();
    }

    /// Notes that `messages` of the peer are read, and their buffers posted again. `credits`: credits that the peer has returned.
    pub fn on_read(&self, net: &VerbsNet, messages: u32, credits: u32) {
        let mut queue = self.queue();
        queue.owed += messages;
        queue.credits = queue.credits.saturating_add(credits);
        if queue.owed >= self.promised / 2 {
            // If the queue has no place, a later message carries the credits.
            let _ = self.say(net, &mut queue, ImmediateKind::Credits, &[], Takes::Reserve);
        }
    }

    /// Sends a message. Errors: [`Error::NotNow`], [`Error::PeerDead`], and errors of registrations.
    fn say(
        &self,
        net: &VerbsNet,
        queue: &mut SendQueue,
        kind: ImmediateKind,
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
            (ImmediateKind::Close, _) => PostedWork::Close,
            (_, Some(buffer)) => PostedWork::Message(buffer),
            (_, None) => PostedWork::Nothing,
        };
        // SAFETY:
        // - the bytes are copied in the call, or are in a buffer that lives until completion.
        let posted = unsafe { queue.post(&self.pair, (self.number, &mut [request]), takes, ends) };
        if posted.is_ok() {
            queue.owed = 0;
        }
        posted
    }

    /// Posts a chain of accesses. `wakes`: the last one wakes the peer. Errors: [`Error::NotNow`], [`Error::PeerDead`].
    ///
    /// # Safety
    /// As for [`Pair::post`].
    #[inline]
    pub unsafe fn post<const N: usize>(
        &self,
        requests: &mut [ibv_send_wr; N],
        wakes: bool,
        ends: PostedWork,
    ) -> Result<()> {
        let mut queue = self.queue.lock();
        let takes = match wakes {
            true => {
                let last = &mut requests[N - 1];
                last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
                last.imm_data = wire::word(ImmediateKind::Written, queue.owed);
                Takes::Credit
            }
            false => Takes::Nothing,
        };
        // SAFETY:
        // - contract of this call, which is the same.
        unsafe { queue.post(&self.pair, (self.number, requests), takes, ends) }?;
        if wakes {
            queue.owed = 0;
        } else if requests[N - 1].opcode != IBV_WR_RDMA_WRITE {
            queue.reads();
        }
        Ok(())
    }

    /// Whether operations or messages may still be in flight. If so, a completion is due.
    pub fn is_under_way(&self) -> bool {
        let is_quiet = self.queue().is_quiet();
        !is_quiet && (self.ask() || !self.state.has_ended())
    }

    /// Probes the peer by an empty write, which completes or fails.
    fn ask(&self) -> bool {
        let mut queue = self.queue();
        if queue.is_watched() {
            return true;
        }
        self.acknowledge(&mut queue).is_ok()
    }

    /// Posts a signaled empty write. Its completion covers all earlier writes.
    pub fn acknowledge(&self, queue: &mut SendQueue) -> unipgas_core::Result<()> {
        let mut nothing = ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        let request = write(&mut nothing, (0, 0));
        // SAFETY:
        // - the request names no memory.
        unsafe {
            let chain = (self.number, &mut [request]);
            queue.post(&self.pair, chain, Takes::Nothing, PostedWork::Probe)
        }
    }

    /// Look at a connection that is not open.
    fn look_for(&self, pulse: &mut Pulse) -> TransitState {
        pulse.silent += 1;
        // The process exists, and may be stopped.
        if self.state.is_reachable() || pulse.silent < SILENT {
            return TransitState::Waits;
        }
        let text = format!(
            "nothing answers at {}: the host is down, or a firewall drops what is sent there",
            self.with.door
        );
        unipgas_core::tell(&format!("verbs: {text}"));
        self.state.refuse(Error::PeerDead);
        if let Some(net) = self.net.upgrade() {
            net.departed.add(self.with.secret, true, Error::PeerDead);
        }
        TransitState::Silence
    }
}

impl Stream for Connection {
    fn push(&self, bytes: &[u8]) -> Result<usize, StreamEnded> {
        let net = self.net.upgrade().ok_or(StreamEnded)?;
        if self.state.has_ended() {
            return Err(StreamEnded);
        }
        if !self.is_open() {
            return Ok(0);
        }
        let mut queue = self.queue();
        let (mut sent, mut most) = (0, MESSAGE);
        while sent < bytes.len() {
            let body = &bytes[sent..bytes.len().min(sent + most)];
            match self.say(&net, &mut queue, ImmediateKind::Bytes, body, Takes::Credit) {
                Ok(()) => sent += body.len(),
                Err(Error::NotNow) => break,
                Err(Error::Os(_) | Error::Exhausted(_)) if most > self.inline as usize => {
                    // No buffer can be registered now. Inline messages need none.
                    most = self.inline as usize;
                }
                Err(error) => {
                    drop(queue);
                    if error != Error::PeerDead {
                        tracing::warn!("verbs: a message cannot be sent: {error}");
                    }
                    self.fail();
                    return Err(StreamEnded);
                }
            }
        }
        Ok(sent)
    }

    fn pull(&self, into: &mut Vec<u8>) -> Result<(), StreamEnded> {
        // Bytes from before the end are delivered too.
        let ended = self.state.has_ended();
        pull_from(&mut self.incoming.lock(), into, ended)
    }

    fn want_room(&self, wanted: bool) {
        self.state.want_room(wanted);
        if wanted && let Some(net) = self.net.upgrade() {
            // There may be room already.
            net.call_if_room(self);
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
        if news {
            pulse.asked = false;
            return TransitState::of_living(wanted);
        }
        if wanted || pulse.asked {
            // A dead peer causes an error completion.
            pulse.asked = self.ask();
            return TransitState::Waits;
        }
        TransitState::Nothing
    }

    fn end(&self) {
        let net = self.net.upgrade();
        if self.state.end() {
            let mut queue = self.queue();
            let farewell = match (&net, queue.has_accesses()) {
                (Some(net), false) => {
                    self.say(net, &mut queue, ImmediateKind::Close, &[], Takes::Reserve)
                }
                // Accesses are in flight, and must stop.
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
