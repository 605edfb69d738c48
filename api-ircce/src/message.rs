//! Blocking messages, probes, and what is known of the last message (manual §5.2, §6, §9.3, §9.4).
//!
//! Sends end when they have been received, as on the chip. They travel as the engine's messages, not through the MPB.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicUsize, Ordering};

use unipgas_core::biased::Biased;
use unipgas_core::message::{
    Envelope, Lane, Mailbox, Messenger, Mode, Needs, Pattern, Precedence, ReceiveTicket, Received,
};
use unipgas_core::{Deadline, Error, World};

use crate::process::Ue;
use crate::request::Pending;
use crate::status::{Code, Failure, Result};

/// Kinds of messages, which never meet.
pub(crate) const POINT_TO_POINT: u8 = 0;
pub(crate) const MULTICAST: u8 = 1;
pub(crate) const COLLECTIVE: u8 = 2;

/// What a UE knows of its messages.
pub(crate) struct Messages {
    pub messenger: Messenger,
    /// Locked after the mailbox.
    pub pending: Biased<Pending>,
    /// Requests that have not ended.
    pub open: AtomicUsize,
    last_source: AtomicI32,
    last_len: AtomicI64,
}

/// Where a message goes, and how many bytes are there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub ptr: *mut u8,
    pub capacity: usize,
}

/// How long a message may be: `iRCCE_ANY_LENGTH`, or so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// As long as it is.
    Any,
    /// At most so many bytes.
    Bytes(usize),
}

/// Who sends a message: `iRCCE_ANY_SOURCE`, or a UE.
pub type Source = Option<u32>;

/// Of each UE in another one's mailbox.
const LANE: Lane = Lane {
    lines: 32,
    data: 256 << 10,
};

impl Messages {
    /// Before the UEs have met.
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

    /// Notes a message that has come. Errors: [`Code::MessageLength`] if it was longer than its buffer; the rest is lost, and was not
    /// written.
    #[inline]
    pub fn note(&self, received: &Received, capacity: usize) -> Result<()> {
        self.last_source
            .store(received.source as i32, Ordering::Relaxed);
        self.last_len.store(received.len as i64, Ordering::Relaxed);
        if received.len > capacity {
            return Err(Code::MessageLength.into());
        }
        Ok(())
    }
}

impl Ue {
    pub(crate) fn check_id(&self, id: i32) -> Result<u32> {
        u32::try_from(id)
            .ok()
            .filter(|id| *id < self.num())
            .ok_or(Failure::Code(Code::Id))
    }

    /// The sender of the last message that has come (`iRCCE_get_source` without a request).
    pub fn last_source(&self) -> Option<u32> {
        u32::try_from(self.messages.last_source.load(Ordering::Relaxed)).ok()
    }

    /// Its length in bytes (`iRCCE_get_length`).
    pub fn last_len(&self) -> Option<usize> {
        usize::try_from(self.messages.last_len.load(Ordering::Relaxed)).ok()
    }

    /// Sends to UE `dest`, and waits until that has received it (`iRCCE_ssend`, and `RCCE_send` where there are any bytes). Errors:
    /// [`Code::Id`]; [`Failure::Engine`] when the receiver dies.
    pub fn send(&self, data: &[u8], dest: u32) -> Result<()> {
        // SAFETY:
        // - a slice.
        unsafe { self.send_from((data.as_ptr(), data.len()), dest) }
    }

    /// # Safety
    /// The bytes are readable, and unchanged during the call.
    #[inline]
    pub(crate) unsafe fn send_from(&self, bytes: (*const u8, usize), dest: u32) -> Result<()> {
        if dest >= self.num() {
            return Err(Code::Id.into());
        }
        // SAFETY:
        // - the caller's word.
        unsafe { self.send_as(bytes, dest, Envelope::default(), Mode::Synchronous) }
    }

    /// # Safety
    /// As for `send_from`.
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
            // - the caller's word.
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
            // Messages to one UE stay in order: those that wait for their turn go first.
            messages
                .pending
                .lock()
                .begin_all(self, &mut mailbox, dest)?;
            // SAFETY:
            // - the caller's word; a wait that fails lets go of the send.
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

    /// Receives from `source` (`iRCCE_srecv`, and `RCCE_recv` where there is room for any bytes). Errors: [`Code::Id`];
    /// [`Code::MessageLength`] if the message is longer than the buffer: the rest is lost; [`Failure::Engine`].
    pub fn receive(&self, buffer: &mut [u8], source: Source) -> Result<Received> {
        let (ptr, capacity) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY:
        // - a slice.
        unsafe { self.receive_into(Buffer { ptr, capacity }, source, POINT_TO_POINT) }
    }

