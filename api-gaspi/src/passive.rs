//! Passive communication (GASPI 17.1 §9): any process may send messages to a process.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::driver::{Driven, Driver, Waits};
use unipgas_core::message::{
    Envelope, InboxMessage, Lane, Mailbox, MessageInbox, Messenger, Mode, Needs, Precedence,
    Received, SendTicket,
};
use unipgas_core::transport::{Handler, Life};
use unipgas_core::{Deadline, Error, Local, World};

use crate::config::Config;
use crate::process::{GaspiProcess, deadline};
use crate::status::{Result, Status, from_engine};

/// Name of the mailbox of each rank.
pub(crate) const NAME: &str = "gaspi passive";
/// Most requests of a rank in flight, and bytes for payloads that do not fit into lines. A receiver fetches longer payloads from the memory
/// of the sender.
const LANE: Lane = Lane {
    lines: 32,
    data: 4096,
};
/// All messages have the same context.
const CONTEXT: u8 = 0;

/// Bytes of a segment of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The segment.
    pub segment: u8,
    /// Offset in the segment, in bytes.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

/// Identity of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    bytes: Bytes,
    rank: u16,
}

/// The passive queue of this process.
pub(crate) struct Passive {
    messages: Arc<Messages>,
    /// Number of sends that have not been received.
    posted: AtomicU32,
    /// Sends in progress after a timeout of their calls.
    unfinished: Mutex<Vec<(Request, SendTicket)>>,
}

/// The mailbox with its receives. The progress thread drives it while receipts wait for room at their senders, or while sends have timed out.
struct Messages {
    messenger: Messenger,
    /// Locked after the mailbox. The payload of a message goes to memory of the inbox: only the call that returns the message may write to a segment
    /// (§9.2.2).
    inbox: Mutex<MessageInbox>,
    /// The inbox has a complete message, and no further line arrives for it.
    put_back: AtomicBool,
    driver: Arc<Driver>,
    /// Number of sends without a waiting call. Their receivers may request the payload.
    unfinished: AtomicUsize,
    /// Whether work for the progress thread is registered.
    restless: Mutex<bool>,
}

impl Messages {
    /// Registers or unregisters work for the progress thread. Each call ends with it.
    fn rest(&self) {
        let mut known = self.restless.lock();
        let restless = self.messenger.is_restless() || self.unfinished.load(Ordering::Acquire) > 0;
        match (std::mem::replace(&mut *known, restless), restless) {
            (false, true) => self.driver.more(),
            (true, false) => self.driver.fewer(1),
            _ => {}
        }
    }
}

impl Driven for Messages {
    fn drive(&self) {
        if *self.restless.lock() {
            drop(self.messenger.advanced());
            self.rest();
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if *self.restless.get_mut() {
            self.driver.fewer(1);
        }
    }
}

/// Most time to wait for the progress thread to drop its reference. It normally drops it earlier.
const TURN: Duration = Duration::from_secs(1);

impl Drop for Passive {
    fn drop(&mut self) {
        // The thread that ends GASPI should free the memory, not the progress thread at a later time.
        let soon = Deadline::after(TURN);
        while Arc::strong_count(&self.messages) > 1 && !soon.expired() {
            std::thread::yield_now();
        }
    }
}

impl Passive {
    /// All ranks create their queue before they meet. `handler` receives the active messages to the mailbox.
    pub fn new(
        world: &Arc<World>,
        handler: Arc<dyn Handler>,
        config: &Config,
    ) -> unipgas_core::Result<Self> {
        let driver = Driver::of_this_process()?;
        let messages = Arc::new(Messages {
            messenger: Messenger::new(world, NAME, Precedence::Posted, LANE, Deadline::Now)?,
            // SAFETY:
            // - `Messages` has one mailbox, and drops it first.
            inbox: Mutex::new(unsafe {
                MessageInbox::new(CONTEXT, config.passive_transfer_size_max as usize)
            }),
            put_back: AtomicBool::new(false),
            driver: driver.clone(),
            unfinished: AtomicUsize::new(0),
            restless: Mutex::new(false),
        });
        messages.messenger.mailbox().handle_by(handler)?;
        let driven = Arc::downgrade(&messages) as Weak<dyn Driven>;
        driver.enrol(driven, Waits::Maybe);
        Ok(Passive {
            messages,
            posted: AtomicU32::new(0),
            unfinished: Mutex::default(),
        })
    }

    fn messenger(&self) -> &Messenger {
        &self.messages.messenger
    }

