//! The mailbox: lanes, matching, and the protocol of long messages. Nothing here waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use slab::Slab;

use super::layout::{Head, INLINE, Kind, LINE, Line, Shape};
use super::outgoing::{Bytes, Outgoing, Waiting};
use super::staging::Staging;
use super::state::{
    Arrival, Coming, Envelope, Freight, Mode, Offer, Pattern, Payload, Precedence, ReceiveStage,
    ReceiveTicket, Received, Receiving, SendStage, SendTicket, Sending, no_such_peer,
};
use crate::engine::{Connection, Engine};
use crate::op::{Completion, Flags, Local, Outcome, Remote};
use crate::region::{Region, RemoteRegion, Rights};
use crate::{Endpoint, Error, Result};

/// Contexts of gets; those of puts are the peer's number.
const GET: u64 = 1 << 32;
/// Payloads from this length on are streamed by senders that wait for nothing else: both sides copy at once, which is faster than
/// one copy by the receiver.
const STREAM: usize = 32 << 10;

/// Where a peer's mailbox is.
pub struct PeerMailbox {
    /// The way to the peer.
    pub connection: Connection,
    /// Its mailbox.
    pub region: RemoteRegion,
    /// Which of the lanes there is ours: our number among its peers.
    pub lane: u32,
}

/// Finds peers when they are first talked to.
pub trait Peers: Send + Sync {
    /// The mailbox of `peer`. Errors: any; they become those of what was to be sent.
    fn find(&self, peer: u32) -> Result<PeerMailbox>;
}

/// Registered memory that peers send messages to, and what is known of messages under way. All calls must come from one thread at a time;
/// [`Mailbox::progress`] moves everything on.
pub struct Mailbox {
    shape: Shape,
    region: Region,
    endpoint: Endpoint,
    peers: Arc<dyn Peers>,
    precedence: Precedence,
    outgoing: Box<[Option<Box<Outgoing>>]>,
    /// Lines taken from each peer, and how many of them it has been told; data bytes taken since.
    lanes: Box<[Lane]>,
    /// Peers that have begun to send, in the order in which that was noticed.
    active: Vec<u32>,
    greetings: Box<[bool]>,
    posted: VecDeque<u32>,
    arrivals: VecDeque<Arrival>,
    sends: Slab<Sending>,
    receives: Slab<Receiving>,
    /// Peers that something waits to be sent to, and sends that stream.
    busy: Vec<u32>,
    streams: Vec<u32>,
    staging: Option<Staging>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    taken: u64,
    told: u64,
    owed: usize,
}

/// How a multicast went.
#[derive(Debug, PartialEq, Eq)]
pub enum Multicast {
    /// The buffer may be used again; what is under way needs nothing but progress.
    Staged,
    /// No room: call again after some progress.
    NoRoom,
    /// Too long to be staged: the buffer is in use until all these have ended.
    Exposed(Vec<SendTicket>),
}

impl Mailbox {
    /// A mailbox for `shape.peers` peers, found by `peers`.
    pub fn new(
        engine: &Engine,
        shape: Shape,
        precedence: Precedence,
        peers: Arc<dyn Peers>,
    ) -> Result<Self> {
        let shape = shape.check()?;
        Ok(Mailbox {
            shape,
            region: engine.allocate(shape.size(), Rights::all())?,
            endpoint: engine.endpoint(u32::MAX)?,
            peers,
            precedence,
            outgoing: (0..shape.peers).map(|_| None).collect(),
            lanes: vec![Lane::default(); shape.peers].into(),
            active: Vec::new(),
            greetings: vec![false; shape.peers].into(),
            posted: VecDeque::new(),
            arrivals: VecDeque::new(),
            sends: Slab::new(),
            receives: Slab::new(),
            busy: Vec::new(),
            streams: Vec::new(),
            staging: None,
        })
    }

