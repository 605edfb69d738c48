//! One GASPI process, from `gaspi_proc_init` to `gaspi_proc_term` (GASPI 17.1 §5.3).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::awaited::Unfinished;
use unipgas_core::calls::Call;
use unipgas_core::imports::{Imported, Imports};
use unipgas_core::job::Job;
use unipgas_core::limbo::Limbo;
use unipgas_core::pace::Pace;
use unipgas_core::registry::{Opening, open_from_env};
use unipgas_core::transport::Life;
use unipgas_core::{Deadline, Endpoint, Engine, Error, World};

use crate::atomics::{Change, Place};
use crate::config::{Config, QUEUE_MAX};
use crate::group::GroupPlace;
use crate::links::{Links, Telling, of_rank, put_out};
use crate::passive::{self, Passive};
use crate::queue_group::{QUEUE_GROUP_MAX, QueueGroup};
use crate::segment::{Segment, Unfreed};
use crate::status::{Result, Status, code_of, from_engine};

/// See [`Process::at_once_max`].
const AT_ONCE: u64 = 16 << 10;

/// At the end of a process, for those who have sent to it and take no receipt.
const RECEIPTS: Duration = Duration::from_secs(1);

/// `GASPI_TOPOLOGY_STATIC`.
const BUILDS_STATIC: u32 = 1;
/// How long the first request to a rank waits for it, whatever the timeout.
const FIRST: Duration = Duration::from_secs(5);

/// Segment names.
pub(crate) const SEGMENT_IDS: usize = 256;
/// `GASPI_GROUP_ALL`.
pub const GROUP_ALL: u8 = 0;

/// A GASPI timeout in milliseconds: 0 is GASPI_TEST, the largest value GASPI_BLOCK (§4.2.1).
#[inline]
pub fn deadline(timeout: u64) -> Deadline {
    match timeout {
        0 => Deadline::Now,
        u64::MAX => Deadline::Never,
        ms => Deadline::after(Duration::from_millis(ms)),
    }
}

/// A rank, and which of its processes.
pub(crate) type Incarnation = (u32, u32);

/// An initialised GASPI process. The C interface keeps one; Rust programs may hold it themselves. All calls may come from any
/// thread, but for [`Process::term`].
pub struct Process {
    pub(crate) world: Arc<World>,
    pub(crate) imports: Imports,
    pub(crate) config: Config,
    /// Bytes of the longest request that is carried out without looking at the others' lives. A queue of such ones is over within
    /// milliseconds, and then full, or waited for.
    pub(crate) at_once_max: u64,
    /// Segments that are ready for use.
    pub(crate) segments: [AtomicPtr<Segment>; SEGMENT_IDS],
    /// All segments, including segments in collective creation.
    pub(crate) made: [AtomicPtr<Segment>; SEGMENT_IDS],
    /// Notification words of the ready segments.
    pub(crate) words: [AtomicPtr<AtomicU32>; SEGMENT_IDS],
    /// Deleted segments with memory that requests may still use.
    pub(crate) unfreed: Mutex<Vec<Unfreed>>,
    /// Guards making and deleting of segments.
    pub(crate) segment_changes: Mutex<()>,
    pub(crate) queues: [AtomicPtr<Endpoint>; QUEUE_MAX as usize],
    pub(crate) queue_changes: Mutex<Vec<Arc<Endpoint>>>,
    pub(crate) groups: Box<[GroupPlace]>,
    pub(crate) queue_groups: [AtomicPtr<QueueGroup>; QUEUE_GROUP_MAX],
    /// Deleted groups, which calls may still be reading.
    pub(crate) limbo: Limbo,
    /// How many groups of these processes there have been.
    pub(crate) group_counts: Mutex<HashMap<Box<[Incarnation]>, u64>>,
    pub(crate) atomics: Arc<Endpoint>,
    /// Atomics after a timeout of their calls.
    pub(crate) unfinished: Unfinished<(Place, Change)>,
    pub(crate) links: Links,
    /// For each rank: the last import got no answer.
    silent: Box<[AtomicBool]>,
    pub(crate) passive: Passive,
    /// Counts the waits for queues.
    pub(crate) pace: Pace,
    /// Counts the looks at notifications, where networks have to be moved on.
    pub(crate) looks: AtomicU32,
}

