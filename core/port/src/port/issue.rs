//! A port of this process: registers memory, posts commands, and takes completions and notices.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::carry::{Failed, Moving, local_notice};
use super::command::{Command, CommandFlags, CommandKind};
use super::completion::{CompletionCounters, CompletionRing, DEPTH, Delayed, MOST_DELAYED};
use super::directory::PortDirectory;
use super::flight::Flight;
use super::guard::{self, Guarded};
use super::keys::{KeyTable, RESERVED_KEYS, ShortKey};
use super::neighbour::PortNetwork;
use super::notice::{Notices, PortNotice};
use super::remote::{PLAIN_LEN, RemotePort};
use super::trigger::{self, HELD, PLAIN, SESSION, SESSION_LEN, TRIGGERED, Trigger};
use super::waiting_commands::{Arrivals, WaitingCommands};
use unipgas_base::driver::{Driven, Driver, Waits};
use unipgas_base::issue_totals::{IssueTotals, Issues, Listing};
use unipgas_base::liveness_timer::LivenessTimer;
use unipgas_base::sync::counters;
use unipgas_base::{Deadline, Error, Result, Rights};
use unipgas_engine::Region;
use unipgas_engine::batch::Several;
use unipgas_engine::endpoint::Endpoint;
use unipgas_engine::inbox::{InboxLayout, InboxReader, initialise_zeroed};

/// Records in the small part of an inbox. Its cache lines stay in the caches of its users.
const SMALL_INBOX: usize = 1024;

/// Limit of the wait for peers that do not answer, when a port closes.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Options of a port.
#[derive(Debug, Clone, Copy)]
pub struct PortOptions {
    /// The port's name in notices to peers.
    pub id: u64,
    /// Index among the ports of this process.
    pub index: u16,
    /// Its commands wait for arrivals.
    pub session: bool,
    /// Several threads use it at the same time.
    pub shared: bool,
    /// Capacity of its inbox in notices: a power of two.
    pub inbox: usize,
}

/// A port of this process.
pub struct Port {
    listing: OnceLock<Listing>,
    pub(super) network: Arc<PortNetwork>,
    directory: Arc<PortDirectory>,
    pub(super) options: PortOptions,
    pub(super) place: u16,
    pub(super) endpoint: Endpoint,
    /// Commands may be in flight after their calls.
    pub(super) driven: bool,
    /// The process that delivers an arrival starts its commands.
    pub(super) triggered: bool,
    pub(super) keys: KeyTable,
    pub(super) table: Region,
    /// Memory of the readers in `queues`.
    pub(super) inbox: Region,
    spill: Region,
    queues: Guarded<Queues>,
    pub(super) counts: CompletionCounters,
    /// Timer of the liveness checks on the fast path.
    pub(super) liveness: LivenessTimer,
    /// Commands that are delayed, in flight, held or triggered.
    pub(super) waiting: AtomicUsize,
    /// Continues commands in flight, if there can be any.
    pub(super) driver: Option<Arc<Driver>>,
    /// Set for a session port that is not triggered.
    pub(super) arrivals: Option<Arc<Arrivals>>,
}

/// The part of a port that one thread at a time may use.
pub struct Queues {
    pub(super) completions: CompletionRing,
    pub(super) notices: Notices,
    /// Readers of the small and the large part of the inbox.
    pub(super) readers: [InboxReader; 2],
    /// Limit of queued notices. Further notices are lost.
    most_notices: usize,
    pub(super) delayed: Delayed,
    /// No command is in flight, and no other process carries commands out. So a command that takes effect in the call does not wait.
    pub(super) fast: bool,
    /// Commands in flight, in posting order, on ports that can have them.
    pub(super) flights: VecDeque<Flight>,
    /// Number of the first flight.
    pub(super) first_flight: u64,
    /// Number of flights that send their notices after their data has moved.
    pub(super) untold: usize,
    pub(super) session: Option<Session>,
    /// Commands of a session port that starts them itself.
    pub(super) held: WaitingCommands,
    /// Empty polls since the last yield of the core, and their limit.
    pub(super) idle: u32,
    pub(super) patience: u32,
    /// A poll has found something since the last yield.
    pub(super) came: bool,
    /// Notices taken since the last poll of the networks.
    pub(super) taken: u32,
    pub(super) offers: u32,
}

