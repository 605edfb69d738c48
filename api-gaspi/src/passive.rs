//! Passive communication (GASPI 17.1 §9): messages that any process may send, and one receives.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::driver::{Driven, Driver, Waits};
use unipgas_core::message::{
    Envelope, Lane, Messenger, Mode, Needs, Pattern, Precedence, ReceiveTicket, Received,
    SendTicket,
};
use unipgas_core::transport::Handler;
use unipgas_core::{Deadline, Error, Local, World};

use crate::config::Config;
use crate::process::{Process, deadline};
use crate::status::{Result, Status, from_engine};

/// Under which the ranks find each other's mailboxes.
pub(crate) const NAME: &str = "gaspi passive";
/// Of each rank: the requests that it may have on their way, and the bytes of theirs that do not fit into lines. Longer ones are fetched from where they are.
const LANE: Lane = Lane {
    lines: 32,
    data: 4096,
};
/// All messages are of one kind.
const CONTEXT: u8 = 0;

/// Bytes of a segment of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The segment.
    pub segment: u8,
    /// Bytes from its beginning.
    pub offset: u64,
    /// How many.
    pub size: u64,
}

/// What a send is told apart by from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    bytes: Bytes,
    rank: u16,
}

/// This process's passive queue.
pub(crate) struct Passive {
    messages: Arc<Messages>,
    /// Requests that have not been received.
    posted: AtomicU32,
    /// Of those the ones whose calls have run into their time-outs.
    unfinished: Mutex<Vec<(Request, SendTicket)>>,
    /// Receives whose messages have come, but not all of their bytes when the calls have run into their time-outs.
    halfway: Mutex<Vec<(Bytes, ReceiveTicket)>>,
}

/// Moved on by the progress thread while something waits that nobody waits for: receipts, for which the sender has no room.
struct Messages {
    messenger: Messenger,
    driver: Arc<Driver>,
    /// Sends that no call waits for: their receivers may ask for the bytes.
    unfinished: AtomicUsize,
    /// Whether the progress thread knows that it has something to do.
    restless: Mutex<bool>,
}

impl Messages {
    /// After each call.
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

/// The progress thread lets go of what it drives sooner.
const TURN: Duration = Duration::from_secs(1);

impl Drop for Passive {
    fn drop(&mut self) {
        // Who ends GASPI gives back what it has, and not the progress thread some time later.
        let soon = Deadline::after(TURN);
        while Arc::strong_count(&self.messages) > 1 && !soon.expired() {
            std::thread::yield_now();
        }
    }
}

impl Passive {
    /// All ranks make theirs before they meet. `handler` takes the active messages that are sent there.
    pub fn new(world: &Arc<World>, handler: Arc<dyn Handler>) -> unipgas_core::Result<Self> {
        let driver = Driver::of_this_process()?;
        let messages = Arc::new(Messages {
            messenger: Messenger::new(world, NAME, Precedence::Posted, LANE, Deadline::Now)?,
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
            halfway: Mutex::default(),
        })
    }

    fn messenger(&self) -> &Messenger {
        &self.messages.messenger
    }

    /// The request goes on that an earlier call has begun, or begins. `None`: it has been received already. Errors: there is no room in the queue, or those of the engine.
    ///
    /// # Safety
    /// The bytes are valid until the request has ended, or the segment is [forgotten](Passive::forget).
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
        // - the caller's word.
        let sent = unsafe {
            let engine = messenger.world().engine();
            messenger
                .mailbox()
                .send(engine, to, envelope, bytes, Mode::Synchronous, false)
        };
        if !matches!(sent, Ok(Some(_))) {
            self.posted.fetch_sub(1, Ordering::AcqRel);
        }
        sent.map_err(from_engine)
    }

    fn finish(&self, request: Request, ticket: SendTicket, deadline: Deadline) -> Result<()> {
        let needs = [request.rank.into()];
        let messenger = self.messenger();
        let sent = messenger.wait(deadline, Needs::Ranks(&needs), |mailbox| {
            mailbox.test_send(ticket)
        });
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
        sent.and_then(|sent| sent).map_err(from_engine)
    }

    /// Requests that no call waits for end where they are, those that `which` says.
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

    /// What has been received is told to those who have sent it, as far as they take it in this time.
    pub fn tell_receipts(&self, longest: Duration) {
        let messenger = self.messenger();
        let engine = messenger.world().engine();
        let _ = engine.wait_for(Deadline::after(longest), &mut || Ok(()), || {
            drop(messenger.advanced());
            (!messenger.is_restless()).then_some(())
        });
    }

    /// The segment goes. Gives the receives that are still being written there.
    pub fn forget(&self, segment: u8) -> Vec<ReceiveTicket> {
        self.end(|request| request.bytes.segment == segment);
        let mut halfway = self.halfway.lock();
        let there = halfway.extract_if(.., |(bytes, _)| bytes.segment == segment);
        let there: Vec<_> = there.map(|(_, ticket)| ticket).collect();
        drop(halfway);
        let there = there.into_iter();
        there.filter(|ticket| !self.is_over(*ticket)).collect()
    }

    /// The segment does not go yet.
    pub fn keep(&self, segment: u8, receives: Vec<ReceiveTicket>) {
        let (offset, size) = (0, 0);
        let there = Bytes {
            segment,
            offset,
            size,
        };
        let receives = receives.into_iter().map(|ticket| (there, ticket));
        self.halfway.lock().extend(receives);
    }