/// An initialisation that may need several calls (§5.3.1).
pub struct Initialising {
    world: Arc<World>,
    process: Option<Box<Process>>,
    /// The group of all with the others.
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
        let process = Process::new(&world, *config)?;
        // The others have met without a process that takes the place of a dead one.
        let builds = config.build_infrastructure != 0 && process.incarnation() == 0;
        if builds {
            // Before the ranks meet: then all are there.
            process.begin_group(GROUP_ALL)?;
        }
        Ok(Initialising {
            world,
            process: Some(Box::new(process)),
            builds,
        })
    }

    /// Goes on until all processes have been started. Errors: [`Status::Timeout`]: call again.
    pub fn advance(&mut self, timeout: u64) -> Result<Box<Process>> {
        let deadline = deadline(timeout);
        self.world.meet(deadline).map_err(from_engine)?;
        let process = self.process.as_ref().ok_or(Status::ErrInited)?;
        if self.builds {
            // Programs of release 1.6 use the group of all without committing it. Connections are made when they are needed.
            process.conclude_group(GROUP_ALL)?;
        }
        self.process.take().ok_or(Status::ErrInited)
    }
}

/// Facts without a return code: one line each, printed once.
#[cold]
fn tell(error: &unipgas_core::Error, status: Status) -> Status {
    unipgas_core::tell(&format!("gaspi_proc_init: {error}"));
    status
}

impl Process {
    fn new(world: &Arc<World>, config: Config) -> Result<Self> {
        let atomics = world.engine().endpoint(u32::MAX).map_err(from_engine)?;
        let atomics = atomics.named("atomics");
        let links = Links::new(world);
        let passive = Passive::new(world, links.handler()).map_err(from_engine)?;
        let process = Process {
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
            limbo: Limbo::of_threads(),
            group_counts: Mutex::default(),
            atomics,
            unfinished: Unfinished::default(),
            links,
            silent: (0..world.size()).map(|_| AtomicBool::new(false)).collect(),
            passive,
            pace: Pace::default(),
        };
        for _ in 0..config.queue_num {
            process.queue_create()?;
        }
        process.make_group_all();
        Ok(process)
    }

    /// This process's rank (§5.3.3).
    #[inline]
    pub fn rank(&self) -> u16 {
        self.world.rank() as u16
    }

    /// Number of processes (§5.3.2).
    #[inline]
    pub fn num(&self) -> u16 {
        self.world.size() as u16
    }

    /// Number of this process among those of its host.
    pub fn local_rank(&self) -> u16 {
        let bootstrap = self.world.job().bootstrap();
        let before = (0..self.world.rank()).filter(|rank| bootstrap.shares_host(*rank));
        before.count() as u16
    }

