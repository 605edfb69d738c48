//! The sending half of a mailbox: announcements, streams, answers, multicasts, and the wait for room.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fast_path::WAITED;
use super::layout::{Head, INLINE, Kind};
use super::mailbox::Mailbox;
use super::outgoing::{Bytes, Waiting};
use super::staging::Staging;
use super::state::{APART, Envelope, Freight, Letter, Mode, SendStage, SendTicket, Sending};
use unipgas_base::sync::counters;
use unipgas_base::{Error, Result, trace};
use unipgas_engine::engine::Engine;

/// Shortest payload that an attentive sender streams. Both sides copy at the same time, which is faster than one copy by the receiver.
const STREAM: usize = 32 << 10;

/// Result of a multicast.
#[derive(Debug, PartialEq, Eq)]
pub enum Multicast {
    /// The caller may use the buffer again. The sends end by progress.
    Staged,
    /// No room. The caller calls again after some progress.
    NoRoom,
    /// The payload is too long to be staged. The buffer is in use until all these sends have ended.
    Exposed(Vec<SendTicket>),
}

impl Mailbox {
    /// Sends `len` bytes at `data` to `to`. `None`: the send has ended already. `attentive`: until the end, the caller only makes progress. Errors: as
    /// [`Peers::find`](super::Peers::find); [`Error::PeerDead`], [`Error::StaleRegion`]; [`Error::InvalidArgument`] for an [`APART`] message longer than
    /// `Shape::eager`.
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
        if envelope.context & APART != 0 && len > self.shape.eager() {
            let most = self.shape.eager();
            return Err(Error::InvalidArgument(format!(
                "a payload that is kept apart has {most} bytes at most"
            )));
        }
        let waits = !self.outgoing(to)?.waiting.is_empty();
        self.endpoint.count(len);
        let ticket = self.sends.vacant_key() as u32;
        let kind = match mode {
            _ if len > self.shape.eager() => Kind::Offer,
            Mode::Synchronous => Kind::Synchronous,
            Mode::Buffered => Kind::Eager,
        };
        let head = Head::of(kind, envelope, len, ticket);
        if kind != Kind::Offer && !waits {
            let bytes = Bytes { ptr: data, len };
            // SAFETY:
            // - contract of this call: the payload is readable.
            if unsafe { self.push(to, &head, bytes) }? {
                if kind == Kind::Eager {
                    return Ok(None);
                }
                self.sends.insert(Sending::announced(to));
                return Ok(Some(SendTicket(ticket)));
            }
        }
        let mut letter = Letter::new(head, data);
        if kind == Kind::Offer {
            letter.attentive = attentive && !engine.crowded() && len >= STREAM;
            // SAFETY:
            // - contract of this call: the bytes stay valid until the send has ended, and the letter ends the exposure then.
            letter.exposed = unsafe { engine.expose(data, len) }.ok().map(Arc::new);
        }
        self.start(to, letter).map(Some)
    }

    /// Writes the line of a letter, or queues the letter until there is room.
    fn start(&mut self, to: u32, letter: Letter) -> Result<SendTicket> {
        let waits = !self.outgoing(to)?.waiting.is_empty();
        let span = trace::span();
        let sent = !waits && self.announce(to, &letter.head, &letter.freight())?;
        if let Some(span) = span {
            trace::message_left(span, to, letter.head.ticket, letter.head.len);
        }
        if !sent {
            self.wait_for_room(to, Waiting::Send(letter.head.ticket))?;
        }
        let mut sending = Sending {
            to,
            stage: SendStage::Waiting,
            letter: Some(Box::new(letter)),
            given_up: false,
        };
        if sent {
            sending.went();
        }
        Ok(SendTicket(self.sends.insert(sending) as u32))
    }

    fn wait_for_room(&mut self, to: u32, what: Waiting) -> Result<()> {
        counters::retried();
        self.outgoing(to)?.waiting.push_back(what);
        self.mark_busy(to);
        Ok(())
    }

    /// Notes that a message to this peer waits for room.
    pub(super) fn mark_busy(&mut self, to: u32) {
        if !self.busy.contains(&to) {
            self.busy.push(to);
        }
        self.window.restless.store(true, Ordering::Relaxed);
    }

    /// Writes the line of a send, if there is room.
    #[inline]
    fn announce(&mut self, to: u32, head: &Head, freight: &Freight) -> Result<bool> {
        // SAFETY:
        // - contract of `send`: the bytes are valid until the send has ended. Other bytes belong to the freight.
        unsafe { self.push(to, head, freight.bytes()) }
    }

    /// # Safety
    /// The payload is readable.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, to: u32, head: &Head, payload: Bytes) -> Result<bool> {
        let (told, context) = (self.window.credit(to), self.context(to));
        let Some(outgoing) = &mut self.outgoing[to as usize] else {
            return Err(Error::PeerDead);
        };
        // SAFETY:
        // - contract of this call: the payload is readable.
        unsafe { outgoing.push(&self.endpoint, told, head, payload, context) }
    }

    /// Sends the same bytes to any number of peers. Errors: as [`Mailbox::send`], for the first peer that cannot be reached. Peers before it get the message,
    /// unless it is too long to be staged.
    ///
    /// # Safety
    /// As [`Mailbox::send`], if the result is [`Multicast::Exposed`].
    pub unsafe fn send_to_all(
        &mut self,
        engine: &Engine,
        to: impl Iterator<Item = u32> + Clone,
        envelope: Envelope,
        payload: (*const u8, usize),
    ) -> Result<Multicast> {
        for peer in to.clone() {
            self.outgoing(peer)?;
        }
        let readers = to.clone().count();
        if readers == 0 {
            return Ok(Multicast::Staged);
        }
        // SAFETY:
        // - contract of this call: the payload is readable, and stays valid if the result is `Exposed`, as it is for a letter that is not detached.
        let letter = unsafe { self.multicast_letter(engine, envelope, payload, readers) }?;
        let Some(letter) = letter else {
            return Ok(Multicast::NoRoom);
        };
        let mut tickets = Vec::new();
        for peer in to {
            let mut copy = letter.clone();
            copy.head.ticket = self.sends.vacant_key() as u32;
            match self.start(peer, copy) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => {
                    self.unstage(letter.staged);
                    if !letter.detached {
                        tickets.into_iter().for_each(|it| self.let_go_of_send(it));
                    }
                    return Err(error);
                }
            }
        }
        if !letter.detached {
            return Ok(Multicast::Exposed(tickets));
        }
        self.reap();
        Ok(Multicast::Staged)
    }

    /// The letter to each reader of a multicast, without a ticket. `None`: no room to stage the payload.
    ///
    /// # Safety
    /// The payload is readable. If the letter is not detached: until the sends have ended.
    unsafe fn multicast_letter(
        &mut self,
        engine: &Engine,
        envelope: Envelope,
        (data, len): (*const u8, usize),
        readers: usize,
    ) -> Result<Option<Letter>> {
        let letter = |kind| Letter::new(Head::of(kind, envelope, len, 0), data);
        if len <= INLINE {
            let mut letter = letter(Kind::Eager);
            letter.detached = true;
            // SAFETY:
            // - contract of this call: the bytes are readable. There are at most `INLINE` of them.
            unsafe { unipgas_base::copy::copy(data, letter.short.as_mut_ptr(), len) };
            return Ok(Some(letter));
        }
        if !Staging::holds(len) {
            // SAFETY:
            // - contract of this call: the bytes stay valid until the sends have ended, and the last letter ends the exposure.
            let exposed = unsafe { engine.expose(data, len) }?;
            return Ok(Some(Letter {
                exposed: Some(Arc::new(exposed)),
                ..letter(Kind::Offer)
            }));
        }
        let staging = match &mut self.staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(engine)?),
        };
        // SAFETY:
        // - contract of this call: the bytes are readable.
        let staged = unsafe { staging.stage(data, len, readers) };
        Ok(staged.map(|(offset, number)| Letter {
            exposed: Some(staging.region()),
            offset: offset as u64,
            detached: true,
            staged: Some(number),
            ..letter(Kind::Offer)
        }))
    }

    /// Peers that do not have a multicast yet.
    pub fn readers(&self) -> impl Iterator<Item = u32> {
        let under_way = |sending: &&Sending| {
            sending.is_detached() && !matches!(sending.stage, SendStage::Ended(_))
        };
        let sends = self.sends.iter().map(|(_, sending)| sending);
        sends.filter(under_way).map(|sending| sending.to)
    }

    fn unstage(&mut self, entry: Option<u64>) {
        if let (Some(entry), Some(staging)) = (entry, &mut self.staging) {
            staging.free(entry);
        }
    }

    /// Number of sends that have not ended, or have an end that was not taken.
    #[inline(always)]
    pub fn sends(&self) -> usize {
        self.sends.len()
    }

    /// The result of a send that has ended. After `Some` the ticket is invalid. Errors: [`Error::PeerDead`], and each other reason of the failure.
    pub fn test_send(&mut self, ticket: SendTicket) -> Option<Result<()>> {
        match &self.sends.get(ticket.0 as usize)?.stage {
            SendStage::Ended(_) => match self.sends.remove(ticket.0 as usize).stage {
                SendStage::Ended(result) => Some(result),
                _ => unreachable!("just seen"),
            },
            _ => None,
        }
    }

    /// Cancels a send that has not been announced to the peer. True: it is cancelled, and the ticket is invalid.
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

    /// [`settle`](Mailbox::settle) waits for this send, too, while it waits for room.
    pub(crate) fn settle_send(&mut self, ticket: SendTicket) {
        let sending = self.sends.get_mut(ticket.0 as usize);
        if let Some(letter) = sending.and_then(|sending| sending.letter.as_mut()) {
            letter.quiet = true;
        }
    }

    /// A send that still waits for room reads its payload from `data` from now on. `quiet`: its caller does not wait for its end.
    ///
    /// # Safety
    /// As [`Mailbox::send`], with the same number of bytes.
    pub unsafe fn move_payload(&mut self, ticket: SendTicket, data: *const u8, quiet: bool) {
        if let Some(sending) = self.sends.get_mut(ticket.0 as usize)
            && sending.stage == SendStage::Waiting
            && let Some(letter) = &mut sending.letter
        {
            letter.data = data;
            letter.quiet = quiet;
        }
    }

    /// Whether an answer, or a send without a waiting caller, waits for room.
    pub fn owes(&self) -> bool {
        let busy = self
            .busy
            .iter()
            .filter_map(|to| self.outgoing[*to as usize].as_ref());
        busy.flat_map(|outgoing| &outgoing.waiting)
            .any(|waiting| match waiting {
                Waiting::Answer(_) => true,
                Waiting::Send(ticket) => {
                    let sending = self.sends.get(*ticket as usize);
                    let letter = sending.and_then(|sending| sending.letter.as_ref());
                    letter.is_some_and(|letter| letter.quiet || letter.detached)
                }
            })
    }

    /// Peers to which something waits for room.
    pub fn busy(&self) -> &[u32] {
        &self.busy
    }

    /// The peer has received a message.
    pub(super) fn done(&mut self, peer: u32, ticket: u32) {
        if ticket & WAITED != 0 {
            self.receipt(peer, ticket);
            return;
        }
        let Some(sending) = self.sends.get_mut(ticket as usize) else {
            return;
        };
        if sending.to != peer {
            return;
        }
        let given_up = sending.given_up;
        sending.end(Ok(()));
        if given_up || sending.is_detached() {
            self.take_away(ticket as usize);
        }
    }

    /// The peer asks for the payload.
    pub(super) fn stream(&mut self, peer: u32, head: &Head) {
        let Some(sending) = self.sends.get_mut(head.ticket as usize) else {
            return;
        };
        if sending.to == peer && sending.given_up {
            self.take_away(head.ticket as usize);
            self.answer(peer, Kind::Gone, head.extra as u32, 0);
        } else if sending.to == peer && sending.stage == SendStage::Announced {
            sending.stage = SendStage::Streaming {
                done: 0,
                receive: head.extra as u32,
            };
            if self.pump(head.ticket) {
                self.streams.push(head.ticket);
                self.window.restless.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Sends parts of a streamed payload while there is room. False: the stream is over.
    fn pump(&mut self, ticket: u32) -> bool {
        let Some(sending) = self.sends.get(ticket as usize) else {
            return false;
        };
        let (Some(letter), SendStage::Streaming { done, receive }) =
            (&sending.letter, &sending.stage)
        else {
            return false;
        };
        let (to, len, data) = (sending.to, letter.head.len, letter.data);
        let (mut done, receive) = (*done, *receive);
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
            // - contract of `send`: the payload is valid until the send has ended.
            match unsafe { self.push(to, &head, bytes) } {
                Ok(true) => {
                    done += part;
                    self.window.count_part();
                }
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

    /// Answers a message.
    #[inline]
    pub(super) fn answer(&mut self, to: u32, kind: Kind, ticket: u32, extra: u64) {
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
                // A peer that has gone needs no answer.
                Ok(true) | Err(_) => return,
            }
        }
        let _ = self.wait_for_room(to, Waiting::Answer(head));
    }

    /// Sends the messages that wait, while there is room.
    #[cold]
    pub(super) fn push_on(&mut self) {
        let mut nth = 0;
        while nth < self.streams.len() {
            if self.pump(self.streams[nth]) {
                nth += 1;
            } else {
                self.streams.swap_remove(nth);
            }
        }
        let mut lost = Vec::new();
        let mut nth = 0;
        while nth < self.busy.len() {
            let to = self.busy[nth];
            match self.push_waiting(to) {
                Ok(true) => nth += 1,
                Ok(false) => _ = self.busy.swap_remove(nth),
                Err(why) => {
                    self.busy.swap_remove(nth);
                    lost.push((to, why));
                }
            }
        }
        for (peer, why) in lost {
            self.lose(peer, &why);
        }
        if !self.sought.is_empty() {
            self.seek();
        }
        self.reap();
        let restless = !(self.busy.is_empty() && self.streams.is_empty() && self.sought.is_empty());
        self.window.restless.store(restless, Ordering::Relaxed);
    }

    /// Sends the messages to one peer that wait. False: none is left. Errors: the peer cannot be found.
    fn push_waiting(&mut self, to: u32) -> Result<bool> {
        let context = self.context(to);
        if self.outgoing[to as usize].is_some() && !self.outgoing(to)?.is_found() {
            return Ok(true);
        }
        if let Some(outgoing) = &mut self.outgoing[to as usize]
            && let Some(taken) = outgoing.take_owed()
        {
            let _ = outgoing.give_credit(&self.endpoint, taken, context);
        }
        loop {
            let Some(outgoing) = &mut self.outgoing[to as usize] else {
                return Ok(false);
            };
            let Some(first) = outgoing.waiting.pop_front() else {
                return Ok(false);
            };
            let sent = match &first {
                Waiting::Answer(head) => {
                    // SAFETY:
                    // - no payload.
                    unsafe { self.push(to, head, Bytes::NONE) }.unwrap_or(true)
                }
                Waiting::Send(ticket) => {
                    let ticket = *ticket as usize;
                    let sending = self.sends.get(ticket);
                    let Some(letter) = sending.and_then(|sending| sending.letter.as_ref()) else {
                        continue;
                    };
                    let (head, freight) = (letter.head, letter.freight());
                    let result = self.announce(to, &head, &freight);
                    let sending = &mut self.sends[ticket];
                    match result {
                        Ok(true) => sending.went(),
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
                return Ok(true);
            }
        }
    }

    /// Removes detached sends that have ended: they have no caller.
    pub(super) fn reap(&mut self) {
        let ended = |(key, sending): (usize, &Sending)| {
            let over = matches!(sending.stage, SendStage::Ended(_));
            (over && sending.is_detached()).then_some(key)
        };
        while let Some(key) = self.sends.iter().find_map(ended) {
            self.take_away(key);
        }
    }

    pub(super) fn take_away(&mut self, key: usize) {
        let letter = self.sends.remove(key).letter;
        self.unstage(letter.and_then(|letter| letter.staged));
    }
}
