//! The receiving half of a mailbox: matching, and the transfer of payloads to the buffers.

use std::sync::atomic::{Ordering, fence};

use super::layout::{Head, INLINE, Kind, Line};
use super::mailbox::{Debt, GET, Mailbox};
use super::outgoing::Bytes;
use super::state::{
    APART, Arrival, Coming, Offer, Pattern, Payload, Precedence, ReceiveStage, ReceiveTicket,
    Received, Receiving, Role, received,
};
use super::window::Window;
use unipgas_base::{Error, Result, trace};
use unipgas_engine::bundle::BUNDLE_LEN;
use unipgas_engine::op::{Flags, Local, Outcome, Remote};
use unipgas_engine::region::RemoteRegion;

impl Mailbox {
    /// Takes the first message that fits into `capacity` bytes at `buffer`, now or later.
    ///
    /// # Safety
    /// Until the receive has ended, the bytes are valid for writes and no other code uses them.
    pub unsafe fn receive(
        &mut self,
        pattern: Pattern,
        buffer: *mut u8,
        capacity: usize,
    ) -> ReceiveTicket {
        let key = self.receives.insert(Receiving {
            role: Role::Whole,
            pattern,
            buffer,
            capacity,
            stage: ReceiveStage::Posted,
            apart: None,
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

    /// Number of receives that have not ended, or have an end that was not taken.
    #[inline(always)]
    pub fn receives(&self) -> usize {
        self.receives.len()
    }

    /// The result of a receive that has ended. After `Some` the ticket is invalid.
    pub fn test_receive(&mut self, ticket: ReceiveTicket) -> Option<Result<Received>> {
        match &self.receives.get(ticket.0 as usize)?.stage {
            ReceiveStage::Ended(_) => {
                let receiving = self.receives.remove(ticket.0 as usize);
                if let Role::Part(of) = receiving.role {
                    self.part_taken(of);
                }
                match receiving.stage {
                    ReceiveStage::Ended(result) => Some(result),
                    _ => unreachable!("just seen"),
                }
            }
            _ => None,
        }
    }

    /// The payload of an [`APART`] message, which the receive did not write to its buffer. Call it before [`Mailbox::test_receive`].
    pub fn take_apart(&mut self, ticket: ReceiveTicket) -> Option<Box<[u8]>> {
        self.receives.get_mut(ticket.0 as usize)?.apart.take()
    }

    /// Whether the receive has a message. Its payload may still be in flight.
    pub fn is_matched(&self, ticket: ReceiveTicket) -> bool {
        self.receives
            .get(ticket.0 as usize)
            .is_some_and(|receiving| !matches!(receiving.stage, ReceiveStage::Posted))
    }

    /// Sender of the receive's message while its payload is in flight.
    pub fn comes_from(&self, ticket: ReceiveTicket) -> Option<u32> {
        match &self.receives.get(ticket.0 as usize)?.stage {
            ReceiveStage::Coming(coming) => Some(coming.received.source),
            ReceiveStage::Posted | ReceiveStage::Ended(_) => None,
        }
    }

    /// Cancels a receive that has no message. True: it is cancelled, and the ticket is invalid.
    pub fn cancel_receive(&mut self, ticket: ReceiveTicket) -> bool {
        let Some(at) = self.posted.iter().position(|known| *known == ticket.0) else {
            return false;
        };
        self.posted.remove(at);
        self.receives.remove(ticket.0 as usize);
        true
    }

    /// The first message that fits and has no receive.
    pub fn probe(&self, pattern: Pattern) -> Option<Received> {
        self.arrivals
            .iter()
            .find(|arrival| pattern.fits(arrival.source, &arrival.head))
            .map(|arrival| received(arrival.source, &arrival.head))
    }

    /// Carries out a line.
    #[inline]
    pub(super) fn take(&mut self, window: &Window, peer: u32, line: &Line) {
        let mut bytes = 0;
        if let Some(head) = line.head() {
            bytes = if head.len > INLINE { head.len } else { 0 };
            if head.kind == Kind::Synchronous || head.kind == Kind::Eager {
                self.arrived(window, peer, head, line);
            } else if head.kind == Kind::Done {
                self.done(peer, head.ticket);
            } else {
                bytes = self.take_rare(window, peer, &head, line);
            }
        }
        self.took(window, peer, bytes);
    }

    /// Ends a line. `bytes`: its bytes in the data ring, which are free now.
    #[inline(always)]
    pub(super) fn took(&mut self, window: &Window, peer: u32, bytes: usize) {
        let taken = window.took(peer);
        let debt = &mut self.debts[peer as usize];
        debt.bytes += bytes;
        if taken - debt.told >= (self.shape.lines as u64 / 4).max(1)
            || debt.bytes >= self.shape.data / 4
        {
            self.give_credit(peer, taken);
        }
    }

    /// Returns the bytes of the data ring that the line has used.
    #[cold]
    fn take_rare(&mut self, window: &Window, peer: u32, head: &Head, line: &Line) -> usize {
        match head.kind {
            Kind::Offer => {
                self.arrived(window, peer, *head, line);
                return size_of::<Offer>();
            }
            Kind::Stream => self.stream(peer, head),
            Kind::Gone => self.gone(peer, head.ticket as usize),
            Kind::Part => {
                self.part(window, peer, head, line);
                return if head.len > INLINE { head.len } else { 0 };
            }
            _ => {}
        }
        0
    }

    #[cold]
    fn give_credit(&mut self, peer: u32, taken: u64) {
        self.debts[peer as usize] = Debt {
            told: taken,
            bytes: 0,
        };
        let context = self.context(peer);
        // A peer that has gone or cannot be found needs no credit.
        if self.outgoing(peer).is_ok()
            && let Some(outgoing) = &mut self.outgoing[peer as usize]
            && outgoing.give_credit(&self.endpoint, taken, context) == Ok(false)
        {
            self.mark_busy(peer);
        }
    }

    /// Gives a new message to the first receive that it fits. Without a receive, it is kept.
    #[inline]
    fn arrived(&mut self, window: &Window, source: u32, head: Head, line: &Line) {
        if let Some(key) = self.find_posted(source, &head) {
            if head.kind == Kind::Offer {
                let offer = offer(window, source, line);
                self.fetch(key, source, &head, &offer);
                return;
            }
            let bytes = if head.len > INLINE {
                window.data(source, line, head.len)
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
            Kind::Offer => Payload::Offer(offer(window, source, line)),
            _ if head.len > INLINE => {
                let bytes = window.data(source, line, head.len);
                // SAFETY:
                // - `window.data` stays within the data ring. The sender does not write there before it gets credit for the line.
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

    #[inline]
    fn find_posted(&mut self, source: u32, head: &Head) -> Option<usize> {
        let fits = |key: &u32| self.receives[*key as usize].pattern.fits(source, head);
        let Some(mut at) = self.posted.iter().position(fits) else {
            self.share.as_ref()?;
            return self.draw(source, head);
        };
        let named = |key: &u32| self.receives[*key as usize].pattern.source.is_some();
        if self.precedence == Precedence::Named && !named(&self.posted[at]) {
            let better = |key: &u32| named(key) && fits(key);
            at = self.posted.iter().position(better).unwrap_or(at);
        }
        let key = *self.posted.get(at)? as usize;
        if matches!(self.receives[key].role, Role::Several { .. }) {
            return Some(self.take_part(key, head));
        }
        self.posted.remove(at);
        Some(key)
    }

    /// Gives a kept message to a receive.
    pub(super) fn hand_over(&mut self, key: usize, arrival: Arrival) {
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

    /// Ends a receive.
    #[inline(always)]
    fn end_receive(&mut self, key: usize, result: Result<Received>) {
        self.receives[key].stage = ReceiveStage::Ended(result);
        if self.tells_ends {
            self.ended.push_back(key as u32);
        }
    }

    /// Copies a payload to the buffer, and ends the receive.
    #[inline]
    fn fill(&mut self, key: usize, source: u32, head: &Head, bytes: Bytes) {
        if head.context & APART != 0 {
            self.put_apart(key, bytes);
        } else {
            let receiving = &self.receives[key];
            let len = bytes.len.min(receiving.capacity);
            // SAFETY:
            // - contract of `receive`: `capacity` bytes of the buffer are valid. The caller of `fill` holds the payload.
            unsafe { unipgas_base::copy::copy(bytes.ptr, receiving.buffer, len) };
        }
        self.end_receive(key, Ok(received(source, head)));
        if head.kind == Kind::Synchronous {
            self.answer(source, Kind::Done, head.ticket, 0);
        }
    }

    #[cold]
    fn put_apart(&mut self, key: usize, bytes: Bytes) {
        // SAFETY:
        // - the caller of `fill` holds the payload.
        let payload = unsafe { std::slice::from_raw_parts(bytes.ptr, bytes.len) };
        self.receives[key].apart = Some(payload.into());
    }

    /// Fetches an offered payload, or asks the sender to stream it.
    fn fetch(&mut self, key: usize, source: u32, head: &Head, offer: &Offer) {
        let span = trace::span();
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
                // - contract of `receive`: `len` bytes of the buffer are valid until the receive has ended.
                let outcome = unsafe {
                    self.endpoint
                        .get(local, remote, len, Flags::empty(), GET | key as u64)
                };
                coming.from = Some(region);
                outcome
            })
        };
        if let (Some(span), Ok(_)) = (span, &result) {
            trace::message_came(span, source, head.ticket, head.len);
        }
        match result {
            Ok(Outcome::Complete) => self.landed(key, &coming),
            Ok(Outcome::Pending) => {
                self.receives[key].stage = ReceiveStage::Coming(Box::new(coming));
                if stream {
                    self.answer(source, Kind::Stream, head.ticket, key as u64);
                }
            }
            Err(Error::Timeout) => {
                // The sender has not answered yet.
                self.receives[key].stage = ReceiveStage::Coming(Box::new(coming));
                self.sought.push((key as u32, *head, *offer));
                self.window.restless.store(true, Ordering::Relaxed);
            }
            Err(Error::Os(_) | Error::Unreachable(_)) => {
                // The kernel does not permit a read of the sender's memory, so the sender streams.
                coming.from = None;
                self.receives[key].stage = ReceiveStage::Coming(Box::new(coming));
                self.answer(source, Kind::Stream, head.ticket, key as u64);
            }
            Err(error) => self.end_receive(key, Err(error)),
        }
    }

    /// Tries again to fetch payloads of senders that had not answered.
    pub(super) fn seek(&mut self) {
        for (key, head, offer) in std::mem::take(&mut self.sought) {
            let receiving = self.receives.get(key as usize);
            if let Some(ReceiveStage::Coming(coming)) = receiving.map(|receiving| &receiving.stage)
                && coming.ticket == head.ticket
                && coming.from.is_none()
            {
                self.fetch(key as usize, coming.received.source, &head, &offer);
            }
        }
    }

    fn import(&mut self, source: u32, key: &[u8; BUNDLE_LEN]) -> Result<RemoteRegion> {
        let patience = self.peers.patience();
        self.outgoing(source)?.import(key, patience)
    }

    /// Ends a fetch.
    pub(super) fn fetched(&mut self, key: usize, result: Result<()>) {
        let Some(receiving) = self.receives.get_mut(key) else {
            return;
        };
        let ReceiveStage::Coming(coming) = &mut receiving.stage else {
            return;
        };
        let (source, ticket) = (coming.received.source, coming.ticket);
        match result {
            Ok(()) => {
                let coming = Coming {
                    from: coming.from.take(),
                    ..**coming
                };
                self.landed(key, &coming);
            }
            Err(Error::Os(_) | Error::Unreachable(_)) => {
                coming.from = None;
                self.answer(source, Kind::Stream, ticket, key as u64);
            }
            Err(error) => self.end_receive(key, Err(error)),
        }
    }

    /// The bytes of a payload are in the buffer. The receive fails if the sender has closed the region: the copy may have read later bytes.
    fn landed(&mut self, key: usize, coming: &Coming) {
        // The copy comes before the check.
        fence(Ordering::Acquire);
        let from = coming.from.as_ref();
        let result = match from.is_none_or(RemoteRegion::is_current) {
            true => Ok(coming.received),
            false => Err(Error::StaleRegion),
        };
        self.end_receive(key, result);
        self.answer(coming.received.source, Kind::Done, coming.ticket, 0);
    }

    /// Ends a receive: the sender has abandoned the message.
    fn gone(&mut self, peer: u32, key: usize) {
        let receiving = self.receives.get(key);
        if let Some(ReceiveStage::Coming(coming)) = receiving.map(|receiving| &receiving.stage)
            && coming.streams_from(peer)
        {
            self.end_receive(key, Err(Error::StaleRegion));
        }
    }

    /// Takes a part of a streamed payload.
    fn part(&mut self, window: &Window, peer: u32, head: &Head, line: &Line) {
        let bytes = if head.len > INLINE {
            window.data(peer, line, head.len)
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
        if !coming.streams_from(peer) || coming.done != offset {
            return;
        }
        let room = receiving.capacity.saturating_sub(offset).min(bytes.len);
        // SAFETY:
        // - contract of `receive`: the buffer is valid. `room` keeps the copy within it, and `bytes` is within the data ring or the line.
        unsafe { unipgas_base::copy::copy(bytes.ptr, receiving.buffer.wrapping_add(offset), room) };
        coming.done += head.len;
        window.count_part();
        if coming.done >= coming.received.len {
            let (ticket, result) = (coming.ticket, coming.received);
            self.end_receive(head.ticket as usize, Ok(result));
            self.answer(peer, Kind::Done, ticket, 0);
        }
    }
}

fn offer(window: &Window, source: u32, line: &Line) -> Offer {
    let bytes = window.data(source, line, size_of::<Offer>());
    let mut offer: Offer = bytemuck::Zeroable::zeroed();
    // SAFETY:
    // - `window.data` stays within the data ring. The sender does not write there before it gets credit for the line. Each bit pattern is an `Offer`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.ptr, (&raw mut offer).cast(), bytes.len) };
    offer
}
