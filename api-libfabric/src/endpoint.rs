//! Endpoints (fi_endpoint(3)): reliable, connectionless.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::biased::{Biased, BiasedGuard};
use unipgas_core::bundle::BUNDLE_LEN;
use unipgas_core::inbox::{InboxLayout, InboxReader, initialise_zeroed};
use unipgas_core::random::random;
use unipgas_core::watcher::Watched;
use unipgas_core::{Deadline, Flags, Region, Rights};

use crate::av::AddressVector;
use crate::completion::CompletionQueue;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::messages::{Messages, SharedReceives};
use crate::name::{Called, EndpointName};
use crate::operation::{CounterEvent, Report, Reports};
use crate::process::has_other_hosts;
use crate::service::{Served, ServiceName};
use crate::state::State;
use crate::status::{Errno, Result};
use crate::sys::{
    FI_COLLECTIVE, FI_COMPLETION, FI_FENCE, FI_MSG, FI_ORDER_SAS, FI_SOURCE, FI_SOURCE_ERR,
    FI_TAGGED,
};
use crate::target::{Counts, Directory, NOT_YET, SHAPE_WORDS, show_counts};

/// Number of endpoints that this process has opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// Maximum payload of inject calls, in bytes.
pub const INJECT_SIZE: usize = 4096;
/// Maximum operations in progress.
pub const DEPTH: usize = 4096;
/// Maximum posted receives, including receives with a message in flight.
pub const RECEIVES: usize = 1 << 16;
/// Maximum elements of a vector of memory.
pub const IOV_LIMIT: usize = 8;
/// Capacity for unread notices of remote writes. Further notices wait at their senders.
const NOTICES: usize = 4096;
/// Longest wait of a close for peers that take no messages.
const PATIENCE: Duration = Duration::from_secs(10);

/// Capabilities that report the names of unknown senders.
const SENDERS: u64 = FI_SOURCE | FI_SOURCE_ERR;

/// The purpose of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndpointOptions {
    /// Capabilities (fi_getinfo(3)).
    pub caps: u64,
    /// Order of operations to one peer on which the program relies.
    pub order: u64,
    /// The service that the endpoint provides.
    pub service: Option<ServiceName>,
    /// It uses a shared transmit context, and must be bound to one.
    pub shares_transmits: bool,
    /// It uses a shared receive context, and must be bound to one.
    pub shares_receives: bool,
}

/// A shared transmit context (fi_stx_context of fi_endpoint(3)). Endpoints transmit by loads and stores, each on its own, so sharing saves
/// nothing. Its reference count shows whether endpoints use it.
pub struct SharedTransmits {
    domain: Arc<Domain>,
}

impl SharedTransmits {
    /// A new one.
    pub fn new(domain: &Arc<Domain>) -> Arc<SharedTransmits> {
        Arc::new(SharedTransmits {
            domain: domain.clone(),
        })
    }
}

#[derive(Default)]
struct Bindings {
    av: Option<Arc<AddressVector>>,
    transmit: Option<Arc<CompletionQueue>>,
    receive: Option<Arc<CompletionQueue>>,
    selective: [bool; 2],
    counters: [Option<Arc<Counter>>; 6],
    shared_transmits: Option<Arc<SharedTransmits>>,
    shared_receives: Option<Arc<SharedReceives>>,
    /// `None` once the endpoint is enabled.
    state: Option<State>,
}

struct Live {
    reports: Reports,
    state: Biased<State>,
}

/// An endpoint.
pub struct Endpoint {
    domain: Arc<Domain>,
    name: EndpointName,
    options: EndpointOptions,
    /// The kinds of messages with receives that are posted here.
    pub(crate) receives: u64,
    bindings: Mutex<Bindings>,
    live: OnceLock<Live>,
    _served: Option<Served>,
    is_watched: AtomicBool,
    least_room: AtomicUsize,
    /// Registered while the endpoint is open. Dropped last: no operation of the endpoint is in flight any more.
    directory: Region,
}

/// Options of one operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct PostOptions {
    /// The completion returns it.
    pub context: usize,
    /// FI_COMPLETION, FI_FENCE, FI_INJECT, …
    pub flags: u64,
    /// For the target's completion queue.
    pub data: Option<u64>,
    /// An inject call: success is not reported.
    pub quiet: bool,
    /// Number of the deferred work that gets the operation's result. 0: none.
    pub work: u32,
}

