//! One GASPI process, from `gaspi_proc_init` to `gaspi_proc_term` (GASPI 17.1 §5.3).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::calls::Call;
use unipgas_core::imports::{Imported, Imports};
use unipgas_core::job::Job;
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::pending_fetch::Unfinished;
use unipgas_core::reclaimer::Reclaimer;
use unipgas_core::registry::{Opening, open_from_env};
use unipgas_core::transport::Life;
use unipgas_core::{Deadline, Endpoint, Engine, Error, World};

use crate::atomics::{Change, GlobalAddress};
use crate::config::{Config, QUEUE_MAX};
use crate::group::GroupPlace;
use crate::links::{Links, Telling, of_rank, put_out};
use crate::passive::{self, Passive};
use crate::queue_group::{QUEUE_GROUP_MAX, QueueGroup};
use crate::segment::{LocalSegment, Unfreed};
use crate::status::{Result, Status, code_of, from_engine};

/// See [`GaspiProcess::at_once_max`].
const AT_ONCE: u64 = 16 << 10;

/// Most time at the end of a process to send receipts to passive senders.
const RECEIPTS: Duration = Duration::from_secs(1);

/// `GASPI_TOPOLOGY_STATIC`.
const BUILDS_STATIC: u32 = 1;
/// Least time that the first request to a rank waits for it, also with a shorter timeout.
const FIRST: Duration = Duration::from_secs(5);

/// Number of segment names.
pub(crate) const SEGMENT_IDS: usize = 256;
/// `GASPI_GROUP_ALL`.
pub const GROUP_ALL: u8 = 0;

/// Deadline of a GASPI timeout in milliseconds. 0 is GASPI_TEST, the largest value is GASPI_BLOCK (§4.2.1).
#[inline]
pub fn deadline(timeout: u64) -> Deadline {
    match timeout {
        0 => Deadline::Now,
        u64::MAX => Deadline::Never,
        ms => Deadline::after(Duration::from_millis(ms)),
    }
}

/// A rank, and the incarnation of its process.
pub(crate) type Incarnation = (u32, u32);

/// An initialised GASPI process. The C interface has a global one. Rust programs may own it. Any thread may make any call;
/// [`GaspiProcess::term`] needs the only reference.
pub struct GaspiProcess {
    pub(crate) world: Arc<World>,
    pub(crate) imports: Imports,
    pub(crate) config: Config,
    /// Most bytes of a request on the fast path, without a liveness check. A queue of such requests completes within milliseconds. Then it is
    /// full, or the program waits: both read the liveness timer.
    pub(crate) at_once_max: u64,
    /// Segments that are ready for use.
    pub(crate) segments: [AtomicPtr<LocalSegment>; SEGMENT_IDS],
    /// All segments, also segments in collective creation.
    pub(crate) made: [AtomicPtr<LocalSegment>; SEGMENT_IDS],
    /// Notification words of the ready segments.
    pub(crate) words: [AtomicPtr<AtomicU32>; SEGMENT_IDS],
    /// Deleted segments. Requests in progress may still use their memory.
    pub(crate) unfreed: Mutex<Vec<Unfreed>>,
    /// Serializes the creation and deletion of segments.
    pub(crate) segment_changes: Mutex<()>,
    pub(crate) queues: [AtomicPtr<Endpoint>; QUEUE_MAX as usize],
    pub(crate) queue_changes: Mutex<Vec<Arc<Endpoint>>>,
    pub(crate) groups: Box<[GroupPlace]>,
    pub(crate) queue_groups: [AtomicPtr<QueueGroup>; QUEUE_GROUP_MAX],
    /// Deleted groups. Calls in progress may still read them.
    pub(crate) reclaimer: Reclaimer,
    /// Number of groups so far, by members.
    pub(crate) group_counts: Mutex<HashMap<Box<[Incarnation]>, u64>>,
    pub(crate) atomics: Arc<Endpoint>,
    /// Atomics in progress after a timeout of their calls.
    pub(crate) unfinished: Unfinished<(GlobalAddress, Change)>,
    pub(crate) links: Links,
    /// For each rank: the last import has timed out.
    silent: Box<[AtomicBool]>,
    pub(crate) passive: Passive,
    /// Liveness timer of the waits on queues.
    pub(crate) liveness: LivenessTimer,
    /// Number of polls of notifications, for networks that need progress.
    pub(crate) looks: AtomicU32,
}

/// An initialisation in progress. It may need several calls (§5.3.1).
pub struct Initialising {
    world: Arc<World>,
    process: Option<Box<GaspiProcess>>,
    /// Whether the initialisation forms the group of all ranks.
    builds: bool,
}

