//! A rank's view of its job: it finds the memory of other ranks, and knows their states.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;
use parking_lot::Mutex;

use super::imports::Imports;
use super::interrupt;
use super::lives::HEALTHY;
use super::look::{Look, Looks};
use unipgas_base::calls::Call;
use unipgas_base::reclaimer::Reclaimer;
use unipgas_base::{Deadline, Error, Result, log};
use unipgas_engine::Endpoint;
use unipgas_engine::bundle::{Address, Bundle, RegionKey};
use unipgas_engine::directory::{Directory, Listed, read_listed};
use unipgas_engine::engine::{Connection, Engine};
use unipgas_engine::transport::Life;
use unipgas_engine::{Region, RemoteRegion};
use unipgas_job::job::Job;

/// Minimum time for another answer of a rank that has just answered, despite the deadline.
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// Longest time between the loss of a process's memory and the report of its death here.
pub(super) const NEWS_OF_DEATH: Duration = Duration::from_secs(1);

/// State of a rank that this process talks to.
#[derive(Default)]
pub(super) struct PeerPlace {
    /// The process that the other fields belong to.
    pub incarnation: u32,
    pub connection: Option<Connection>,
    pub directory: Option<RemoteRegion>,
}

/// A rank's view of its job.
pub struct World {
    pub(super) engine: Engine,
    pub(super) job: Job,
    pub(super) life_cycle: u32,
    /// [`JOINED`] counts it.
    joined: bool,
    directory: Directory,
    /// Ranks of other hosts ask this process to end here.
    _interrupts: Option<Region>,
    /// An unused rank costs a pointer.
    peers: Box<[OnceBox<Mutex<PeerPlace>>]>,
    pub(super) lives: Box<[AtomicU8]>,
    /// Ranks with a death that the program knows.
    pub(super) shown: Box<[AtomicBool]>,
    pub(super) imports: Imports,
    /// Endpoint of the library's own operations.
    service: Endpoint,
    /// Objects that calls may still read.
    reclaimer: Reclaimer,
    pub(super) deaths_seen: AtomicU32,
    pub(super) changes_seen: AtomicU32,
    /// Number of known deaths, and the number of them that the program knows.
    pub(super) deaths: AtomicU32,
    pub(super) acknowledged: AtomicU32,
    /// The rank + 1 of a death that an operation has met, or `SOME_RANK`. 0: none.
    pub(super) suspect: AtomicU32,
    pub(super) last_look: Mutex<Instant>,
    pub(super) looks: Looks,
}

/// The worlds of this process: life cycles so far, and worlds that have not left.
struct Joined {
    life_cycles: u32,
    active: u32,
}

static JOINED: Mutex<Joined> = Mutex::new(Joined {
    life_cycles: 0,
    active: 0,
});

impl World {
    /// [`World::new`] as the next life cycle of this process. Each interface of a program has its own world. All ranks must open the interfaces in the same
    /// order.
    pub fn join(engine: Engine, job: Job) -> Result<Self> {
        let mut joined = JOINED.lock();
        let life_cycle = (joined.life_cycles + 1).max(job.bootstrap().first_cycle());
        // A failed call does not count: the next try has the same life cycle.
        let mut world = World::new(engine, job, life_cycle)?;
        joined.life_cycles = life_cycle;
        joined.active += 1;
        world.joined = true;
        Ok(world)
    }

    /// Publishes this process. [`World::meet`] then waits for the others. `life_cycle`: number of the initialisation, from 1 on.
    pub fn new(engine: Engine, job: Job, life_cycle: u32) -> Result<Self> {
        let ranks = job.size() as usize;
        engine.set_crowded(job.crowded(job.size()));
        engine.set_company(job.size());
        let directory = Directory::new(&engine, ranks)?;
        let service = engine.endpoint(u32::MAX)?;
        job.publish("address", life_cycle, engine.address()?.as_bytes())?;
        job.publish("directory", life_cycle, directory.key().as_bytes())?;
        let interrupts = interrupt::listen(&engine, &job, life_cycle)?;
        Ok(World {
            engine,
            job,
            life_cycle,
            joined: false,
            directory,
            _interrupts: interrupts,
            peers: (0..ranks).map(|_| OnceBox::new()).collect(),
            lives: (0..ranks).map(|_| AtomicU8::new(HEALTHY)).collect(),
            shown: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            imports: Imports::of(ranks),
            service,
            reclaimer: Reclaimer::of_threads(),
            deaths_seen: AtomicU32::new(0),
            changes_seen: AtomicU32::new(0),
            deaths: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            suspect: AtomicU32::new(0),
            last_look: Mutex::new(Instant::now()),
            looks: Looks::default(),
        })
    }