/// The sender's side of triggered commands.
pub(super) struct Session {
    pub(super) contexts: Box<[u64]>,
    /// Own counters: peers can write to the counters in the port's memory.
    pub(super) posted: u64,
    pub(super) taken: u64,
}

impl Port {
    /// Opens a port and lists it. Errors: [`Error::Exhausted`]; [`Error::InvalidArgument`] if the inbox is not a power of two.
    pub fn open(
        network: &Arc<PortNetwork>,
        directory: &Arc<PortDirectory>,
        options: PortOptions,
    ) -> Result<Arc<Port>> {
        let engine = network.engine();
        InboxLayout::new(options.inbox)?;
        let small = (options.inbox / 2).min(SMALL_INBOX);
        // A power of two, up to twice the rest of the capacity.
        let large = (options.inbox - small).next_power_of_two();
        let place = network.own_place()?;
        let rights = Rights::FULL | Rights::RECORDS;
        let part = |capacity: usize| engine.allocate(InboxLayout::new(capacity)?.size(), rights);
        let (inbox, spill) = (part(small)?, part(large)?);
        let triggered = options.session && engine.is_mapped();
        let driven = engine.is_driven() || !engine.is_mapped();
        let driver = match driven {
            true => Some(Driver::of_this_process()?),
            false => None,
        };
        let holds = options.session && !triggered;
        let arrivals = driver.as_ref().filter(|_| holds).map(Arrivals::new);
        let table_len = if triggered { SESSION_LEN } else { PLAIN_LEN };
        let table = engine.allocate(table_len, Rights::FULL)?;
        // SAFETY:
        // - fresh, zeroed, page-aligned memory of the layouts' sizes. Its keys are not published yet. It lives as long as `self`, and these are its only
        //   readers.
        let readers = unsafe {
            initialise_zeroed(inbox.base(), small)?;
            initialise_zeroed(spill.base(), large)?;
            [
                InboxReader::attach(inbox.base(), inbox.len())?,
                InboxReader::attach(spill.base(), spill.len())?,
            ]
        };
        let port = Arc::new(Port {
            listing: OnceLock::new(),
            network: network.clone(),
            directory: directory.clone(),
            options,
            place,
            endpoint: engine.endpoint(u32::MAX)?,
            driven,
            triggered,
            keys: KeyTable::new(options.index),
            queues: Guarded::new(
                Queues {
                    completions: CompletionRing::new(),
                    notices: Notices::default(),
                    readers,
                    most_notices: options.inbox,
                    delayed: VecDeque::new(),
                    fast: !options.session,
                    flights: VecDeque::new(),
                    first_flight: 0,
                    untold: 0,
                    session: triggered.then(|| Session {
                        contexts: vec![0; TRIGGERED].into(),
                        posted: 0,
                        taken: 0,
                    }),
                    held: WaitingCommands::default(),
                    idle: 0,
                    patience: network.engine().patience(),
                    came: false,
                    taken: 0,
                    offers: 0,
                },
                options.shared || driven,
                network.reclaimer().turns(),
            ),
            table,
            inbox,
            spill,
            counts: CompletionCounters::default(),
            liveness: LivenessTimer::default(),
            waiting: AtomicUsize::new(0),
            driver,
            arrivals,
        });
        // SAFETY:
        // - the port does not move: it stays in its Arc. It owns the listing.
        let listing = unsafe { Listing::new(&*port, &format!("VCQ {}", options.index)) };
        port.listing.get_or_init(|| listing);
        let header = port.header();
        header.id.store(options.id, Ordering::Relaxed);
        header.set_spill(&port.spill.key());
        let kind = match (options.session, triggered) {
            (false, _) => PLAIN,
            (true, true) => SESSION,
            (true, false) => HELD,
        };
        if let Some(arrivals) = &port.arrivals {
            port.table.handle_by(arrivals.clone())?;
        }
        header.kind.store(kind, Ordering::Release);
        directory.list(options.index.into(), &port.table.key(), &port.inbox.key())?;
        if let Some(driver) = &port.driver {
            driver.enrol(Arc::downgrade(&port) as Weak<dyn Driven>, Waits::Maybe);
        }
        Ok(port)
    }