    /// Resumes the send of an equal earlier call, or posts a send. `None` if the message has been received. Errors: [`Status::Error`] if the queue
    /// is full; errors of the engine.
    ///
    /// # Safety
    /// The bytes are valid until the send has ended, or until [`Passive::forget`] of the segment.
    unsafe fn begin(
        &self,
        request: Request,
        local: Local,
        config: &Config,
    ) -> Result<Option<SendTicket>> {
        let mut unfinished = self.unfinished.lock();
        if let Some(at) = unfinished.iter().position(|(known, _)| *known == request) {
            self.messages.unfinished.fetch_sub(1, Ordering::AcqRel);
            return Ok(Some(unfinished.swap_remove(at).1));
        }
        drop(unfinished);
        if self.posted.fetch_add(1, Ordering::AcqRel) >= config.passive_queue_size_max {
            self.posted.fetch_sub(1, Ordering::AcqRel);
            return Err(Status::Error);
        }
        let messenger = self.messenger();
        let (to, bytes) = (
            request.rank.into(),
            (local.ptr.cast_const(), request.bytes.size as usize),
        );
        let envelope = Envelope {
            context: CONTEXT,
            ..Envelope::default()
        };
        // SAFETY:
        // - same contract as this function.
        let sent = unsafe {
            let engine = messenger.world().engine();
            messenger
                .mailbox()
                .send(engine, to, envelope, bytes, Mode::Synchronous, false)
        };
        if !matches!(sent, Ok(Some(_))) {
            self.posted.fetch_sub(1, Ordering::AcqRel);
        }
        sent.map_err(|error| from_engine(messenger.world().blame(to, error)))
    }

    fn finish(
        &self,
        request: Request,
        ticket: SendTicket,
        deadline: Deadline,
        is_there: impl Fn() -> bool,
    ) -> Result<()> {
        let needs = [request.rank.into()];
        let messenger = self.messenger();
        let gone = || (!is_there()).then_some(Err(Error::StaleRegion));
        let sent = messenger.wait_beside(deadline, Needs::Ranks(&needs), gone, |mailbox| {
            mailbox.test_send(ticket).map(Ok)
        });
        let sent = sent.and_then(|sent| sent);
        match sent {
            Err(Error::Timeout) => {
                self.unfinished.lock().push((request, ticket));
                self.messages.unfinished.fetch_add(1, Ordering::AcqRel);
                return Err(Status::Timeout);
            }
            Err(_) => messenger.abandon_send(ticket),
            Ok(_) => {}
        }
        self.posted.fetch_sub(1, Ordering::AcqRel);
        sent.and_then(|sent| sent)
            .map_err(|error| from_engine(messenger.world().blame(needs[0], error)))
    }

    /// Abandons the timed-out sends that `which` selects.
    fn end(&self, which: impl Fn(&Request) -> bool) {
        let mut unfinished = self.unfinished.lock();
        let ended = unfinished.extract_if(.., |(request, _)| which(request));
        for (_, ticket) in ended {
            self.messenger().abandon_send(ticket);
            self.messages.unfinished.fetch_sub(1, Ordering::AcqRel);
            self.posted.fetch_sub(1, Ordering::AcqRel);
        }
        drop(unfinished);
        self.messages.rest();
    }

    /// Sends receipts to the senders that have room within this time.
    pub fn tell_receipts(&self, longest: Duration) {
        let messenger = self.messenger();
        let engine = messenger.world().engine();
        let _ = engine.wait_for(Deadline::after(longest), &mut || Ok(()), || {
            drop(messenger.advanced());
            (!messenger.is_restless()).then_some(())
        });
    }

    /// Abandons the timed-out sends from a segment, before its deletion.
    pub fn forget(&self, segment: u8) {
        self.end(|request| request.bytes.segment == segment);
    }

    /// Another process has taken the rank: sends to the previous process end, and its messages are lost. False: a message of the previous process
    /// is still in progress.
    pub fn renew(&self, rank: u16) -> bool {
        self.end(|request| request.rank == rank);
        let mut mailbox = self.messenger().mailbox();
        let renewed = mailbox.renew(rank.into());
        let mut inbox = self.messages.inbox.lock();
        inbox.forget(rank.into());
        renewed
    }

    /// Waits for a message.
    fn receive(
        &self,
        deadline: Deadline,
        is_there: impl Fn() -> bool,
    ) -> unipgas_core::Result<InboxMessage> {
        let messenger = self.messenger();
        let inbox = &self.messages.inbox;
        inbox.lock().enter();
        let look = |mailbox: &mut Mailbox| inbox.lock().next(mailbox);
        let put_back = &self.messages.put_back;
        let ask = || {
            if !is_there() {
                return Some(Err(Error::StaleRegion));
            }
            if !put_back.load(Ordering::Acquire) {
                return None;
            }
            let found = look(&mut messenger.mailbox());
            put_back.store(found.is_some(), Ordering::Release);
            found
        };
        let received = messenger.wait_beside(deadline, Needs::Anyone, ask, look);
        let mut mailbox = messenger.mailbox();
        inbox.lock().leave(&mut mailbox);
        drop(mailbox);
        if !matches!(received, Ok(_) | Err(Error::Timeout)) {
            self.forget_the_dead();
        }
        received?
    }