impl PostOptions {
    /// The report of the operation. `completion`: flags of the completion, and the counter that counts it.
    pub(crate) fn report(&self, completion: (u64, CounterEvent), wanted: bool) -> Report {
        let (flags, counted) = completion;
        Report {
            context: self.context,
            flags,
            wanted,
            counted,
            work: self.work,
        }
    }

    /// Whether the queue reports success. `selective`: only operations that ask for a completion get one.
    #[inline(always)]
    pub(crate) fn wants(&self, selective: bool) -> bool {
        !self.quiet && (!(selective | (self.work != 0)) | (self.flags & FI_COMPLETION != 0))
    }
}

impl Endpoint {
    /// A new endpoint, not enabled. Peers can use its name. Errors: [`Errno::ADDRINUSE`] if another endpoint provides the service.
    pub fn new(domain: &Arc<Domain>, options: EndpointOptions) -> Result<Arc<Endpoint>> {
        let engine = domain.engine();
        let id = u64::from_le_bytes(random()?).max(1);
        let rights = Rights::FULL | Rights::RECORDS;
        let inbox_memory = engine.allocate(InboxLayout::new(NOTICES)?.size(), rights)?;
        // SAFETY:
        // - new, zeroed memory of the layout's size, unknown to other code. It stays until the state is dropped.
        let inbox = unsafe {
            initialise_zeroed(inbox_memory.base(), NOTICES)?;
            InboxReader::attach(inbox_memory.base(), inbox_memory.len())?
        };
        let directory = engine.allocate(size_of::<Directory>(), Rights::READ)?;
        let address = engine.address()?;
        let name = EndpointName::new(id, &address, &directory.key())?;
        let messages = match options.caps & (FI_MSG | FI_TAGGED | FI_COLLECTIVE) {
            0 => None,
            _ => Some(Messages::new(domain, &name)?),
        };
        let (mailbox, numbers) = messages
            .as_ref()
            .map_or(([0; BUNDLE_LEN], [0; BUNDLE_LEN]), Messages::keys);
        let shown = Directory {
            id,
            counts: NOT_YET,
            shape: SHAPE_WORDS,
            address: *address.as_bytes(),
            directory: *directory.key().as_bytes(),
            keys: *domain.keys().key().as_bytes(),
            tallies: *domain.tallies().key().as_bytes(),
            inbox: *inbox_memory.key().as_bytes(),
            mailbox,
            numbers,
        };
        let place = directory.local(0, size_of::<Directory>())?;
        // SAFETY:
        // - `local` has checked the size. The memory is page-aligned, and other code does not know it yet.
        unsafe { place.ptr.cast::<Directory>().write(shown) };
        let serve = |service: ServiceName| service.serve(&name, &address, &directory.key());
        let served = options.service.map(serve);
        let served = served.transpose()?;
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let channel = (engine.endpoint(u32::MAX)?).named(&format!("endpoint {number}"));
        let state = State::new(domain, channel, inbox, inbox_memory, messages);
        Ok(Arc::new(Endpoint {
            domain: domain.clone(),
            name,
            options,
            receives: match options.shares_receives {
                true => 0,
                false => options.caps & (FI_MSG | FI_TAGGED),
            },
            _served: served,
            is_watched: AtomicBool::new(false),
            least_room: AtomicUsize::new(0),
            directory,
            bindings: Mutex::new(Bindings {
                state: Some(state),
                ..Bindings::default()
            }),
            live: OnceLock::new(),
        }))
    }

    /// Sets the least room in a buffer for several messages. The endpoint returns a buffer with less room (FI_OPT_MIN_MULTI_RECV).
    pub fn set_least_room(&self, bytes: usize) {
        self.least_room.store(bytes, Ordering::Relaxed);
    }