impl Initialising {
    /// Joins the job. Errors: [`Status::ErrEnv`], [`Status::ErrSn`], [`Status::ErrMemalloc`].
    pub fn begin(config: &Config) -> Result<Self> {
        let job = Job::from_env().map_err(|e| tell(&e, Status::ErrEnv))?;
        let opening = Opening::of(&job);
        let transports = open_from_env(&opening).map_err(|e| tell(&e, Status::ErrEnv))?;
        let engine = Engine::new(transports).map_err(from_engine)?;
        let world = World::join(engine, job).map_err(|e| tell(&e, code_of(&e)))?;
        let world = Arc::new(world);
        let process = GaspiProcess::new(&world, *config)?;
        // A replacement process joins later: the other processes have already met.
        let builds = config.build_infrastructure != 0 && process.incarnation() == 0;
        if builds {
            // Before the ranks meet: after that, all of them have begun the group.
            process.begin_group(GROUP_ALL)?;
        }
        Ok(Initialising {
            world,
            process: Some(Box::new(process)),
            builds,
        })
    }

    /// Waits until all processes have started. Errors: [`Status::Timeout`]: call again.
    pub fn advance(&mut self, timeout: u64) -> Result<Box<GaspiProcess>> {
        let deadline = deadline(timeout);
        self.world.meet(deadline).map_err(from_engine)?;
        let process = self.process.as_ref().ok_or(Status::ErrInited)?;
        if self.builds {
            // Programs of release 1.6 use the group of all ranks without a commit. Connections are made at first use.
            process.conclude_group(GROUP_ALL)?;
        }
        self.process.take().ok_or(Status::ErrInited)
    }
}

/// Prints the details of an error, since the return code has none.
#[cold]
fn tell(error: &unipgas_core::Error, status: Status) -> Status {
    unipgas_core::tell(&format!("gaspi_proc_init: {error}"));
    status
}

impl GaspiProcess {
    fn new(world: &Arc<World>, config: Config) -> Result<Self> {
        let atomics = world.engine().endpoint(u32::MAX).map_err(from_engine)?;
        let atomics = atomics.named("atomics");
        let links = Links::new(world);
        let passive = Passive::new(world, links.handler(), &config).map_err(from_engine)?;
        let process = GaspiProcess {
            world: world.clone(),
            imports: world.imports(),
            config,
            at_once_max: config.transfer_size_max.min(AT_ONCE),
            segments: std::array::from_fn(|_| AtomicPtr::default()),
            made: std::array::from_fn(|_| AtomicPtr::default()),
            words: std::array::from_fn(|_| AtomicPtr::default()),
            unfreed: Mutex::default(),
            segment_changes: Mutex::new(()),
            queues: std::array::from_fn(|_| AtomicPtr::default()),
            queue_changes: Mutex::new(Vec::new()),
            looks: AtomicU32::new(0),
            groups: (0..config.group_max)
                .map(|_| GroupPlace::default())
                .collect(),
            queue_groups: std::array::from_fn(|_| AtomicPtr::default()),
            reclaimer: Reclaimer::of_threads(),
            group_counts: Mutex::default(),
            atomics,
            unfinished: Unfinished::default(),
            links,
            silent: (0..world.size()).map(|_| AtomicBool::new(false)).collect(),
            passive,
            liveness: LivenessTimer::default(),
        };
        for _ in 0..config.queue_num {
            process.queue_create()?;
        }
        process.make_group_all();
        Ok(process)
    }

    /// Rank of this process (§5.3.3).
    #[inline]
    pub fn rank(&self) -> u16 {
        self.world.rank() as u16
    }

    /// Number of processes (§5.3.2).
    #[inline]
    pub fn num(&self) -> u16 {
        self.world.size() as u16
    }

    /// Number of this process among the processes of its host.
    pub fn local_rank(&self) -> u16 {
        let bootstrap = self.world.job().bootstrap();
        let before = (0..self.world.rank()).filter(|rank| bootstrap.shares_host(*rank));
        before.count() as u16
    }