    /// Closes the port, after the driver has dropped its reference. A later drop would unlist a new port with the same index.
    pub fn close(self: Arc<Self>) {
        let mut port = self;
        while let Err(shared) = Arc::try_unwrap(port) {
            port = shared;
            std::thread::yield_now();
        }
    }

    /// Unlists the port and releases its registrations. Its other memory stays until the process ends: unfinished calls may use it.
    #[cold]
    pub fn leave_behind(self: Arc<Self>) {
        self.keys.release_all(&self.table);
        let _ = self.directory.unlist(self.options.index.into());
        std::mem::forget(self);
    }

    pub(super) fn header(&self) -> &trigger::Header {
        // SAFETY:
        // - the table region is page-aligned and larger than a header. A header consists of atomics.
        unsafe { &*self.table.base().cast() }
    }

    pub(super) fn trigger(&self) -> Trigger<'_> {
        // SAFETY:
        // - the header is at the beginning of the table region. Callers have checked `triggered` or `session`, so the region has the length of a session port's
        //   region.
        unsafe { Trigger::own(self.header()) }
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &PortOptions {
        &self.options
    }

    /// Registers memory. The same range with the same rights gets the same key; each call counts. Errors: [`Error::Exhausted`], and as
    /// [`Engine::register`](unipgas_engine::Engine::register).
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the key is released as often as it was returned, or the port is dropped.
    pub unsafe fn register(&self, base: *mut u8, len: usize, rights: Rights) -> Result<ShortKey> {
        // SAFETY:
        // - contract of this call: the bytes stay valid until the key is released.
        unsafe {
            self.keys
                .register(self.network.engine(), &self.table, base, len, rights)
        }
    }

    /// Registers memory under [`ShortKey::reserved`]`(self.options().index, index)`. Errors: [`Error::Taken`], and as [`Port::register`].
    ///
    /// # Safety
    /// As [`Port::register`].
    pub unsafe fn register_reserved(
        &self,
        base: *mut u8,
        len: usize,
        index: u32,
        rights: Rights,
    ) -> Result<ShortKey> {
        if index >= RESERVED_KEYS {
            return Err(Error::InvalidArgument(format!(
                "reserved keys go from 0 to {}",
                RESERVED_KEYS - 1
            )));
        }
        let engine = self.network.engine();
        // SAFETY:
        // - contract of this call: the bytes stay valid until the key is released.
        unsafe {
            self.keys
                .register_reserved(engine, &self.table, (base, len), index, rights)
        }
    }

    /// Releases one registration. Errors: [`Error::StaleRegion`] if the key is not registered.
    pub fn release(&self, key: ShortKey) -> Result<()> {
        self.keys.release(&self.table, key)
    }