    /// See [`Endpoint::set_least_room`].
    pub fn least_room(&self) -> usize {
        self.least_room.load(Ordering::Relaxed)
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Its name, for address vectors of other processes.
    pub fn name(&self) -> &EndpointName {
        &self.name
    }

    /// Its service if all processes are on this host, otherwise its name: on another host the same service is another endpoint.
    pub fn called(&self) -> Called {
        match self.options.service {
            Some(service) if has_other_hosts() == Ok(false) => Called::Service(service),
            _ => Called::Name(self.name),
        }
    }

    /// The options of [`Endpoint::new`].
    pub fn options(&self) -> &EndpointOptions {
        &self.options
    }

    /// Whether it has been enabled.
    pub fn is_enabled(&self) -> bool {
        self.live.get().is_some()
    }

    fn change(&self, what: impl FnOnce(&mut Bindings) -> Result<()>) -> Result<()> {
        if self.is_enabled() {
            return Err(Errno::OPBADSTATE);
        }
        what(&mut self.bindings.lock())
    }

    /// Binds the address vector. Errors: [`Errno::OPBADSTATE`] once enabled; [`Errno::INVAL`] if one is bound; [`Errno::DOMAIN`].
    pub fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        self.same_domain(av.domain())?;
        self.change(|bindings| bind(&mut bindings.av, av))
    }

    /// Binds a completion queue to transmitting operations, receiving operations, or both. `selective`: only operations that ask for an entry get
    /// one. Errors: as for [`Endpoint::bind_av`].
    pub fn bind_queue(
        &self,
        queue: &Arc<CompletionQueue>,
        transmit: bool,
        receive: bool,
        selective: bool,
    ) -> Result<()> {
        self.same_domain(queue.domain())?;
        self.change(|bindings| {
            if transmit && bindings.transmit.is_some() || receive && bindings.receive.is_some() {
                return Err(Errno::INVAL);
            }
            if transmit {
                bind(&mut bindings.transmit, queue)?;
                bindings.selective[0] = selective;
            }
            if receive {
                bind(&mut bindings.receive, queue)?;
                bindings.selective[1] = selective;
            }
            Ok(())
        })
    }

    /// Binds a counter. Peers count their operations themselves, so the owner need not make calls. Programs also bind a counter of own operations
    /// to an enabled endpoint: it counts operations that end later. Errors: as for [`Endpoint::bind_av`] otherwise; [`Errno::NOSPC`] if too
    /// many counters count operations of peers.
    pub fn bind_counter(
        self: &Arc<Self>,
        counter: &Arc<Counter>,
        counted: CounterEvent,
    ) -> Result<()> {
        self.same_domain(counter.domain())?;
        let of_peers = matches!(
            counted,
            CounterEvent::RemoteRead | CounterEvent::RemoteWrite
        );
        if of_peers {
            counter.tally()?;
        }
        let bindings = &mut *self.bindings.lock();
        let live = self.live.get();
        if live.is_some() && of_peers {
            return Err(Errno::OPBADSTATE);
        }
        bind(&mut bindings.counters[counted as usize], counter)?;
        if let Some(live) = live {
            // `bind` has found no counter, so this place is empty, too.
            let _ = live.reports.counters[counted as usize].set(counter.clone());
            counter.waits.attached.add(self);
        }
        Ok(())
    }

    /// Binds a shared transmit context. Programs also bind one to endpoints with an own context, enabled or not: the call then does nothing.
    /// Errors: as for [`Endpoint::bind_av`].
    pub fn bind_transmits(&self, shared: &Arc<SharedTransmits>) -> Result<()> {
        self.same_domain(&shared.domain)?;
        if !self.options.shares_transmits {
            return Ok(());
        }
        self.change(|bindings| bind(&mut bindings.shared_transmits, shared))
    }

    /// Binds a shared receive context. Errors: as for [`Endpoint::bind_av`]; [`Errno::INVAL`] also if the endpoint has an own context.
    pub fn bind_receives(&self, shared: &Arc<SharedReceives>) -> Result<()> {
        self.same_domain(shared.domain())?;
        if !self.options.shares_receives {
            return Err(Errno::INVAL);
        }
        self.change(|bindings| bind(&mut bindings.shared_receives, shared))
    }

    fn same_domain(&self, other: &Arc<Domain>) -> Result<()> {
        if Arc::ptr_eq(&self.domain, other) {
            Ok(())
        } else {
            Err(Errno::DOMAIN)
        }
    }