    /// Ends the receives from dead ranks: their streams never complete.
    fn forget_the_dead(&self) {
        let messenger = self.messenger();
        let dead = |rank: &u32| messenger.world().life(*rank) == Life::Dead;
        // Its lock ends here: other calls lock the mailbox first.
        let sources = self.messages.inbox.lock().sources();
        for rank in sources.into_iter().filter(dead) {
            messenger.mailbox().bury(rank);
        }
    }

    /// Leaves the message to another call.
    fn put_back(&self, message: InboxMessage) {
        self.messages.inbox.lock().put_back(message);
        self.messages.put_back.store(true, Ordering::Release);
        self.messenger().world().engine().ring();
    }
}

impl GaspiProcess {
    /// Sends bytes of a segment to a rank, and waits until the rank has [received](GaspiProcess::passive_receive) them (§9.2.1).
    /// Errors: [`Status::ErrInvRank`], [`Status::ErrInvCommsize`], [`Status::ErrInvSeg`], [`Status::ErrInvLocOff`]; [`Status::Timeout`]: the same call
    /// resumes the send; [`Status::Error`]: the rank has died, or the queue is full of sends in progress.
    pub fn passive_send(&self, bytes: Bytes, rank: u16, timeout: u64) -> Result<()> {
        let deadline = deadline(timeout);
        self.check_rank(rank)?;
        self.check_open(rank.into()).map_err(from_engine)?;
        let local = self.passive_bytes(bytes)?;
        // Before the mailbox is locked, so that other threads can use it meanwhile.
        self.world
            .connect_within(rank.into(), deadline)
            .map_err(from_engine)?;
        self.world
            .await_welcome(rank.into(), deadline)
            .map_err(from_engine)?;
        let request = Request { bytes, rank };
        let words = self.words(bytes.segment)?;
        // SAFETY:
        // - contract of `Passive::begin`: the bytes are in a segment, and its deletion calls `Passive::forget`.
        let ticket = unsafe { self.passive.begin(request, local, &self.config) }?;
        let sent = match ticket {
            Some(ticket) => {
                let is_there = || self.has_words(bytes.segment, &words);
                self.passive.finish(request, ticket, deadline, is_there)
            }
            None => Ok(()),
        };
        self.passive.messages.rest();
        sent
    }

    /// Receives bytes from any rank into a segment. Returns the rank of the sender (§9.2.2).
    /// Errors: [`Status::ErrInvCommsize`], [`Status::ErrInvSeg`], [`Status::ErrInvLocOff`]; [`Status::Timeout`]: nothing is written, and a later call
    /// receives the message, also to another place; [`Status::Error`]: a rank has died; [`Status::ErrInvSize`]: the message is longer, and the
    /// bytes that fit are written.
    pub fn passive_receive(&self, bytes: Bytes, timeout: u64) -> Result<u16> {
        self.passive_bytes(bytes)?;
        let words = self.words(bytes.segment)?;
        let is_there = || self.has_words(bytes.segment, &words);
        let message = self.passive.receive(deadline(timeout), is_there);
        self.passive.messages.rest();
        let message = message.map_err(from_engine)?;
        let Received { source, len, .. } = message.received;
        let call = self.call();
        // Another thread may have deleted the segment during the wait.
        let local = self
            .segment(bytes.segment, &call)
            .and_then(|segment| segment.local(bytes.offset, bytes.size));
        let local = match local {
            Ok(local) => local,
            Err(status) => {
                self.passive.put_back(message);
                return Err(status);
            }
        };
        // SAFETY:
        // - `local` has `bytes.size` bytes of a segment. The segment is not freed during the call.
        unsafe {
            let fits = len.min(bytes.size as usize);
            local
                .ptr
                .copy_from_nonoverlapping(message.bytes.as_ptr(), fits);
        }
        drop(call);
        self.passive.messages.inbox.lock().reuse(message.bytes);
        if len as u64 > bytes.size {
            let (rank, size) = (self.rank(), bytes.size);
            unipgas_core::tell(&format!(
                "gaspi_passive_receive: rank {source} has sent {len} bytes, for which rank {rank} has room for {size}: the rest is lost"
            ));
            return Err(Status::ErrInvSize);
        }
        Ok(source as u16)
    }

    /// Abandons timed-out sends (§9.3.1). A message that has reached its receiver may still be received.
    pub fn passive_queue_purge(&self) {
        self.passive.end(|_| true);
    }

    fn passive_bytes(&self, bytes: Bytes) -> Result<Local> {
        let most = u64::from(self.config.passive_transfer_size_max);
        if bytes.size == 0 || bytes.size > most {
            return Err(Status::ErrInvCommsize);
        }
        let call = self.call();
        self.segment(bytes.segment, &call)?
            .local(bytes.offset, bytes.size)
    }
}