    /// Publishes a region under a name of at most 20 bytes. Call it before [`World::meet`], so that all ranks find it after that call. It is for regions that
    /// each rank has from the beginning. The [directory](World::directory) lists others.
    pub fn publish_region(&self, name: &str, key: &RegionKey) -> Result<()> {
        self.job.publish(name, self.life_cycle, key.as_bytes())
    }

    /// The region that `rank` has published under `name`. Errors: [`Error::InvalidArgument`], [`Error::Timeout`] if it has published none, [`Error::RankDead`],
    /// [`Error::Unreachable`].
    pub fn published_region(&self, rank: u32, name: &str) -> Result<RemoteRegion> {
        self.published_region_within(rank, name, Deadline::Never)
    }

    /// As [`World::published_region`]. Errors: also [`Error::Timeout`] if the rank must answer and has not; call again.
    pub fn published_region_within(
        &self,
        rank: u32,
        name: &str,
        deadline: Deadline,
    ) -> Result<RemoteRegion> {
        self.connect_within(rank, deadline)?;
        let key = self.fetch_bundle(rank, name)?;
        self.import_by(rank, &key, deadline)
    }

    /// Imports a region of `rank` by its key.
    pub(super) fn import_by(
        &self,
        rank: u32,
        key: &RegionKey,
        deadline: Deadline,
    ) -> Result<RemoteRegion> {
        let connection = self.connect_within(rank, deadline)?;
        let imported =
            self.while_they_live(rank, deadline, |until| connection.import_within(key, until));
        imported.map_err(|e| self.blame(rank, e))
    }

    /// Waits until each rank of the job has published itself. A process that replaces a dead one does not wait for dead ranks. Errors: [`Error::Timeout`] (call
    /// again), [`Error::RankDead`].
    pub fn meet(&self, deadline: Deadline) -> Result<()> {
        self.job.fence(self.life_cycle, deadline)?;
        self.know_who_is_there()
    }

