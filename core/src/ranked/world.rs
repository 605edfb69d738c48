//! Processes with ranks: how a rank finds another one's memory, and what it knows of the others' lives.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;
use parking_lot::Mutex;

use super::imports::Imports;
use super::lives::HEALTHY;
use super::look::{Look, Looks};
use crate::bundle::{Address, Bundle, RegionKey};
use crate::calls::Call;
use crate::directory::{Directory, Listed, read_listed};
use crate::engine::{Connection, Engine};
use crate::interrupt;
use crate::job::Job;
use crate::limbo::Limbo;
use crate::region::{Region, RemoteRegion};
use crate::transport::Life;
use crate::{Deadline, Endpoint, Error, Result, log};

/// How long a rank that has just answered has for it to answer again, whatever the deadline.
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// How long an end may go unnoticed here once the memory has gone.
pub(super) const NEWS_OF_DEATH: Duration = Duration::from_secs(1);

/// What this process knows of a rank that it talks to.
#[derive(Default)]
pub(super) struct PeerPlace {
    /// Of which process the rest is.
    pub incarnation: u32,
    pub connection: Option<Connection>,
    pub directory: Option<RemoteRegion>,
}

/// One rank's view of its job.
pub struct World {
    pub(super) engine: Engine,
    pub(super) job: Job,
    pub(super) life_cycle: u32,
    /// Counted among those of this process.
    joined: bool,
    directory: Directory,
    /// Where ranks of other hosts ask this process to end.
    _interrupts: Option<Region>,
    /// A rank that is never talked to costs a pointer here, too.
    peers: Box<[OnceBox<Mutex<PeerPlace>>]>,
    pub(super) lives: Box<[AtomicU8]>,
    /// Ranks that the program has been told to be dead.
    pub(super) shown: Box<[AtomicBool]>,
    pub(super) imports: Imports,
    /// The library's own traffic.
    service: Endpoint,
    /// What calls may still be reading.
    limbo: Limbo,
    pub(super) deaths_seen: AtomicU32,
    pub(super) changes_seen: AtomicU32,
    /// Deaths known, and how many of them the program has been told.
    pub(super) deaths: AtomicU32,
    pub(super) acknowledged: AtomicU32,
    /// An operation has met a death: that of the rank less one, or of some rank ([`SOME_RANK`]). 0: none.
    pub(super) suspect: AtomicU32,
    pub(super) last_look: Mutex<Instant>,
    /// In directories.
    pub(super) looks: Looks,
}

/// The worlds of this process: how many there have been, and how many it has not left.
struct Joined {
    life_cycles: u32,
    active: u32,
}

static JOINED: Mutex<Joined> = Mutex::new(Joined {
    life_cycles: 0,
    active: 0,
});

impl World {
    /// [`World::new`] as this process's next life cycle. Interfaces that one program uses have a world each, and begin in the same
    /// order at all ranks.
    pub fn join(engine: Engine, job: Job) -> Result<Self> {
        let mut joined = JOINED.lock();
        let life_cycle = (joined.life_cycles + 1).max(job.bootstrap().first_cycle());
        // Where it fails nothing was told to anybody: the next try is the same life cycle.
        let mut world = World::new(engine, job, life_cycle)?;
        joined.life_cycles = life_cycle;
        joined.active += 1;
        world.joined = true;
        Ok(world)
    }