    /// The registered memory, whose key peers need.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Sends `len` bytes at `data` to `to`. `None`: the send has ended already. `attentive`: the caller does nothing but make progress
    /// until it has. Errors: those of [`Peers::find`]; [`Error::PeerDead`], [`Error::StaleRegion`].
    ///
    /// # Safety
    /// The bytes stay valid, and unchanged, until the send has ended.
    pub unsafe fn send(
        &mut self,
        engine: &Engine,
        to: u32,
        envelope: Envelope,
        (data, len): (*const u8, usize),
        mode: Mode,
        attentive: bool,
    ) -> Result<Option<SendTicket>> {
        self.outgoing(to)?;
        let ticket = self.sends.vacant_key() as u32;
        let kind = match mode {
            _ if len > self.shape.eager() => Kind::Offer,
            Mode::Synchronous => Kind::Synchronous,
            Mode::Buffered => Kind::Eager,
        };
        let mut sending = Sending {
            to,
            head: head(kind, envelope, len, ticket),
            data,
            stage: SendStage::Waiting,
            attentive: attentive && !engine.crowded() && len >= STREAM,
            exposed: None,
            offset: 0,
            detached: false,
            short: [0; INLINE],
            staged: None,
        };
        if kind == Kind::Offer {
            // SAFETY:
            // - the caller's word.
            sending.exposed = unsafe { engine.expose(data, len) }.ok().map(Arc::new);
        }
        self.start(sending)
    }

    fn start(&mut self, mut sending: Sending) -> Result<Option<SendTicket>> {
        let to = sending.to;
        let waits = !self.outgoing(to)?.waiting.is_empty();
        if !waits && self.announce(to, &sending.head, &sending.freight())? {
            sending.announced();
            if sending.head.kind == Kind::Eager {
                return Ok(None);
            }
        } else {
            self.wait_for_room(to, Waiting::Send(sending.head.ticket))?;
        }
        let key = self.sends.insert(sending);
        Ok(Some(SendTicket(key as u32)))
    }

    fn wait_for_room(&mut self, to: u32, what: Waiting) -> Result<()> {
        self.outgoing(to)?.waiting.push_back(what);
        if !self.busy.contains(&to) {
            self.busy.push(to);
        }
        Ok(())
    }

    /// Writes a send's line, if there is room.
    #[inline]
    fn announce(&mut self, to: u32, head: &Head, freight: &Freight) -> Result<bool> {
        // SAFETY:
        // - bytes of the freight, or bytes that are valid until the send has ended, by the word of `send`'s caller.
        unsafe { self.push(to, head, freight.bytes()) }
    }

    /// # Safety
    /// The payload is readable.
    #[inline(always)]
    unsafe fn push(&mut self, to: u32, head: &Head, payload: Bytes) -> Result<bool> {
        let told = self
            .word(self.shape.credit_of(to as usize))
            .load(Ordering::Acquire);
        let Some(outgoing) = &mut self.outgoing[to as usize] else {
            return Err(Error::PeerDead);
        };
        // SAFETY:
        // - the caller's word.
        unsafe { outgoing.push(&self.endpoint, told, head, payload, u64::from(to)) }
    }

