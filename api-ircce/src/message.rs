//! Blocking messages, probes, and the source and length of the last message (manual §5.2, §6, §9.3, §9.4).
//!
//! A send ends when the receiver has the message, as on the chip. Messages use the engine's mailboxes, not the MPB.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicUsize, Ordering};

use unipgas_core::biased::Biased;
use unipgas_core::message::{
    Envelope, Lane, Mailbox, Messenger, Mode, Needs, Pattern, Precedence, ReceiveTicket, Received,
};
use unipgas_core::{Deadline, Error, World};

use crate::process::Ue;
use crate::request::Pending;
use crate::status::{ErrorCode, Failure, Result};

/// Contexts of messages. Messages of different contexts never match.
pub(crate) const POINT_TO_POINT: u8 = 0;
pub(crate) const MULTICAST: u8 = 1;
pub(crate) const COLLECTIVE: u8 = 2;

/// The messages of a UE.
pub(crate) struct Messages {
    pub messenger: Messenger,
    /// Lock order: the mailbox first.
    pub pending: Biased<Pending>,
    /// Number of open requests.
    pub open: AtomicUsize,
    last_source: AtomicI32,
    last_len: AtomicI64,
}

/// Address and size of a receive buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub ptr: *mut u8,
    pub capacity: usize,
}

/// The maximum length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// `iRCCE_ANY_LENGTH`: no maximum.
    Any,
    /// Maximum in bytes.
    Bytes(usize),
}

/// The sender of a message. `None`: any UE (`iRCCE_ANY_SOURCE`).
pub type MessageSource = Option<u32>;

/// The lane of each UE in another UE's mailbox.
const LANE: Lane = Lane {
    lines: 32,
    data: 256 << 10,
};

impl Messages {
    /// Call it before the first barrier of the UEs.
    pub fn new(world: &Arc<World>) -> Result<Self> {
        Ok(Messages {
            messenger: Messenger::new(
                world,
                "rcce.mail",
                Precedence::Named,
                LANE,
                Deadline::Never,
            )?,
            pending: Biased::new(Pending::default()),
            open: AtomicUsize::new(0),
            last_source: AtomicI32::new(-1),
            last_len: AtomicI64::new(-1),
        })
    }

    /// Notes a received message. Errors: [`ErrorCode::MessageLength`] if it is longer than its buffer. The rest is lost, and is not written.
    #[inline]
    pub fn note(&self, received: &Received, capacity: usize) -> Result<()> {
        self.last_source
            .store(received.source as i32, Ordering::Relaxed);
        self.last_len.store(received.len as i64, Ordering::Relaxed);
        if received.len > capacity {
            return Err(ErrorCode::MessageLength.into());
        }
        Ok(())
    }
}

impl Ue {
    pub(crate) fn check_id(&self, id: i32) -> Result<u32> {
        u32::try_from(id)
            .ok()
            .filter(|id| *id < self.num())
            .ok_or(Failure::Code(ErrorCode::Id))
    }

    /// The sender of the last received message (`iRCCE_get_source` without a request).
    pub fn last_source(&self) -> Option<u32> {
        u32::try_from(self.messages.last_source.load(Ordering::Relaxed)).ok()
    }

    /// The length of the last received message in bytes (`iRCCE_get_length`).
    pub fn last_len(&self) -> Option<usize> {
        usize::try_from(self.messages.last_len.load(Ordering::Relaxed)).ok()
    }