    /// Enables the endpoint (fi_enable(3)). Errors: [`Errno::NOAV`]; [`Errno::NOCQ`] without any queue or counter; [`Errno::OPBADSTATE`] if it is
    /// enabled, or lacks a shared context; [`Errno::INVAL`] if other endpoints of the shared receive context have another address vector.
    pub fn enable(self: &Arc<Self>) -> Result<()> {
        let mut bindings = self.bindings.lock();
        if self.is_enabled() {
            return Err(Errno::OPBADSTATE);
        }
        let av = bindings.av.clone().ok_or(Errno::NOAV)?;
        let counters = bindings.counters.iter().flatten();
        let queues = [&bindings.transmit, &bindings.receive];
        if queues.into_iter().all(Option::is_none) && counters.clone().next().is_none() {
            return Err(Errno::NOCQ);
        }
        if self.options.shares_transmits && bindings.shared_transmits.is_none()
            || self.options.shares_receives && bindings.shared_receives.is_none()
        {
            return Err(Errno::OPBADSTATE);
        }
        if let Some(shared) = &bindings.shared_receives {
            shared.agree(&av)?;
        }
        let queues = queues.into_iter().flatten();
        // In shared memory only messages have work left after a call.
        let sends = self.options.caps & (FI_MSG | FI_TAGGED | FI_COLLECTIVE) != 0;
        let left_to_do = sends || self.domain.engine().is_driven();
        let automatic = self.domain.options().automatic && left_to_do;
        for queue in queues {
            queue.waits.attached.add(self);
        }
        for counter in counters {
            counter.waits.attached.add(self);
        }
        let mut state = bindings.state.take().ok_or(Errno::OPBADSTATE)?;
        state.av = Some(av.clone());
        if let Some(messages) = &mut state.messages {
            messages.av = Some(av);
            messages.tells_sources = self.options.caps & FI_SOURCE != 0;
            let watched: Arc<dyn Watched> = self.clone();
            messages.endpoint = Arc::downgrade(&watched);
        }
        let reports = Reports {
            transmit: bindings.transmit.clone(),
            receive: bindings.receive.clone(),
            selective: bindings.selective,
            names_senders: self.options.caps & SENDERS == SENDERS,
            counters: bindings.counters.clone().map(|counter| match counter {
                Some(counter) => OnceLock::from(counter),
                None => OnceLock::new(),
            }),
            deferred: self.domain.deferred().clone(),
        };
        let tally = |counted: CounterEvent| {
            let counter = bindings.counters[counted as usize].as_ref();
            counter.map(|counter| counter.tally()).transpose()
        };
        let counts = Counts {
            read: tally(CounterEvent::RemoteRead)?,
            write: tally(CounterEvent::RemoteWrite)?,
        };
        show_counts(&self.directory, counts)?;
        if let (Some(shared), Some(messages)) = (&bindings.shared_receives, &mut state.messages) {
            shared.serve(self, messages);
        }
        let live = Live {
            reports,
            state: Biased::new(state),
        };
        self.live.set(live).map_err(|_| Errno::OPBADSTATE)?;
        if automatic {
            self.watch()?;
        }
        Ok(())
    }