    /// Sends the same bytes to several peers, which may be any number of them. Errors: as for [`Mailbox::send`], of the first peer that
    /// cannot be reached; those before it get the message.
    ///
    /// # Safety
    /// As for [`Mailbox::send`], where [`Multicast::Exposed`] is answered.
    pub unsafe fn send_to_all(
        &mut self,
        engine: &Engine,
        to: impl Iterator<Item = u32> + Clone,
        envelope: Envelope,
        (data, len): (*const u8, usize),
    ) -> Result<Multicast> {
        for peer in to.clone() {
            self.outgoing(peer)?;
        }
        let readers = to.clone().count();
        let (kind, exposed, offset, staged) = if len <= INLINE || readers == 0 {
            (Kind::Eager, None, 0, None)
        } else if Staging::holds(len) {
            if self.staging.is_none() {
                self.staging = Some(Staging::new(engine)?);
            }
            let staging = self.staging.as_mut().expect("just made");
            // SAFETY:
            // - the caller's word.
            match unsafe { staging.stage(data, len, readers) } {
                Some((at, number)) => (Kind::Offer, Some(staging.region()), at, Some(number)),
                None => return Ok(Multicast::NoRoom),
            }
        } else {
            // SAFETY:
            // - the caller's word.
            let exposed = unsafe { engine.expose(data, len) }?;
            (Kind::Offer, Some(Arc::new(exposed)), 0, None)
        };
        let mut short = [0; INLINE];
        if kind == Kind::Eager {
            // SAFETY:
            // - the caller's word; no more than `INLINE` bytes.
            unsafe { crate::copy(data, short.as_mut_ptr(), len) };
        }
        let detached = kind == Kind::Eager || staged.is_some();
        let mut tickets = Vec::new();
        for peer in to {
            let ticket = self.sends.vacant_key() as u32;
            let sending = Sending {
                to: peer,
                head: head(kind, envelope, len, ticket),
                data,
                stage: SendStage::Waiting,
                attentive: false,
                exposed: exposed.clone(),
                offset: offset as u64,
                detached,
                short,
                staged,
            };
            match self.start(sending) {
                Ok(ticket) => tickets.extend(ticket),
                Err(error) => {
                    self.unstage(staged);
                    return Err(error);
                }
            }
        }
        Ok(if detached {
            Multicast::Staged
        } else {
            Multicast::Exposed(tickets)
        })
    }

    fn unstage(&mut self, entry: Option<u64>) {
        if let (Some(entry), Some(staging)) = (entry, &mut self.staging) {
            staging.free(entry);
        }
    }

    /// What has become of a send; after `Some` the ticket means nothing. Errors: [`Error::PeerDead`] and what else kept it from being sent.
    pub fn test_send(&mut self, ticket: SendTicket) -> Option<Result<()>> {
        match &self.sends.get(ticket.0 as usize)?.stage {
            SendStage::Ended(_) => match self.sends.remove(ticket.0 as usize).stage {
                SendStage::Ended(result) => Some(result),
                _ => unreachable!("just seen"),
            },
            _ => None,
        }
    }

    /// Takes a send back that has not been announced to the other side yet. Then the ticket means nothing.
    pub fn cancel_send(&mut self, ticket: SendTicket) -> bool {
        let Some(sending) = self.sends.get(ticket.0 as usize) else {
            return false;
        };
        if sending.stage != SendStage::Waiting {
            return false;
        }
        if let Some(outgoing) = &mut self.outgoing[sending.to as usize] {
            outgoing
                .waiting
                .retain(|waiting| !matches!(waiting, Waiting::Send(known) if *known == ticket.0));
        }
        self.sends.remove(ticket.0 as usize);
        true
    }

    /// Takes the first message that fits into `capacity` bytes at `buffer`, now or later.
    ///
    /// # Safety
    /// The bytes are valid for writes, and nobody else's, until the receive has ended.
    pub unsafe fn receive(
        &mut self,
        pattern: Pattern,
        buffer: *mut u8,
        capacity: usize,
    ) -> ReceiveTicket {
        let key = self.receives.insert(Receiving {
            pattern,
            buffer,
            capacity,
            stage: ReceiveStage::Posted,
        });
        let found = self
            .arrivals
            .iter()
            .position(|arrival| pattern.fits(arrival.source, &arrival.head));
        match found.and_then(|at| self.arrivals.remove(at)) {
            Some(arrival) => self.hand_over(key, arrival),
            None => self.posted.push_back(key as u32),
        }
        ReceiveTicket(key as u32)
    }

    /// What has become of a receive; after `Some` the ticket means nothing.
    pub fn test_receive(&mut self, ticket: ReceiveTicket) -> Option<Result<Received>> {
        match &self.receives.get(ticket.0 as usize)?.stage {
            ReceiveStage::Ended(_) => match self.receives.remove(ticket.0 as usize).stage {
                ReceiveStage::Ended(result) => Some(result),
                _ => unreachable!("just seen"),
            },
            _ => None,
        }
    }