    /// The queues, for this thread alone.
    ///
    /// # Safety
    /// This thread is in a [call](unipgas_base::calls::Call), or no other thread closes ports. Unless the port was opened for several threads, no other thread holds
    /// the queues at the same time.
    #[inline(always)]
    pub unsafe fn hold(&self) -> guard::GuardedAccess<'_, Queues> {
        // SAFETY:
        // - contract of this call: the queues are shared, or no other thread holds them.
        unsafe { self.queues.hold() }
    }

    /// Another port, for callers that keep it longer than the call that holds the queues. `None`: there is no such port.
    pub fn share(&self, _queues: &Queues, place: u16, index: u16) -> Option<Arc<RemotePort>> {
        // SAFETY:
        // - the caller holds the queues.
        unsafe { self.network.share(place, index) }
    }

    /// Number of posted commands with unread completions. Any thread may call at any time.
    pub fn unread(&self) -> usize {
        self.counts.unread() + self.waiting.load(Ordering::Relaxed)
    }

    /// Posts a command. Errors: [`Error::QueueFull`]: take completions first. [`Error::InboxFull`]: own notices were not taken, and a command's notice is lost.
    #[inline(never)]
    pub fn post(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        self.network.look();
        if self.options.session {
            return self.post_all(queues, std::slice::from_ref(command), context);
        }
        if !queues.has_room(&self.counts, 1) {
            return Err(full());
        }
        if !queues.delayed.is_empty() {
            return self.post_behind_delayed(queues, command, context);
        }
        let result = self.issue(queues, command, context);
        self.count(queues);
        result
    }

    #[cold]
    fn post_behind_delayed(
        &self,
        queues: &mut Queues,
        command: &Command,
        context: u64,
    ) -> Result<()> {
        let mut several = Several::default();
        self.start_delayed(queues, &mut several)?;
        self.issue_with(&mut several, queues, command, context)?;
        self.count(queues);
        Ok(())
    }

    /// Posts all commands, or with [`Error::QueueFull`] none. Errors: as [`Port::post`]. After [`Error::InboxFull`], later commands may not be posted.
    pub fn post_all(&self, queues: &mut Queues, commands: &[Command], context: u64) -> Result<()> {
        self.network.look();
        if !queues.has_room_at(commands.len(), self) {
            return Err(full());
        }
        let mut several = Several::default();
        self.start_delayed(queues, &mut several)?;
        if let Some(session) = &mut queues.session {
            let trigger = self.trigger();
            for command in commands {
                session.contexts[session.posted as usize % TRIGGERED] = context;
                trigger.post(session.posted, command);
                session.posted += 1;
            }
            self.advance()?;
        } else if self.options.session {
            for command in commands {
                queues.held.push(*command, context);
            }
            self.start_held(queues)?;
        } else {
            for command in commands {
                match self.post_fast(queues, command, context) {
                    Some(done) => done?,
                    None => self.issue_with(&mut several, queues, command, context)?,
                }
            }
        }
        self.count(queues);
        Ok(())
    }

    /// Posts a command that may wait until the next command is posted. Errors: as [`Port::post`].
    pub fn post_delayed(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        if queues.delayed.len() >= MOST_DELAYED || self.options.session {
            return self.post(queues, command, context);
        }
        if !queues.has_room(&self.counts, 1) {
            return Err(full());
        }
        queues.delayed.push_back((*command, context));
        self.count(queues);
        Ok(())
    }

    /// Starts the delayed commands, in one batch with other commands of the call.
    fn start_delayed<'a>(&'a self, queues: &mut Queues, several: &mut Several<'a>) -> Result<()> {
        while let Some((command, context)) = queues.delayed.pop_front() {
            self.issue_with(several, queues, &command, context)?;
        }
        Ok(())
    }

    /// Issues one of several commands of a call.
    #[inline(always)]
    fn issue_with<'a>(
        &'a self,
        several: &mut Several<'a>,
        queues: &mut Queues,
        command: &Command,
        context: u64,
    ) -> Result<()> {
        if self.driven {
            self.join(several, command);
        }
        self.issue(queues, command, context)
    }

    /// Adds the command to the batch for its target process.
    #[cold]
    fn join<'a>(&'a self, several: &mut Several<'a>, command: &Command) {
        if command.kind() != Some(CommandKind::Nop)
            && let Ok(target) = self.network.port(command.place(), command.port())
        {
            several.with(&self.endpoint, target.inbox().first);
        }
    }

    pub(super) fn advance(&self) -> Result<()> {
        let own = self
            .network
            .port(self.place, self.options.index)
            .map_err(|_| Error::StaleRegion)?;
        trigger::advance(&self.network, own);
        Ok(())
    }

    #[inline]
    pub(super) fn count(&self, queues: &Queues) {
        self.waiting.store(queues.waiting(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn issue(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        self.counts.moved(command.moves());
        if self.driven {
            return self.fly(queues, command, context);
        }
        let (mut before, mut moving) = (0, Moving::default());
        let wanted = command.flags().contains(CommandFlags::COMPLETION);
        match self.carry(command, 0, &mut before, &mut moving) {
            Ok(target) => {
                queues.completions.push(&self.counts, context, wanted, None);
                let Some(target) = target else {
                    return Ok(());
                };
                if command.flags().contains(CommandFlags::REMOTE_NOTICE) {
                    self.tell_mapped(target, self.remote_notice(command));
                }
                self.arrived(command, target);
                if command.flags().contains(CommandFlags::LOCAL_NOTICE) {
                    return queues.note(local_notice(command, before, None));
                }
                Ok(())
            }
            Err(failed) => queues.fail(&self.counts, command, context, failed),
        }
    }
}

#[cold]
fn full() -> Error {
    counters::retried();
    Error::QueueFull
}

impl Issues for Port {
    fn issued(&self) -> IssueTotals {
        let (commands, bytes) = self.counts.so_far();
        let waiting = self.waiting.load(Ordering::Relaxed);
        IssueTotals {
            operations: commands + waiting as u64,
            bytes,
        }
    }

    fn pending(&self) -> usize {
        self.endpoint.pending()
    }
}

impl Driven for Port {
    fn drive(&self) {
        let roused = self.arrivals.as_ref().is_some_and(|new| new.are_new());
        // A thread that holds the queues makes progress itself. It may wait for this thread, so do not block.
        if self.waiting.load(Ordering::Relaxed) > 0 || roused {
            self.queues.try_with(|queues| self.progress(queues));
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(listing) = self.listing.get() {
            listing.ends(self.issued());
        }
        if let Some(driver) = &self.driver {
            driver.fewer(self.queues.get_mut().flights.len());
            self.finish();
        }
        let _ = self.directory.unlist(self.options.index.into());
    }
}

impl Port {
    /// Waits for operations in flight: steps not yet delivered to targets, and replies that write to memory of this port.
    #[cold]
    fn finish(&mut self) {
        let endpoint = &self.endpoint;
        let ended =
            self.network
                .engine()
                .wait_for(Deadline::after(LAST_WAIT), &mut || Ok(()), || {
                    endpoint.poll(&mut |_| ());
                    (endpoint.pending() == 0).then_some(())
                });
        if ended.is_err() {
            // The network may write to them as long as the process lives.
            std::mem::forget(std::mem::take(&mut self.queues.get_mut().flights));
        }
    }
}

impl Queues {
    #[inline(always)]
    fn has_room(&self, counts: &CompletionCounters, commands: usize) -> bool {
        counts.has_room(commands + self.delayed.len() + self.flights.len() + self.held.len())
    }

    fn has_room_at(&self, commands: usize, port: &Port) -> bool {
        match &self.session {
            Some(session) => session.posted - session.taken + commands as u64 <= TRIGGERED as u64,
            None => self.has_room(&port.counts, commands),
        }
    }

    #[inline]
    fn waiting(&self) -> usize {
        match &self.session {
            Some(session) => (session.posted - session.taken) as usize,
            None => self.delayed.len() + self.flights.len() + self.held.len(),
        }
    }

    #[inline(always)]
    pub(super) fn note(&mut self, notice: PortNotice) -> Result<()> {
        if self.notices.len() >= self.most_notices {
            return Err(Error::InboxFull);
        }
        self.notices.push(notice);
        Ok(())
    }

    #[cold]
    pub(super) fn fail(
        &mut self,
        counts: &CompletionCounters,
        command: &Command,
        context: u64,
        failed: Failed,
    ) -> Result<()> {
        match failed {
            Failed::Send(fault) => {
                self.completions.push(counts, context, true, Some(fault));
                Ok(())
            }
            Failed::After(fault) => {
                let wanted = command.flags().contains(CommandFlags::COMPLETION);
                self.completions.push(counts, context, wanted, None);
                self.note(local_notice(command, 0, Some(fault)))
            }
        }
    }
}

const _: () = assert!(DEPTH == TRIGGERED);