    /// The engine.
    #[inline]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// This process's rank.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.job.rank()
    }

    /// Number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Connects to `rank`. Other calls connect by themselves, at the first use. Errors: [`Error::InvalidArgument`], [`Error::RankDead`] also after the rank has
    /// left, [`Error::Unreachable`].
    pub fn connect(&self, rank: u32) -> Result<Connection> {
        self.connect_within(rank, Deadline::Never)
    }

    /// As [`World::connect`]. Errors: also [`Error::Timeout`] if the rank must answer and has not; call again.
    pub fn connect_within(&self, rank: u32, deadline: Deadline) -> Result<Connection> {
        let place = self.place(rank)?;
        let incarnation = self.incarnation_of(rank);
        if self.life(rank) == Life::Dead {
            return Err(Error::RankDead(rank));
        }
        if let Some(connection) = &place.lock().connection {
            return Ok(connection.clone());
        }
        let address = self.fetch_bundle(rank, "address")?;
        // Not under the lock: a caller without a deadline would delay a caller with one.
        let new = self.while_they_live(rank, deadline, |until| {
            self.engine.connect_within(&address, until)
        });
        let new = new.map_err(|e| self.blame(rank, e))?;
        tracing::debug!(target: log::ROUTE, "rank {rank} is reached by {}", self.engine.describe(&new));
        let mut place = place.lock();
        if place.incarnation != incarnation {
            return Err(Error::RankDead(rank));
        }
        Ok(place.connection.get_or_insert(new).clone())
    }

    pub(super) fn place(&self, rank: u32) -> Result<&Mutex<PeerPlace>> {
        let place = self
            .peers
            .get(rank as usize)
            .ok_or_else(|| no_such_rank(rank, self.size()))?;
        Ok(place.get_or_init(|| {
            Box::new(Mutex::new(PeerPlace {
                incarnation: self.incarnation_of(rank),
                ..PeerPlace::default()
            }))
        }))
    }

    pub(super) fn connection(&self, rank: u32) -> Option<Connection> {
        let place = self.peers.get(rank as usize)?.get()?;
        place.lock().connection.clone()
    }

    /// Number of other ranks that this process has connected to. Each costs a mapping and a descriptor, so large jobs must keep them few.
    pub fn connections(&self) -> u32 {
        let others = (0..self.size()).filter(|rank| *rank != self.rank());
        others
            .filter(|rank| self.connection(*rank).is_some())
            .count() as u32
    }

    fn fetch_bundle(&self, rank: u32, what: &str) -> Result<Address> {
        let bytes = self.job.fetch(rank, what, self.life_cycle, Deadline::Now)?;
        // A replacement may have published it.
        self.check_incarnation(rank)?;
        Bundle::from_bytes(&bytes)
    }

    /// Names the rank in the error of a peer that has gone.
    pub fn blame(&self, rank: u32, error: Error) -> Error {
        if error == Error::PeerDead {
            self.look(true);
            self.dead(rank)
        } else {
            error
        }
    }

    /// Finds one of `ranks` that has gone, for an error without a rank. Memory lives as long as its process.
    #[cold]
    pub fn name_the_gone(&self, ranks: impl Iterator<Item = u32> + Clone, error: Error) -> Error {
        if !matches!(error, Error::PeerDead | Error::StaleRegion) {
            return error;
        }
        let gone = || {
            self.look(true);
            ranks
                .clone()
                .find(|rank| *rank != self.rank() && self.life(*rank) != Life::Alive)
        };
        // Another process may have seen the death earlier.
        let deadline = Deadline::after(NEWS_OF_DEATH);
        let found = self.engine.wait_for(deadline, &mut || Ok(()), gone);
        found.map_or(error, Error::RankDead)
    }

    pub(super) fn peer_directory(&self, rank: u32, deadline: Deadline) -> Result<RemoteRegion> {
        let place = self.place(rank)?;
        let incarnation = self.incarnation_of(rank);
        if let Some(directory) = &place.lock().directory {
            return Ok(directory.clone());
        }
        // As in `connect_within`.
        let imported = self.published_region_within(rank, "directory", deadline)?;
        let mut place = place.lock();
        if place.incarnation != incarnation {
            return Err(Error::RankDead(rank));
        }
        Ok(place.directory.get_or_insert(imported).clone())
    }

    pub(super) fn service(&self) -> &Endpoint {
        &self.service
    }

    pub(super) fn read_entry<T: Listed>(
        &self,
        look: &mut Look,
        rank: u32,
        offset: usize,
        deadline: Deadline,
    ) -> Result<Option<T>> {
        read_listed(offset, |at, into| self.read(look, rank, at, into, deadline))
    }

    /// The directory of this process.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Begins a [call](Call). It may read objects that other threads take out of use.
    #[inline(always)]
    pub fn call(&self) -> Call {
        Call::begin(|| self.look_around())
    }

    /// Looks at the states of the ranks. Callers count operations, and call it from time to time.
    #[cold]
    pub fn look_around(&self) {
        self.look(false);
    }

    /// Frees an object that no thread can find any more, after the calls that may read it. `weight`: its share of a batch, which is freed together.
    pub fn retire(&self, what: Box<dyn Send>, weight: usize) {
        self.reclaimer.retire(what, weight);
    }

    pub(super) fn gone_or_stale(&self, rank: u32, error: Error) -> Error {
        if error == Error::StaleRegion {
            // A directory lives as long as its process.
            self.look(true);
            if self.life(rank) == Life::Dead {
                return Error::RankDead(rank);
            }
        }
        self.blame(rank, error)
    }

    /// Leaves the job. The world must not be used afterwards.
    pub fn leave(&self) -> Result<()> {
        self.engine.leave();
        if self.joined {
            let mut joined = JOINED.lock();
            joined.active = joined.active.saturating_sub(1);
            if joined.active > 0 {
                return Ok(());
            }
        }
        self.job.bootstrap().leave()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.imports.free();
    }
}

pub(crate) fn no_such_rank(rank: u32, size: u32) -> Error {
    Error::InvalidArgument(format!(
        "there is no rank {rank}: ranks go from 0 to {}",
        size - 1
    ))
}