    /// The progress thread drives the endpoint from now on. Errors: [`Error::Os`].
    pub(crate) fn watch(self: &Arc<Self>) -> Result<()> {
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            let watched: Arc<dyn Watched> = self.clone();
            self.domain.watcher().watch(Arc::downgrade(&watched))?;
        }
        Ok(())
    }

    /// Removes the endpoint from its queues and counters, so that it ends with its last user.
    pub fn detach(&self) {
        self.domain.deferred().forget(self);
        let bindings = self.bindings.lock();
        for queue in [&bindings.transmit, &bindings.receive]
            .into_iter()
            .flatten()
        {
            queue.waits.attached.remove(self);
        }
        for counter in bindings.counters.iter().flatten() {
            counter.waits.attached.remove(self);
        }
        if let Some(shared) = &bindings.shared_receives {
            shared.leave(self);
        }
    }

    /// The reports and the state. Errors: [`Errno::OPBADSTATE`] before the endpoint is enabled.
    #[inline(always)]
    pub(crate) fn live(&self) -> Result<(&Reports, BiasedGuard<'_, State>)> {
        let live = self.live.get().ok_or(Errno::OPBADSTATE)?;
        Ok((&live.reports, live.state.lock()))
    }

    /// Makes progress: takes arrivals, and retries operations that had to wait.
    #[inline]
    pub fn progress(&self) {
        if let Ok((reports, mut state)) = self.live() {
            state.progress(reports);
        }
    }

    /// Whether [`progress`](Endpoint::progress) has left messages that have arrived.
    pub(crate) fn has_lines(&self) -> bool {
        let live = self.live();
        live.is_ok_and(|(_, state)| state.messages.as_ref().is_some_and(Messages::has_lines))
    }

    /// Reports the failure of an operation that never begins.
    pub(crate) fn tell_failure(&self, report: &Report, errno: Errno) {
        if let Ok((reports, _state)) = self.live() {
            let _ = reports.fail(report, errno);
        }
    }

    /// Before the close: the endpoint leaves its groups. Answers to peers, and injected messages, leave when there is room. The wait ends after
    /// [`PATIENCE`].
    pub(crate) fn settle(&self) {
        if let Ok((reports, mut state)) = self.live()
            && let Some(messages) = &mut state.messages
        {
            messages.groups().leave_all();
            messages.report_collectives(reports);
        }
        let engine = self.domain.engine();
        let settled = || {
            self.progress();
            let live = self.live().ok();
            let settled = live.is_none_or(|(_, mut state)| {
                let messages = state.messages.as_mut();
                messages.is_none_or(Messages::settle)
            });
            settled.then_some(())
        };
        let mut check = || {
            self.look_at_peers();
            Ok(())
        };
        let waited = engine.wait_for(Deadline::after(PATIENCE), &mut check, settled);
        if waited.is_err() {
            unipgas_core::tell(
                "messages to a peer that makes no progress are lost: their endpoint is closed",
            );
        }
    }

    /// Checks the liveness of peers.
    pub(crate) fn look_at_peers(&self) {
        if let Ok((reports, mut state)) = self.live() {
            state.look_at_peers(reports);
        }
    }

    /// Free places of the transmit context (operations), and of the receive context (receives).
    pub(crate) fn rooms(&self) -> (usize, usize) {
        let Ok((_, state)) = self.live() else {
            return (DEPTH, RECEIVES);
        };
        let messages = state.messages.as_ref();
        let receives = messages.map_or(0, Messages::receives);
        (
            DEPTH.saturating_sub(state.under_way()),
            RECEIVES.saturating_sub(receives),
        )
    }

    /// Checks room and fences before an operation to the endpoint at `to` is posted. Errors: [`Errno::AGAIN`].
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        reports: &Reports,
        state: &mut State,
        to: u64,
        posting: &PostOptions,
    ) -> Result<Admitted> {
        let wanted = posting.wants(reports.selective[0]);
        let queue = reports.transmit.as_ref();
        if queue.is_some_and(|queue| !queue.has_room(wanted)) || state.under_way() >= DEPTH {
            state.find_room(reports);
            return Err(Errno::AGAIN);
        }
        if posting.flags & FI_FENCE != 0 {
            fence(reports, state, |state| {
                state.is_under_way_to(to) || state.is_message_under_way_to(to)
            })?;
        }
        // FI_ORDER_SAS concerns messages only. Transports without pending operations keep order anyway, and programs rely on it without a request.
        let ordered = self.options.order & !FI_ORDER_SAS != 0;
        Ok(Admitted {
            wanted,
            flags: if ordered {
                Flags::ORDERED
            } else {
                Flags::empty()
            },
        })
    }
}

/// Checks that earlier operations have ended, after a round of progress if necessary. Errors: [`Errno::AGAIN`] if not: their end may depend on later
/// calls of the program.
#[cold]
pub(crate) fn fence(
    reports: &Reports,
    state: &mut State,
    under_way: impl Fn(&State) -> bool,
) -> Result<()> {
    if !under_way(state) {
        return Ok(());
    }
    state.progress(reports);
    if under_way(state) {
        Err(Errno::AGAIN)
    } else {
        Ok(())
    }
}

/// Properties of an operation that may be posted.
pub(crate) struct Admitted {
    pub wanted: bool,
    pub flags: Flags,
}

impl Watched for Endpoint {
    fn look(&self, at_peers: bool) {
        match at_peers {
            true => self.look_at_peers(),
            false => self.progress(),
        }
    }
}

fn bind<T>(place: &mut Option<Arc<T>>, value: &Arc<T>) -> Result<()> {
    if place.is_some() {
        return Err(Errno::INVAL);
    }
    *place = Some(value.clone());
    Ok(())
}