    /// Whether nothing is written by a receive any more that nobody goes on with; then the ticket means nothing.
    pub fn is_over(&self, ticket: ReceiveTicket) -> bool {
        self.messenger().try_abandon_receive(ticket)
    }

    /// Another process has become the rank: requests to the one before end, and its messages are lost. False: one is still being received.
    pub fn renew(&self, rank: u16) -> bool {
        self.end(|request| request.rank == rank);
        self.messenger().mailbox().renew(rank.into())
    }

    /// The receive goes on that an earlier call has begun for these bytes, or begins.
    ///
    /// # Safety
    /// The bytes are at `buffer`, valid for writes until the receive has ended, or the segment is [forgotten](Passive::forget) and
    /// [nothing is written](Passive::is_over) any more.
    unsafe fn receive(
        &self,
        bytes: Bytes,
        buffer: *mut u8,
        deadline: Deadline,
    ) -> unipgas_core::Result<Received> {
        let messenger = self.messenger();
        let pattern = Pattern::from(None, CONTEXT);
        let capacity = bytes.size as usize;
        let mut begun = {
            let mut halfway = self.halfway.lock();
            let known = halfway.iter().position(|(known, _)| *known == bytes);
            known.map(|at| halfway.swap_remove(at).1)
        };
        loop {
            let ticket = begun.take().unwrap_or_else(|| {
                // SAFETY:
                // - the caller's word.
                unsafe { messenger.mailbox().receive(pattern, buffer, capacity) }
            });
            let wait = |needs: Needs<'_>| {
                messenger.wait(deadline, needs, |mailbox| mailbox.test_receive(ticket))
            };
            let received = match wait(Needs::Anyone) {
                Ok(received) => received,
                Err(error) if messenger.mailbox().cancel_receive(ticket) => Err(error),
                // What has been taken for it is not lost, as long as its sender lives.
                Err(_) => {
                    let source = messenger.mailbox().comes_from(ticket);
                    match wait(Needs::Ranks(source.as_slice())) {
                        Err(Error::Timeout) => {
                            self.halfway.lock().push((bytes, ticket));
                            return Err(Error::Timeout);
                        }
                        received => received.unwrap_or_else(|error| {
                            messenger.abandon_receive(ticket);
                            Err(error)
                        }),
                    }
                }
            };
            match received {
                // Its sender has given it up.
                Err(Error::StaleRegion | Error::AccessDenied) => {}
                received => return received,
            }
        }
    }
}

impl Process {
    /// Sends bytes of a segment to a rank, which [receives](Process::passive_receive) them, and waits for that (§9.2.1). Errors: [`Status::ErrInvRank`],
    /// [`Status::ErrInvCommsize`], [`Status::ErrInvSeg`], [`Status::ErrInvLocOff`]; [`Status::Timeout`]: the same call goes on with the request; [`Status::Error`]: the rank has
    /// died, or so many requests have run into their time-outs that the queue is full.
    pub fn passive_send(&self, bytes: Bytes, rank: u16, timeout: u64) -> Result<()> {
        let deadline = deadline(timeout);
        self.check_rank(rank)?;
        self.check_open(rank.into()).map_err(from_engine)?;
        let local = self.passive_bytes(bytes)?;
        // Before the mailbox is locked, where nobody else would get on.
        self.world
            .connect_within(rank.into(), deadline)
            .map_err(from_engine)?;
        self.world
            .await_welcome(rank.into(), deadline)
            .map_err(from_engine)?;
        let request = Request { bytes, rank };
        // SAFETY:
        // - bytes of a segment, whose deletion forgets the request.
        let ticket = unsafe { self.passive.begin(request, local, &self.config) }?;
        let sent = match ticket {
            Some(ticket) => self.passive.finish(request, ticket, deadline),
            None => Ok(()),
        };
        self.passive.messages.rest();
        sent
    }

    /// Receives bytes into a segment from whoever sends them; gives the sender's rank (§9.2.2). Errors: [`Status::ErrInvCommsize`], [`Status::ErrInvSeg`],
    /// [`Status::ErrInvLocOff`]; [`Status::Timeout`]: the same call goes on, where a message is on its way already; [`Status::Error`]: a rank has died; [`Status::ErrInvSize`]: more bytes have been sent, of which those that fit are here.
    pub fn passive_receive(&self, bytes: Bytes, timeout: u64) -> Result<u16> {
        let deadline = deadline(timeout);
        let local = self.passive_bytes(bytes)?;
        // SAFETY:
        // - bytes of a segment, whose deletion forgets the receive.
        let received = unsafe { self.passive.receive(bytes, local.ptr, deadline) };
        self.passive.messages.rest();
        let Received { source, len, .. } = received.map_err(from_engine)?;
        if len as u64 > bytes.size {
            let (rank, size) = (self.rank(), bytes.size);
            unipgas_core::tell(&format!(
                "gaspi_passive_receive: rank {source} has sent {len} bytes, for which rank {rank} has room for {size}: the rest is lost"
            ));
            return Err(Status::ErrInvSize);
        }
        Ok(source as u16)
    }

    /// Ends the requests whose calls have run into their time-outs (§9.3.1): what has reached its receiver may be received still.
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