    /// Whether a message has been found for the receive, even though it may still be on its way.
    pub fn is_matched(&self, ticket: ReceiveTicket) -> bool {
        self.receives
            .get(ticket.0 as usize)
            .is_some_and(|receiving| !matches!(receiving.stage, ReceiveStage::Posted))
    }

    /// Takes a receive back that no message has been found for. Then the ticket means nothing.
    pub fn cancel_receive(&mut self, ticket: ReceiveTicket) -> bool {
        let Some(at) = self.posted.iter().position(|known| *known == ticket.0) else {
            return false;
        };
        self.posted.remove(at);
        self.receives.remove(ticket.0 as usize);
        true
    }

    /// The first message that has come, that fits, and that no receive has taken.
    pub fn probe(&self, pattern: Pattern) -> Option<Received> {
        self.arrivals
            .iter()
            .find(|arrival| pattern.fits(arrival.source, &arrival.head))
            .map(|arrival| received(arrival.source, &arrival.head))
    }

    /// Everything that has to do with `peer` ends: sends to it, and receives from it that nothing has come for.
    pub fn forget(&mut self, peer: u32, why: &Error) {
        for (_, sending) in &mut self.sends {
            if sending.to == peer {
                sending.end(Err(why.clone()));
            }
        }
        for (key, receiving) in &mut self.receives {
            let waits = match &receiving.stage {
                ReceiveStage::Posted => receiving.pattern.source == Some(peer),
                ReceiveStage::Coming(coming) => {
                    coming.from.is_none() && coming.received.source == peer
                }
                ReceiveStage::Ended(_) => false,
            };
            if waits {
                self.posted.retain(|known| *known != key as u32);
                receiving.stage = ReceiveStage::Ended(Err(why.clone()));
            }
        }
        if let Some(Some(outgoing)) = self.outgoing.get_mut(peer as usize) {
            outgoing.waiting.clear();
        }
        self.busy.retain(|known| *known != peer);
        self.reap();
    }

    /// Moves everything on: takes what has come, sends what waited for room.
    #[inline]
    pub fn progress(&mut self, engine: &Engine) {
        if engine.asynchronous() {
            self.poll_endpoint();
        }
        self.notice_greetings();
        for nth in 0..self.active.len() {
            let peer = self.active[nth];
            while let Some(line) = self.next_line(peer) {
                self.take(peer, &line);
            }
        }
        if !(self.busy.is_empty() && self.streams.is_empty()) {
            self.push_on();
        }
    }