    /// Publishes this process; [`World::meet`] then waits for the others. `life_cycle` numbers the initialisations of this
    /// process from 1.
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
            limbo: Limbo::of_threads(),
            deaths_seen: AtomicU32::new(0),
            changes_seen: AtomicU32::new(0),
            deaths: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            suspect: AtomicU32::new(0),
            last_look: Mutex::new(Instant::now()),
            looks: Looks::default(),
        })
    }

    /// Tells the other ranks a region under a name of at most 20 bytes; call it before [`World::meet`], so that they find it after
    /// theirs. For what every rank has from the beginning; what comes and goes is listed in the [directory](World::directory).
    pub fn publish_region(&self, name: &str, key: &RegionKey) -> Result<()> {
        self.job.publish(name, self.life_cycle, key.as_bytes())
    }

    /// The region that `rank` has told under `name`. Errors: [`Error::InvalidArgument`], [`Error::Timeout`] if it has told none,
    /// [`Error::RankDead`], [`Error::Unreachable`].
    pub fn published_region(&self, rank: u32, name: &str) -> Result<RemoteRegion> {
        self.published_region_within(rank, name, Deadline::Never)
    }

    /// As [`World::published_region`]; [`Error::Timeout`] also where the rank has to answer, and has not: call again.
    pub fn published_region_within(
        &self,
        rank: u32,
        name: &str,
        deadline: Deadline,
    ) -> Result<RemoteRegion> {
        let connection = self.connect_within(rank, deadline)?;
        let key = self.fetch_bundle(rank, name)?;
        let imported = self.while_they_live(rank, deadline, |until| {
            connection.import_within(&key, until)
        });
        imported.map_err(|e| self.blame(rank, e))
    }

    /// Waits until every rank of the job has published itself; a process that takes the place of a dead one does not wait for the dead.
    /// Errors: [`Error::Timeout`] (call again), [`Error::RankDead`].
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

    /// Makes sure that `rank` can be communicated with; whatever needs a rank does so by itself, when it needs it first.
    /// Errors: [`Error::InvalidArgument`], [`Error::RankDead`] also for one that has left, [`Error::Unreachable`].
    pub fn connect(&self, rank: u32) -> Result<Connection> {
        self.connect_within(rank, Deadline::Never)
    }

    /// As [`World::connect`]; [`Error::Timeout`] where the rank has to answer, and has not: call again.
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
        // Not under the lock: who can wait for ever would hold up who cannot.
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

    /// Other ranks that this one has connected to so far. Each costs a mapping and a descriptor, so they are few where ranks are many.
    pub fn connections(&self) -> u32 {
        let others = (0..self.size()).filter(|rank| *rank != self.rank());
        others
            .filter(|rank| self.connection(*rank).is_some())
            .count() as u32
    }

    fn fetch_bundle(&self, rank: u32, what: &str) -> Result<Address> {
        let bytes = self.job.fetch(rank, what, self.life_cycle, Deadline::Now)?;
        // It may be what the next process has published.
        self.check_incarnation(rank)?;
        Bundle::from_bytes(&bytes)
    }

    /// A peer that has gone is named by its rank.
    pub fn blame(&self, rank: u32, error: Error) -> Error {
        if error == Error::PeerDead {
            self.look(true);
            self.dead(rank)
        } else {
            error
        }
    }

    /// Names one of `ranks` that has gone, for an error that does not say whose memory went: memory goes only with its process.
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
        // Another process may have seen the end before this one can.
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
        let connection = self.connect_within(rank, deadline)?;
        let key = self.fetch_bundle(rank, "directory")?;
        // As in `connect_within`.
        let imported = self.while_they_live(rank, deadline, |until| {
            connection.import_within(&key, until)
        });
        let imported = imported.map_err(|e| self.blame(rank, e))?;
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

    /// The own directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// A [call](Call) begins that may read what other threads take out of use.
    #[inline(always)]
    pub fn call(&self) -> Call {
        Call::begin(|| self.look_around())
    }

    /// Looks at the lives of the ranks, for what has counted operations for that.
    #[cold]
    pub fn look_around(&self) {
        self.look(false);
    }

    /// Frees something that nobody finds any more, when the calls that may be reading it are over. `weight`: its share of what is worth a
    /// look at them.
    pub fn retire(&self, what: Box<dyn Send>, weight: usize) {
        self.limbo.retire(what, weight);
    }

    pub(super) fn gone_or_stale(&self, rank: u32, error: Error) -> Error {
        if error == Error::StaleRegion {
            // A directory goes only with its process.
            self.look(true);
            if self.life(rank) == Life::Dead {
                return Error::RankDead(rank);
            }
        }
        self.blame(rank, error)
    }

    /// Leaves the job properly. The world is of no further use.
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