    /// Number of processes on this process's host.
    pub fn local_num(&self) -> u16 {
        self.world.job().neighbours() as u16
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The engine underneath.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Leaves the job and frees everything that belongs to it (§5.3.4). Requests under way are completed first; errors:
    /// [`Status::Timeout`] if that takes too long: nothing has been freed, call again.
    pub fn term(self: Box<Self>, timeout: u64) -> std::result::Result<(), (Box<Self>, Status)> {
        let deadline = deadline(timeout);
        if let Err(status) = self.drain_all(deadline) {
            return Err((self, status));
        }
        self.leave(deadline);
        Ok(())
    }

    /// Leaves the job, whether or not others answer.
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
            let _ = group.clear(&self.limbo);
        }
        self.links.end();
        let _ = self.world.leave();
    }

    /// How many processes have had this rank before; not 0: this one has taken the place of a dead one (§5.3.1).
    pub fn incarnation(&self) -> u32 {
        self.world.incarnation_of(self.world.rank())
    }

    /// The health of every process as this one knows it, by rank: true is healthy (§5.5.2). Waits that end because a process has died
    /// do so until this has been called. A rank that it has told to be dead is healthy again when another process has taken its place.
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

    /// From now on `rank` is the process that has taken the dead one's place; not yet, while a message of that one is being received.
    fn welcome(&self, rank: u32) {
        self.unfinished
            .forget(|(place, _)| u32::from(place.rank) == rank);
        self.links.renew(rank as u16);
        if self.passive.renew(rank as u16) {
            // It may have died meanwhile.
            let _ = self.world.welcome(rank);
        }
    }

    /// Builds the communication infrastructure to `rank` (§5.4.1).
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

    /// Closes the connection to `rank`, after the requests that are under way, on both sides: operations with it end with [`Status::Error`] until one of both
    /// [connects](Process::connect) again (§5.4.2). What has been imported from it is released. Errors: [`Status::ErrInvRank`]; [`Status::Timeout`]: requests are
    /// under way still, or the rank does not answer; [`Status::Error`]: it has died.
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

    /// The result of a message to a rank. It is a success if the rank has left.
    fn unless_left(&self, rank: u16, told: unipgas_core::Result<()>) -> Result<()> {
        match told {
            // The rank takes no more messages.
            Err(Error::StaleRegion | Error::Unsupported) => Ok(()),
            Err(Error::Timeout) => Err(Status::Timeout),
            Err(_) if self.world.lives_now(rank.into()) == Life::Left => Ok(()),
            told => told.map_err(|error| self.failed_at(rank.into(), error)),
        }
    }

    /// The code of a failed call on `rank`. The state vector shows the death that the call has met.
    #[cold]
    pub(crate) fn failed_at(&self, rank: u32, error: Error) -> Status {
        from_engine(match self.check_open(rank) {
            Ok(()) => self.world.blame(rank, error),
            // A closed connection is no death.
            Err(_) => error,
        })
    }

    /// Has `rank` print a text, this process's rank in front. Where that is not possible, this process prints it.
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

    /// Sends an interrupt signal to the process of `rank` and waits until it has ended (§5.3.5). Errors: [`Status::ErrInvRank`] also for
    /// the own rank; [`Status::Timeout`]: it has not ended yet, call again.
    pub fn kill(&self, rank: u16, timeout: u64) -> Result<()> {
        self.check_rank(rank)?;
        if rank == self.rank() {
            return Err(Status::ErrInvRank);
        }
        let ended = self.world.end(u32::from(rank), deadline(timeout));
        ended.map_err(from_engine)
    }

    /// A call begins that may read what other threads delete. Now and then it looks at the lives of the others.
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
        // - the result borrows the call, and self, which keeps the world.
        match unsafe { self.imports.get(rank, id) } {
            Some(import) => Ok(import),
            None => self.import(rank, id, call, deadline(timeout)),
        }
    }

    /// Imports the present region of `rank` with this id. Errors: as [`World::import`]; [`Error::PeerDead`]: the connection is closed.
    #[cold]
    pub(crate) fn import<'a>(
        &'a self,
        rank: u32,
        id: usize,
        call: &'a Call,
        deadline: Deadline,
    ) -> unipgas_core::Result<&'a Imported> {
        self.check_open(rank)?;
        // `None`: there is no such rank, which the import refuses.
        let silent = self.silent.get(rank as usize);
        // GPI-2 has connected all in gaspi_proc_init: there a request need not wait for its rank.
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
        // A close during the import: no call may find the region.
        self.check_open(rank).inspect_err(|_| {
            let closed = self.world.forget(rank).into_iter();
            closed.for_each(|one| self.world.retire(one, 1));
        })?;
        Ok(found)
    }

    /// For waits that anyone could end.
    pub(crate) fn watch(&self) -> impl FnMut() -> unipgas_core::Result<()> + '_ {
        || self.world.check_anyone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for queue in &self.queues {
            let queue = queue.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !queue.is_null() {
                // SAFETY:
                // - came from Arc::into_raw in `queue_create`, and nobody else has a reference to the process any more.
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
                // - came from Box::into_raw in `install`, as above.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}