    #[inline(always)]
    fn notice_greetings(&mut self) {
        for peer in 0..self.shape.peers {
            if !self.greetings[peer]
                && self.word(self.shape.hello_of(peer)).load(Ordering::Acquire) != 0
            {
                self.greetings[peer] = true;
                self.active.push(peer as u32);
            }
        }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + 4 <= self.region.len());
        // SAFETY:
        // - within the region (the shape's arithmetic), aligned; peers change it by notices, which are atomic.
        unsafe { AtomicU32::from_ptr(self.region.base().add(offset).cast()) }
    }

    /// The next line of `peer`, if it is there.
    #[inline(always)]
    fn next_line(&self, peer: u32) -> Option<Line> {
        let position = self.lanes[peer as usize].taken;
        let offset = self.shape.line(peer as usize, position);
        debug_assert!(offset + LINE <= self.region.len());
        let base = self.region.base().wrapping_add(offset).cast::<u64>();
        // SAFETY:
        // - within the region (the shape's arithmetic), aligned; whoever writes it uses atomic stores or is done when the mark is there.
        let word = |nth: usize| unsafe { AtomicU64::from_ptr(base.add(nth)) };
        let last = word(LINE / 8 - 1).load(Ordering::Acquire);
        if Line::mark_of(last) != self.shape.mark(position) {
            return None;
        }
        let mut line = [last; LINE / 8];
        for (nth, value) in line[..LINE / 8 - 1].iter_mut().enumerate() {
            *value = word(nth).load(Ordering::Relaxed);
        }
        Some(Line(line))
    }

    /// `len` bytes of `peer`'s data ring. What leaves the ring is no data of a peer that keeps to the rules, and is cut off.
    fn data(&self, peer: u32, line: &Line, len: usize) -> Bytes {
        let position = line.pointed();
        let len = len.min(self.shape.data - (position as usize & (self.shape.data - 1)));
        Bytes {
            ptr: self
                .region
                .base()
                .wrapping_add(self.shape.data(peer as usize, position)),
            len,
        }
    }

    #[inline]
    fn take(&mut self, peer: u32, line: &Line) {
        let mut bytes = 0;
        if let Some(head) = line.head() {
            match head.kind {
                Kind::Eager | Kind::Synchronous => {
                    bytes = if head.len > INLINE { head.len } else { 0 };
                    self.arrived(peer, head, line);
                }
                Kind::Offer => {
                    bytes = size_of::<Offer>();
                    self.arrived(peer, head, line);
                }
                Kind::Done => self.done(peer, head.ticket),
                Kind::Stream => self.stream(peer, &head),
                Kind::Part => {
                    bytes = if head.len > INLINE { head.len } else { 0 };
                    self.part(peer, &head, line);
                }
            }
        }
        let lane = &mut self.lanes[peer as usize];
        lane.taken += 1;
        lane.owed += bytes;
        if lane.taken - lane.told >= (self.shape.lines as u64 / 4).max(1)
            || lane.owed >= self.shape.data / 4
        {
            self.give_credit(peer);
        }
    }

    #[cold]
    fn give_credit(&mut self, peer: u32) {
        let lane = &mut self.lanes[peer as usize];
        (lane.told, lane.owed) = (lane.taken, 0);
        let taken = lane.taken;
        let context = u64::from(peer);
        if self.outgoing[peer as usize].is_none() {
            let _ = self.outgoing(peer);
        }
        if let Some(outgoing) = &self.outgoing[peer as usize] {
            // A peer that has gone needs no credit.
            let _ = outgoing.give_credit(&self.endpoint, taken, context);
        }
    }

    /// A message has come: to the receive that it fits, or to those that wait for one.
    #[inline]
    fn arrived(&mut self, source: u32, head: Head, line: &Line) {
        if let Some(key) = self.find_posted(source, &head) {
            if head.kind == Kind::Offer {
                let offer = self.offer(source, line);
                self.fetch(key, source, &head, &offer);
                return;
            }
            let bytes = if head.len > INLINE {
                self.data(source, line, head.len)
            } else {
                Bytes {
                    ptr: line.carried().as_ptr(),
                    len: head.len,
                }
            };
            self.fill(key, source, &head, bytes);
            return;
        }
        let payload = match head.kind {
            Kind::Offer => Payload::Offer(self.offer(source, line)),
            _ if head.len > INLINE => {
                let bytes = self.data(source, line, head.len);
                // SAFETY:
                // - within the data ring; the sender does not touch it before it gets credit for the line.
                Payload::Long(unsafe { std::slice::from_raw_parts(bytes.ptr, bytes.len) }.into())
            }
            _ => Payload::Short(*line.carried()),
        };
        self.arrivals.push_back(Arrival {
            source,
            head,
            payload,
        });
    }

    fn offer(&self, source: u32, line: &Line) -> Offer {
        let bytes = self.data(source, line, size_of::<Offer>());
        let mut offer: Offer = bytemuck::Zeroable::zeroed();
        // SAFETY:
        // - within the data ring, as above; any bytes are an offer.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.ptr, (&raw mut offer).cast(), bytes.len);
        }
        offer
    }

    #[inline]
    fn find_posted(&mut self, source: u32, head: &Head) -> Option<usize> {
        let fits = |key: &u32| self.receives[*key as usize].pattern.fits(source, head);
        let mut at = self.posted.iter().position(fits)?;
        let named = |key: &u32| self.receives[*key as usize].pattern.source.is_some();
        if self.precedence == Precedence::Named && !named(&self.posted[at]) {
            let better = |key: &u32| named(key) && fits(key);
            at = self.posted.iter().position(better).unwrap_or(at);
        }
        self.posted.remove(at).map(|key| key as usize)
    }

    /// Gives a message that had to wait to the receive that wants it.
    fn hand_over(&mut self, key: usize, arrival: Arrival) {
        let Arrival {
            source,
            head,
            payload,
        } = arrival;
        match &payload {
            Payload::Offer(offer) => self.fetch(key, source, &head, offer),
            Payload::Short(bytes) => {
                let ptr = bytes.as_ptr();
                self.fill(key, source, &head, Bytes { ptr, len: head.len });
            }
            Payload::Long(bytes) => {
                let (ptr, len) = (bytes.as_ptr(), bytes.len());
                self.fill(key, source, &head, Bytes { ptr, len });
            }
        }
    }

    /// Ends a receive by a payload that is here.
    #[inline]
    fn fill(&mut self, key: usize, source: u32, head: &Head, bytes: Bytes) {
        let receiving = &mut self.receives[key];
        let len = bytes.len.min(receiving.capacity);
        // SAFETY:
        // - `capacity` bytes of the buffer are valid by the word of `receive`'s caller; the payload is held by our caller.
        unsafe { crate::copy(bytes.ptr, receiving.buffer, len) };
        receiving.stage = ReceiveStage::Ended(Ok(received(source, head)));
        if head.kind == Kind::Synchronous {
            self.answer(source, Kind::Done, head.ticket, 0);
        }
    }

    /// Gets an offered payload, or asks for it.
    fn fetch(&mut self, key: usize, source: u32, head: &Head, offer: &Offer) {
        let mut coming = Coming {
            received: received(source, head),
            ticket: head.ticket,
            done: 0,
            from: None,
        };
        let receiving = &self.receives[key];
        let len = head.len.min(receiving.capacity);
        let local = Local {
            ptr: receiving.buffer,
            desc: 0,
        };
        let stream = offer.attentive != 0;
        let result = if stream {
            Ok(Outcome::Pending)
        } else {
            self.import(source, &offer.key).and_then(|region| {
                let remote = Remote {
                    region: &region,
                    offset: offer.offset as usize,
                };
                // SAFETY:
                // - `len` bytes of the buffer are valid until the receive has ended, by the word of `receive`'s caller.
                let outcome = unsafe {
                    self.endpoint
                        .get(local, remote, len, Flags::empty(), GET | key as u64)
                };
                coming.from = Some(region);
                outcome
            })
        };
        match result {
            Ok(Outcome::Complete) => {
                self.receives[key].stage = ReceiveStage::Ended(Ok(coming.received));
                self.answer(source, Kind::Done, head.ticket, 0);
            }
            Ok(Outcome::Pending) => {
                self.receives[key].stage = ReceiveStage::Coming(coming);
                if stream {
                    self.answer(source, Kind::Stream, head.ticket, key as u64);
                }
            }
            Err(Error::Os(_)) => {
                // The kernel does not let us look into the sender: it has to send.
                coming.from = None;
                self.receives[key].stage = ReceiveStage::Coming(coming);
                self.answer(source, Kind::Stream, head.ticket, key as u64);
            }
            Err(error) => self.receives[key].stage = ReceiveStage::Ended(Err(error)),
        }
    }

    fn import(&mut self, source: u32, key: &[u8; 64]) -> Result<RemoteRegion> {
        self.outgoing(source)?.import(key)
    }

    /// The other side has received a message.
    fn done(&mut self, peer: u32, ticket: u32) {
        let Some(sending) = self.sends.get_mut(ticket as usize) else {
            return;
        };
        if sending.to != peer {
            return;
        }
        sending.end(Ok(()));
        if sending.detached {
            let staged = self.sends.remove(ticket as usize).staged;
            self.unstage(staged);
        }
    }

    /// The other side asks for the payload.
    fn stream(&mut self, peer: u32, head: &Head) {
        let Some(sending) = self.sends.get_mut(head.ticket as usize) else {
            return;
        };
        if sending.to == peer && sending.stage == SendStage::Announced {
            sending.stage = SendStage::Streaming {
                done: 0,
                receive: head.extra as u32,
            };
            self.streams.push(head.ticket);
            self.pump(head.ticket);
        }
    }

    /// Sends as much of a streamed payload as there is room for. False: nothing is left to do.
    fn pump(&mut self, ticket: u32) -> bool {
        let Some(sending) = self.sends.get(ticket as usize) else {
            return false;
        };
        let (to, len, data) = (sending.to, sending.head.len, sending.data);
        let SendStage::Streaming { mut done, receive } = sending.stage else {
            return false;
        };
        while done < len {
            let part = (len - done).min(self.shape.eager());
            let head = Head {
                kind: Kind::Part,
                context: 0,
                len: part,
                tag: done as u64,
                extra: 0,
                ticket: receive,
            };
            let bytes = Bytes {
                ptr: data.wrapping_add(done),
                len: part,
            };
            // SAFETY:
            // - part of the payload, which is valid until the send has ended.
            match unsafe { self.push(to, &head, bytes) } {
                Ok(true) => done += part,
                Ok(false) => break,
                Err(error) => {
                    self.sends[ticket as usize].end(Err(error));
                    return false;
                }
            }
        }
        self.sends[ticket as usize].stage = SendStage::Streaming { done, receive };
        done < len
    }

    /// A part of a streamed payload has come.
    fn part(&mut self, peer: u32, head: &Head, line: &Line) {
        let bytes = if head.len > INLINE {
            self.data(peer, line, head.len)
        } else {
            Bytes {
                ptr: line.carried().as_ptr(),
                len: head.len,
            }
        };
        let Some(receiving) = self.receives.get_mut(head.ticket as usize) else {
            return;
        };
        let ReceiveStage::Coming(coming) = &mut receiving.stage else {
            return;
        };
        let offset = head.tag as usize;
        if coming.received.source != peer || coming.done != offset {
            return;
        }
        let room = receiving.capacity.saturating_sub(offset).min(bytes.len);
        // SAFETY:
        // - within the buffer, valid by the word of `receive`'s caller, and within the data ring.
        unsafe { crate::copy(bytes.ptr, receiving.buffer.wrapping_add(offset), room) };
        coming.done += head.len;
        if coming.done >= coming.received.len {
            let (ticket, result) = (coming.ticket, coming.received);
            receiving.stage = ReceiveStage::Ended(Ok(result));
            self.answer(peer, Kind::Done, ticket, 0);
        }
    }

    /// Tells a sender what became of its message.
    #[inline]
    fn answer(&mut self, to: u32, kind: Kind, ticket: u32, extra: u64) {
        let head = Head {
            kind,
            context: 0,
            len: 0,
            tag: 0,
            extra,
            ticket,
        };
        let Ok(outgoing) = self.outgoing(to) else {
            return;
        };
        if outgoing.waiting.is_empty() {
            // SAFETY:
            // - no payload.
            match unsafe { self.push(to, &head, Bytes::NONE) } {
                Ok(false) => {}
                // A sender that has gone needs no answer.
                Ok(true) | Err(_) => return,
            }
        }
        let _ = self.wait_for_room(to, Waiting::Answer(head));
    }

    /// Sends what waited for room, as far as there is some now.
    #[cold]
    fn push_on(&mut self) {
        let mut nth = 0;
        while nth < self.streams.len() {
            if self.pump(self.streams[nth]) {
                nth += 1;
            } else {
                self.streams.swap_remove(nth);
            }
        }
        let mut nth = 0;
        while nth < self.busy.len() {
            if self.push_waiting(self.busy[nth]) {
                nth += 1;
            } else {
                self.busy.swap_remove(nth);
            }
        }
        self.reap();
    }

    /// False: nothing waits any more.
    fn push_waiting(&mut self, to: u32) -> bool {
        loop {
            let Some(outgoing) = &mut self.outgoing[to as usize] else {
                return false;
            };
            let Some(first) = outgoing.waiting.pop_front() else {
                return false;
            };
            let sent = match &first {
                Waiting::Answer(head) => {
                    // SAFETY:
                    // - no payload.
                    unsafe { self.push(to, head, Bytes::NONE) }.unwrap_or(true)
                }
                Waiting::Send(ticket) => {
                    let ticket = *ticket as usize;
                    let Some(sending) = self.sends.get(ticket) else {
                        continue;
                    };
                    let (head, freight) = (sending.head, sending.freight());
                    let result = self.announce(to, &head, &freight);
                    let sending = &mut self.sends[ticket];
                    match result {
                        Ok(true) => sending.announced(),
                        Ok(false) => {}
                        Err(ref error) => sending.end(Err(error.clone())),
                    }
                    result.unwrap_or(true)
                }
            };
            if !sent {
                if let Some(outgoing) = &mut self.outgoing[to as usize] {
                    outgoing.waiting.push_front(first);
                }
                return true;
            }
        }
    }

    /// Detached sends that have ended have nobody else who would take them away.
    fn reap(&mut self) {
        while let Some(key) = self
            .sends
            .iter()
            .find(|(_, sending)| sending.detached && matches!(sending.stage, SendStage::Ended(_)))
            .map(|(key, _)| key)
        {
            let staged = self.sends.remove(key).staged;
            self.unstage(staged);
        }
    }

    /// Where operations end later: what was fetched is there, what could not be sent has failed.
    #[cold]
    fn poll_endpoint(&mut self) {
        let mut ends: Vec<Completion> = Vec::new();
        self.endpoint.poll(&mut |completion| {
            if completion.context & GET != 0 || completion.result.is_err() {
                ends.push(completion);
            }
        });
        for Completion { context, result } in ends {
            if context & GET != 0 {
                self.fetched((context & !GET) as usize, result);
            } else if let Err(error) = result {
                self.forget(context as u32, &error);
            }
        }
    }

    fn fetched(&mut self, key: usize, result: Result<()>) {
        let Some(receiving) = self.receives.get_mut(key) else {
            return;
        };
        let ReceiveStage::Coming(coming) = &mut receiving.stage else {
            return;
        };
        let (source, ticket, received) = (coming.received.source, coming.ticket, coming.received);
        match result {
            Ok(()) => {
                receiving.stage = ReceiveStage::Ended(Ok(received));
                self.answer(source, Kind::Done, ticket, 0);
            }
            Err(Error::Os(_)) => {
                coming.from = None;
                self.answer(source, Kind::Stream, ticket, key as u64);
            }
            Err(error) => receiving.stage = ReceiveStage::Ended(Err(error)),
        }
    }

    /// The way to `peer`, found at the first time.
    #[inline(always)]
    fn outgoing(&mut self, peer: u32) -> Result<&mut Outgoing> {
        let shape = self.shape;
        match self.outgoing.get_mut(peer as usize) {
            Some(Some(known)) => Ok(known),
            Some(place) => Ok(place.insert(Box::new(Outgoing::new(self.peers.find(peer)?, shape)))),
            None => Err(no_such_peer(peer, shape.peers)),
        }
    }
}

fn head(kind: Kind, envelope: Envelope, len: usize, ticket: u32) -> Head {
    Head {
        kind,
        context: envelope.context,
        len,
        tag: envelope.tag,
        extra: envelope.extra,
        ticket,
    }
}

#[inline(always)]
fn received(source: u32, head: &Head) -> Received {
    Received {
        source,
        envelope: Envelope {
            context: head.context,
            tag: head.tag,
            extra: head.extra,
        },
        len: head.len,
    }
}