    /// Number of processes on this host.
    pub fn local_num(&self) -> u16 {
        self.world.job().neighbours() as u16
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The world of the engine: the job and its ranks.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Waits for the requests in progress, leaves the job and frees all resources (§5.3.4). Errors: [`Status::Timeout`]: requests are in
    /// progress, and nothing has been freed; call again.
    pub fn term(self: Box<Self>, timeout: u64) -> std::result::Result<(), (Box<Self>, Status)> {
        let deadline = deadline(timeout);
        if let Err(status) = self.drain_all(deadline) {
            return Err((self, status));
        }
        self.leave(deadline);
        Ok(())
    }

    /// Leaves the job, also if peers do not answer.
    pub(crate) fn leave(&self, deadline: Deadline) {
        self.world.engine().hurry(deadline);
        let left = deadline.remaining().unwrap_or(RECEIPTS);
        self.passive.tell_receipts(left.min(RECEIPTS));
        self.passive_queue_purge();
        for id in 0..SEGMENT_IDS {
            let _ = self.segment_delete(id as u8);
        }
        self.free_unfreed();
        for group in &self.groups {
            let _ = group.clear(&self.reclaimer);
        }
        self.links.end();
        let _ = self.world.leave();
    }

    /// Number of earlier processes of this rank. If it is not 0, this process has replaced a dead one (§5.3.1).
    pub fn incarnation(&self) -> u32 {
        self.world.incarnation_of(self.world.rank())
    }

    /// The health of each process that this process knows, by rank: true is healthy (§5.5.2). After a death, waits fail until this call. A dead
    /// rank is healthy again after another process has replaced it.
    pub fn states(&self) -> Vec<bool> {
        for rank in self.world.returned() {
            self.welcome(rank);
        }
        self.world
            .lives()
            .into_iter()
            .map(|life| life != Life::Dead)
            .collect()
    }

    /// Accepts the process that has replaced a dead one. It has no effect while a message of the dead process is in progress.
    fn welcome(&self, rank: u32) {
        self.unfinished
            .forget(|(place, _)| u32::from(place.rank) == rank);
        self.links.renew(rank as u16);
        if self.passive.renew(rank as u16) {
            // An error means that the new process has died too.
            let _ = self.world.welcome(rank);
        }
    }

    /// Connects to `rank`, and opens a closed connection (§5.4.1). Errors: [`Status::ErrInvRank`]; [`Status::Timeout`]: call again;
    /// [`Status::Error`]: the rank has died.
    pub fn connect(&self, rank: u16, timeout: u64) -> Result<()> {
        self.check_rank(rank)?;
        if self.world.has_returned(rank.into()) {
            self.welcome(rank.into());
        }
        let deadline = deadline(timeout);
        match self.world.connect_within(u32::from(rank), deadline) {
            Ok(connection) if connection.life() == Life::Dead => {
                return Err(self.failed_at(rank.into(), Error::PeerDead));
            }
            Ok(_) => {}
            Err(error) => return self.unless_left(rank, Err(error)),
        }
        if self.links.may_be_closed(rank) {
            let opened = self.links.open(&self.telling(), rank, deadline);
            self.unless_left(rank, opened)?;
        }
        Ok(())
    }

    /// Closes the connection to `rank` on both sides, after the requests in progress (§5.4.2). Operations between both ranks end with
    /// [`Status::Error`] until one side [connects](GaspiProcess::connect) again. The imports from the rank are released. Errors:
    /// [`Status::ErrInvRank`]; [`Status::Timeout`]: requests are in progress, or the rank does not answer; [`Status::Error`]: the rank has died.
    pub fn disconnect(&self, rank: u16, timeout: u64) -> Result<()> {
        self.check_rank(rank)?;
        let deadline = deadline(timeout);
        if self.links.is_closed(&self.world, rank.into()) && !self.links.is_untold(rank) {
            return Ok(());
        }
        self.drain_all(deadline)?;
        let closed = self.links.close(&self.telling(), rank, deadline);
        self.unless_left(rank, closed)
    }

    /// The result of a message to a rank. If the rank has left, it is a success.
    fn unless_left(&self, rank: u16, told: unipgas_core::Result<()>) -> Result<()> {
        match told {
            // The rank takes no more messages.
            Err(Error::StaleRegion | Error::Unsupported) => Ok(()),
            Err(Error::Timeout) => Err(Status::Timeout),
            Err(_) if self.world.lives_now(rank.into()) == Life::Left => Ok(()),
            told => told.map_err(|error| self.failed_at(rank.into(), error)),
        }
    }

    /// The code of a failed call on `rank`. If the cause is a death, the state vector shows it.
    #[cold]
    pub(crate) fn failed_at(&self, rank: u32, error: Error) -> Status {
        from_engine(match self.check_open(rank) {
            Ok(()) => self.world.blame(rank, error),
            // A closed connection is not a death.
            Err(_) => error,
        })
    }

    /// Has `rank` print the rank of this process and a text. If `rank` does not receive it, this process prints it.
    pub fn print_to(&self, rank: u16, text: &[u8]) {
        let mut line = of_rank(self.rank());
        line.extend_from_slice(text);
        let here = rank == self.rank() || self.check_rank(rank).is_err();
        if here || self.links.print(&self.telling(), rank, &line).is_err() {
            put_out(&line);
        }
    }

    fn telling(&self) -> Telling<'_> {
        Telling {
            world: &self.world,
            endpoint: &self.atomics,
            name: passive::NAME,
        }
    }