    /// Sends to UE `dest`, and waits until `dest` has received the message (`iRCCE_ssend`; `RCCE_send` with a size above 0). Errors: [`ErrorCode::Id`];
    /// [`Failure::Engine`] if the receiver dies.
    pub fn send(&self, data: &[u8], dest: u32) -> Result<()> {
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.send_from((data.as_ptr(), data.len()), dest) }
    }

    /// # Safety
    /// The bytes are readable, and unchanged during the call.
    #[inline]
    pub(crate) unsafe fn send_from(&self, bytes: (*const u8, usize), dest: u32) -> Result<()> {
        if dest >= self.num() {
            return Err(ErrorCode::Id.into());
        }
        // SAFETY:
        // - contract of this call: the bytes are readable and unchanged during the call.
        unsafe { self.send_as(bytes, dest, Envelope::default(), Mode::Synchronous) }
    }

    /// # Safety
    /// As `send_from`.
    #[inline]
    pub(crate) unsafe fn send_as(
        &self,
        bytes: (*const u8, usize),
        dest: u32,
        envelope: Envelope,
        mode: Mode,
    ) -> Result<()> {
        let messages = &self.messages;
        if messages.open.load(Ordering::Relaxed) == 0 {
            // SAFETY:
            // - contract of this call: the bytes are readable and unchanged during the call.
            let sent = unsafe {
                messages
                    .messenger
                    .send(dest, envelope, bytes, mode, Deadline::Never)
            };
            return sent.map_err(|error| self.blame(dest, error));
        }
        let engine = self.world().engine();
        let ticket = {
            let mut mailbox = messages.messenger.advanced();
            // Messages to one UE stay in order, so the waiting sends to it start first.
            messages
                .pending
                .lock()
                .begin_all(engine, &mut mailbox, dest)
                .map_err(|(peer, error)| self.blame_any(peer, error))?;
            // SAFETY:
            // - contract of this call: the bytes stay valid during the call. If the wait below fails, `abandon_send` ends the send.
            unsafe { mailbox.send(engine, dest, envelope, bytes, mode, true) }
                .map_err(|error| self.blame(dest, error))?
        };
        match ticket {
            None => Ok(()),
            Some(ticket) => self
                .wait_pushing(Needs::Ranks(&[dest]), |mailbox| mailbox.test_send(ticket))
                .inspect_err(|_| messages.messenger.abandon_send(ticket))?
                .map_err(|error| self.blame(dest, error)),
        }
    }

    /// Receives from `source` (`iRCCE_srecv`; `RCCE_recv` with a size above 0). Errors: [`ErrorCode::Id`]; [`ErrorCode::MessageLength`] if the message is longer than
    /// the buffer, and the rest is lost; [`Failure::Engine`].
    pub fn receive(&self, buffer: &mut [u8], source: MessageSource) -> Result<Received> {
        let (ptr, capacity) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.receive_into(Buffer { ptr, capacity }, source, POINT_TO_POINT) }
    }

    /// # Safety
    /// The buffer is valid for writes during the call.
    #[inline]
    pub(crate) unsafe fn receive_into(
        &self,
        buffer: Buffer,
        source: MessageSource,
        context: u8,
    ) -> Result<Received> {
        if source.is_some_and(|source| source >= self.num()) {
            return Err(ErrorCode::Id.into());
        }
        let place = (buffer.ptr, buffer.capacity);
        // SAFETY:
        // - contract of this call: the buffer is valid for writes.
        let received = unsafe { self.receive_as(place, Pattern::from(source, context)) }?;
        self.messages.note(&received, buffer.capacity)?;
        Ok(received)
    }

    /// # Safety
    /// As `receive_into`.
    #[inline]
    pub(crate) unsafe fn receive_as(
        &self,
        place: (*mut u8, usize),
        pattern: Pattern,
    ) -> Result<Received> {
        let (messages, source) = (&self.messages, pattern.source);
        let received = if messages.open.load(Ordering::Relaxed) == 0 {
            // SAFETY:
            // - contract of this call: the buffer is valid for writes.
            unsafe { messages.messenger.receive(pattern, place, Deadline::Never) }
        } else {
            // SAFETY:
            // - contract of this call: the buffer is valid for writes. If the wait fails, `await_receive` abandons the receive.
            let ticket = unsafe {
                messages
                    .messenger
                    .mailbox()
                    .receive(pattern, place.0, place.1)
            };
            return self.await_receive(ticket, source);
        };
        received.map_err(|error| self.blame_any(source, error))
    }

    /// Waits until a posted receive has ended. Abandons it if the wait fails.
    fn await_receive(&self, ticket: ReceiveTicket, source: MessageSource) -> Result<Received> {
        let needs = source.as_ref().map(std::slice::from_ref);
        self.wait_pushing(needs.map_or(Needs::Anyone, Needs::Ranks), |mailbox| {
            mailbox.test_receive(ticket)
        })
        .inspect_err(|_| self.messages.messenger.abandon_receive(ticket))?
        .map_err(|error| self.blame_any(source, error))
    }

    pub(crate) fn blame_any(&self, source: MessageSource, error: Error) -> Failure {
        match source {
            Some(source) => self.blame(source, error),
            None => Failure::Engine(error),
        }
    }

    /// Receives a message from `source` if there is one (`iRCCE_srecv_test`, `RCCE_recv_test`). Errors: as for [`Ue::receive`].
    pub fn try_receive(
        &self,
        buffer: &mut [u8],
        source: MessageSource,
    ) -> Result<Option<Received>> {
        let (ptr, capacity) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.try_receive_into(Buffer { ptr, capacity }, source) }
    }

    /// # Safety
    /// The buffer is valid for writes during the call.
    pub(crate) unsafe fn try_receive_into(
        &self,
        buffer: Buffer,
        source: MessageSource,
    ) -> Result<Option<Received>> {
        let place = (buffer.ptr, buffer.capacity);
        let mut ticket = None;
        let found = self.look_for(source, |mailbox, source| {
            // The mailbox lock keeps other threads from taking the message.
            // SAFETY:
            // - contract of this call: the buffer is valid for writes. If the wait fails, `await_receive` abandons the receive.
            ticket = Some(unsafe {
                mailbox.receive(
                    Pattern::from(Some(source), POINT_TO_POINT),
                    place.0,
                    place.1,
                )
            });
        })?;
        let (Some(found), Some(ticket)) = (found, ticket) else {
            return Ok(None);
        };
        let received = self.await_receive(ticket, Some(found.source))?;
        self.messages.note(&received, buffer.capacity)?;
        Ok(Some(received))
    }

    /// Probes for a message from `source`, and does not wait (`iRCCE_iprobe`). Errors: [`ErrorCode::Id`]; [`Failure::Engine`].
    pub fn try_probe(&self, source: MessageSource) -> Result<Option<Received>> {
        self.look_for(source, |_, _| ())
    }

    /// As [`Ue::try_probe`]. If there is a message, `take` runs under the mailbox lock with its sender.
    fn look_for(
        &self,
        source: MessageSource,
        take: impl FnOnce(&mut Mailbox, u32),
    ) -> Result<Option<Received>> {
        if source.is_some_and(|source| source >= self.num()) {
            return Err(ErrorCode::Id.into());
        }
        let found = {
            let mut mailbox = self.messages.messenger.advanced();
            self.push(&mut mailbox)?;
            let found = mailbox.probe(Pattern::from(source, POINT_TO_POINT));
            if let Some(found) = &found {
                take(&mut mailbox, found.source);
            }
            found
        };
        if found.is_none() {
            self.looked()?;
        }
        Ok(found)
    }

    /// Waits for a message from `source`, and does not take it (`iRCCE_probe`). Errors: [`ErrorCode::Id`]; [`Failure::Engine`].
    pub fn probe(&self, source: MessageSource) -> Result<Received> {
        if source.is_some_and(|source| source >= self.num()) {
            return Err(ErrorCode::Id.into());
        }
        let needs = source.as_ref().map(std::slice::from_ref);
        let pattern = Pattern::from(source, POINT_TO_POINT);
        self.wait_pushing(needs.map_or(Needs::Anyone, Needs::Ranks), |mailbox| {
            mailbox.probe(pattern)
        })
    }

    /// Makes progress on open requests.
    pub(crate) fn push(&self, mailbox: &mut Mailbox) -> Result<()> {
        if self.messages.open.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.push_requests(&mut self.messages.pending.lock(), mailbox)
    }

    /// Waits until `poll` returns a value. Meanwhile makes progress on open requests, since other UEs may wait for them.
    pub(crate) fn wait_pushing<T>(
        &self,
        needs: Needs<'_>,
        mut poll: impl FnMut(&mut Mailbox) -> Option<T>,
    ) -> Result<T> {
        // Open sends start one after the other. A dead receiver blocks all later sends, so the wait must also watch the receivers.
        let mut ranks = match needs {
            Needs::Ranks(named) => {
                let pending = self.messages.pending.lock();
                let receivers = pending.receivers();
                receivers.filter(|dest| !named.contains(dest)).collect()
            }
            Needs::Anyone => Vec::new(),
        };
        let needs = match needs {
            Needs::Ranks(named) if !ranks.is_empty() => {
                ranks.extend(named);
                Needs::Ranks(&ranks)
            }
            needs => needs,
        };
        self.messages
            .messenger
            .wait(Deadline::Never, needs, |mailbox| {
                if let Err(failure) = self.push(mailbox) {
                    return Some(Err(failure));
                }
                poll(mailbox).map(Ok)
            })
            .map_err(Failure::Engine)?
    }

    /// As [`Ue::wait_pushing`], for events other than messages.
    pub(crate) fn wait_beside<T>(
        &self,
        needs: Needs<'_>,
        mut ask: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let push = |mailbox: &mut Mailbox| self.push(mailbox).err().map(Err);
        self.messages
            .messenger
            .wait_beside(Deadline::Never, needs, || ask().map(Ok), push)
            .map_err(Failure::Engine)?
    }

    /// Whether a wait for another event must make progress on messages.
    #[inline(always)]
    pub(crate) fn has_messages_under_way(&self) -> bool {
        self.messages.open.load(Ordering::Relaxed) != 0 || self.messages.messenger.is_restless()
    }

    /// Makes progress on messages and open requests.
    #[cold]
    pub(crate) fn move_messages_on(&self) -> Result<()> {
        let mut mailbox = self.messages.messenger.advanced();
        self.push(&mut mailbox)
    }
}