    /// # Safety
    /// The buffer is valid for writes during the call.
    #[inline]
    pub(crate) unsafe fn receive_into(
        &self,
        buffer: Buffer,
        source: Source,
        context: u8,
    ) -> Result<Received> {
        if source.is_some_and(|source| source >= self.num()) {
            return Err(Code::Id.into());
        }
        let place = (buffer.ptr, buffer.capacity);
        // SAFETY:
        // - the caller's word.
        let received = unsafe { self.receive_as(place, Pattern::from(source, context)) }?;
        self.messages.note(&received, buffer.capacity)?;
        Ok(received)
    }

    /// # Safety
    /// As for `receive_into`.
    #[inline]
    pub(crate) unsafe fn receive_as(
        &self,
        place: (*mut u8, usize),
        pattern: Pattern,
    ) -> Result<Received> {
        let (messages, source) = (&self.messages, pattern.source);
        let received = if messages.open.load(Ordering::Relaxed) == 0 {
            // SAFETY:
            // - the caller's word.
            unsafe { messages.messenger.receive(pattern, place, Deadline::Never) }
        } else {
            // SAFETY:
            // - the caller's word; a wait that fails lets go of the receive.
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

    /// Waits until a receive that has begun has ended; lets go of it if that fails.
    fn await_receive(&self, ticket: ReceiveTicket, source: Source) -> Result<Received> {
        let needs = source.as_ref().map(std::slice::from_ref);
        self.wait_pushing(needs.map_or(Needs::Anyone, Needs::Ranks), |mailbox| {
            mailbox.test_receive(ticket)
        })
        .inspect_err(|_| self.messages.messenger.abandon_receive(ticket))?
        .map_err(|error| self.blame_any(source, error))
    }

    fn blame_any(&self, source: Source, error: Error) -> Failure {
        match source {
            Some(source) => self.blame(source, error),
            None => Failure::Engine(error),
        }
    }

    /// Receives if a message from `source` is there (`iRCCE_srecv_test`, `RCCE_recv_test`); else gives `None`. Errors: as for
    /// [`Ue::receive`].
    pub fn try_receive(&self, buffer: &mut [u8], source: Source) -> Result<Option<Received>> {
        let (ptr, capacity) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY:
        // - a slice.
        unsafe { self.try_receive_into(Buffer { ptr, capacity }, source) }
    }

    /// # Safety
    /// The buffer is valid for writes during the call.
    pub(crate) unsafe fn try_receive_into(
        &self,
        buffer: Buffer,
        source: Source,
    ) -> Result<Option<Received>> {
        let place = (buffer.ptr, buffer.capacity);
        let mut ticket = None;
        let found = self.look_for(source, |mailbox, source| {
            // While nobody else can take the message.
            // SAFETY:
            // - the caller's word; a wait that fails lets go of the receive.
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

    /// Looks whether a message from `source` could be received (`iRCCE_iprobe`). Errors: [`Code::Id`]; [`Failure::Engine`].
    pub fn try_probe(&self, source: Source) -> Result<Option<Received>> {
        self.look_for(source, |_, _| ())
    }

    /// Likewise; `take` gets what was found, before another thread can.
    fn look_for(
        &self,
        source: Source,
        take: impl FnOnce(&mut Mailbox, u32),
    ) -> Result<Option<Received>> {
        if source.is_some_and(|source| source >= self.num()) {
            return Err(Code::Id.into());
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

    /// Waits until a message from `source` could be received (`iRCCE_probe`). Errors: [`Code::Id`]; [`Failure::Engine`].
    pub fn probe(&self, source: Source) -> Result<Received> {
        if source.is_some_and(|source| source >= self.num()) {
            return Err(Code::Id.into());
        }
        let needs = source.as_ref().map(std::slice::from_ref);
        let pattern = Pattern::from(source, POINT_TO_POINT);
        self.wait_pushing(needs.map_or(Needs::Anyone, Needs::Ranks), |mailbox| {
            mailbox.probe(pattern)
        })
    }

    /// Moves pending requests on.
    pub(crate) fn push(&self, mailbox: &mut Mailbox) -> Result<()> {
        if self.messages.open.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.messages.pending.lock().push(self, mailbox)
    }

    /// Waits for `poll`, and moves pending requests on meanwhile, so that nobody waits for what only this UE could do.
    pub(crate) fn wait_pushing<T>(
        &self,
        needs: Needs<'_>,
        mut poll: impl FnMut(&mut Mailbox) -> Option<T>,
    ) -> Result<T> {
        // Sends take their turns: a receiver that has died keeps back what others wait for.
        let mut ranks = match needs {
            Needs::Ranks(named) => self.messages.pending.lock().receivers_beside(named),
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

    /// As [`Ue::wait_pushing`], for what is no message.
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

    /// Whether a wait for something else has to move messages on.
    #[inline(always)]
    pub(crate) fn has_messages_under_way(&self) -> bool {
        self.messages.open.load(Ordering::Relaxed) != 0 || self.messages.messenger.is_restless()
    }

    /// What a wait for something else does in between.
    #[cold]
    pub(crate) fn move_messages_on(&self) -> Result<()> {
        let mut mailbox = self.messages.messenger.advanced();
        self.push(&mut mailbox)
    }
}