    /// Errors: the connection to the rank is closed.
    #[inline]
    pub(crate) fn check_open(&self, rank: u32) -> unipgas_core::Result<()> {
        match self.links.is_closed(&self.world, rank) {
            true => Err(Error::PeerDead),
            false => Ok(()),
        }
    }

    /// Whether the process of `rank` lives. Errors: [`Status::ErrInvRank`]; [`Status::Error`] if it has died.
    pub fn ping(&self, rank: u16) -> Result<()> {
        self.check_rank(rank)?;
        match self.world.lives_now(u32::from(rank)) {
            Life::Dead => Err(Status::Error),
            Life::Alive | Life::Left => Ok(()),
        }
    }

    /// Sends an interrupt signal to the process of `rank`, and waits for its end (§5.3.5). Errors: [`Status::ErrInvRank`] also for the own rank;
    /// [`Status::Timeout`]: the process still runs; call again.
    pub fn kill(&self, rank: u16, timeout: u64) -> Result<()> {
        self.check_rank(rank)?;
        if rank == self.rank() {
            return Err(Status::ErrInvRank);
        }
        let ended = self.world.end(u32::from(rank), deadline(timeout));
        ended.map_err(from_engine)
    }

    /// Begins a call that may read objects while other threads delete them. Some calls run a liveness check.
    #[inline(always)]
    pub(crate) fn call(&self) -> Call {
        Call::begin(|| self.look_around())
    }

    #[cold]
    pub(crate) fn look_around(&self) {
        self.links.release(&self.world);
        self.world.look_around();
    }

    pub(crate) fn check_rank(&self, rank: u16) -> Result<()> {
        if u32::from(rank) < self.world.size() {
            Ok(())
        } else {
            Err(Status::ErrInvRank)
        }
    }

    /// The region of `rank` with this id.
    #[inline(always)]
    pub(crate) fn imported<'a>(
        &'a self,
        rank: u32,
        id: usize,
        call: &'a Call,
        timeout: u64,
    ) -> unipgas_core::Result<&'a Imported> {
        // SAFETY:
        // - the result borrows the call and `self`, and `self` keeps the world alive.
        match unsafe { self.imports.get(rank, id) } {
            Some(import) => Ok(import),
            None => self.import(rank, id, call, deadline(timeout)),
        }
    }

    /// Imports the current region of `rank` with this id. Errors: as [`World::import`]; [`Error::PeerDead`]: the connection is closed.
    #[cold]
    pub(crate) fn import<'a>(
        &'a self,
        rank: u32,
        id: usize,
        call: &'a Call,
        deadline: Deadline,
    ) -> unipgas_core::Result<&'a Imported> {
        self.check_open(rank)?;
        // `None`: no such rank. The import refuses it.
        let silent = self.silent.get(rank as usize);
        // GPI-2 connects all ranks in gaspi_proc_init, so programs expect that a first request does not time out.
        let first = self.config.build_infrastructure == BUILDS_STATIC
            && silent.is_some_and(|silent| !silent.load(Ordering::Relaxed));
        let patience = match first {
            true => deadline.not_before(FIRST),
            false => deadline,
        };
        let found = self.world.import(rank, id, call, patience);
        if let Some(silent) = silent {
            silent.store(matches!(found, Err(Error::Timeout)), Ordering::Relaxed);
        }
        let found = found?;
        // If the connection was closed during the import, no call may find the region.
        self.check_open(rank).inspect_err(|_| {
            let closed = self.world.forget(rank).into_iter();
            closed.for_each(|one| self.world.retire(one, 1));
        })?;
        Ok(found)
    }

    /// Check of waits that any rank may end: they fail after the death of a rank.
    pub(crate) fn watch(&self) -> impl FnMut() -> unipgas_core::Result<()> + '_ {
        || self.world.check_anyone()
    }
}

impl Drop for GaspiProcess {
    fn drop(&mut self) {
        for queue in &self.queues {
            let queue = queue.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !queue.is_null() {
                // SAFETY:
                // - from Arc::into_raw in `queue_create`. This is the only reference to the process.
                drop(unsafe { Arc::from_raw(queue) });
            }
        }
        for group in 0..QUEUE_GROUP_MAX {
            let _ = self.queue_group_delete(group as u8);
        }
        for segment in &self.made {
            let segment = segment.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !segment.is_null() {
                // SAFETY:
                // - from Box::into_raw in `make`. This is the only reference to the process.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}
