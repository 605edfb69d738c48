//! Processes with ranks: how a rank finds another one's memory, and what it knows of the others' lives.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use once_cell::race::OnceBox;
use parking_lot::Mutex;

use super::look::{Look, Looks, Sought};
use crate::bundle::{Address, BUNDLE_LEN, Bundle, RegionKey};
use crate::calls::Call;
use crate::directory::{
    Directory, GROUP_PLACES, GROUPS, GroupEntry, Listed, REGION_IDS, RegionEntry, read_listed,
    region_entry, visibility_word,
};
use crate::engine::{Connection, Engine};
use crate::interrupt;
use crate::job::{Job, RankState};
use crate::limbo::{Limbo, Reader};
use crate::region::{Region, RemoteRegion};
use crate::transport::Life;
use crate::{Deadline, Endpoint, Error, Result};

/// How often, at most, the lives of peers are looked at by system calls; more rarely where many look at many.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_EACH: Duration = Duration::from_micros(100);
const LOOK_LATEST: Duration = Duration::from_millis(500);
/// How long a wait for somebody who has left properly goes on: what it did before it left may still be on its way.
const GRACE: Duration = Duration::from_secs(1);
/// How long a rank that has just answered has for it to answer again, whatever the deadline.
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// A divisor of [`GROUP_PLACES`].
const GROUPS_AT_ONCE: usize = 16;
const _: () = assert!(GROUP_PLACES.is_multiple_of(GROUPS_AT_ONCE));
/// How long an end may go unnoticed here once the memory has gone.
const NEWS_OF_DEATH: Duration = Duration::from_secs(1);

pub(super) const HEALTHY: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;

/// A pair of regions that a peer has listed under a number.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The data.
    pub data: RemoteRegion,
    /// The notification words that belong to it.
    pub notices: RemoteRegion,
}

type ImportTable = [AtomicPtr<Imported>; REGION_IDS];

/// What has been imported so far, by rank and number. A rank that is never talked to costs a pointer. Interfaces keep a clone at
/// hand: the way to a region is a chain of loads, and each link counts on the fast path.
#[derive(Clone)]
pub struct Imports(Arc<[AtomicPtr<ImportTable>]>);

impl Imports {
    /// What `rank` has listed under `id`, if it has been imported. The world that gave the imports must still be there.
    ///
    /// # Safety
    /// The result is used in one [call](Call), which has begun, or before the end of a [`Posting`](crate::Posting) of an
    /// endpoint that [`World::read_by`] knows, and the world is alive for as long.
    #[inline(always)]
    pub unsafe fn get(&self, rank: u32, id: usize) -> Option<&Imported> {
        let table = self.0.get(rank as usize)?.load(Ordering::Acquire);
        if table.is_null() || id >= REGION_IDS {
            return None;
        }
        // SAFETY:
        // - tables are freed with the world only, and imports not before the call is over in which they were found; `id` is in range.
        unsafe { (*table)[id].load(Ordering::Acquire).as_ref() }
    }
}

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
    engine: Engine,
    job: Job,
    life_cycle: u32,
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
    imports: Imports,
    /// The library's own traffic.
    service: Endpoint,
    /// What calls may still be reading.
    limbo: Limbo,
    deaths_seen: AtomicU32,
    changes_seen: AtomicU32,
    /// Deaths known, and how many of them the program has been told.
    deaths: AtomicU32,
    acknowledged: AtomicU32,
    last_look: Mutex<Instant>,
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
            imports: Imports((0..ranks).map(|_| AtomicPtr::new(null_mut())).collect()),
            service,
            limbo: Limbo::of_threads(),
            deaths_seen: AtomicU32::new(0),
            changes_seen: AtomicU32::new(0),
            deaths: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
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
        let imported = connection.import_within(&key, deadline);
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
        let new = self.engine.connect_within(&address, deadline);
        let new = new.map_err(|e| self.blame(rank, e))?;
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

    fn connection(&self, rank: u32) -> Option<Connection> {
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
    fn blame(&self, rank: u32, error: Error) -> Error {
        if error == Error::PeerDead {
            self.look(true);
            Error::RankDead(rank)
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
        let imported = connection.import_within(&key, deadline);
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

    fn read_entry<T: Listed>(
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

    /// What `rank` has listed under `id` and shown to this process. After the first time: two loads.
    /// Errors: [`Error::StaleRegion`] if there is nothing; those of [`World::import`].
    #[inline]
    pub fn imported<'a>(
        &'a self,
        rank: u32,
        id: usize,
        call: &'a Call,
        deadline: Deadline,
    ) -> Result<&'a Imported> {
        // SAFETY:
        // - the result borrows self and the call.
        match unsafe { self.imports.get(rank, id) } {
            Some(import) => Ok(import),
            None => self.import(rank, id, call, deadline),
        }
    }

    /// Frees something that nobody finds any more, when the calls that may be reading it are over. `weight`: its share of what is worth a
    /// look at them.
    pub fn retire(&self, what: Box<dyn Send>, weight: usize) {
        self.limbo.retire(what, weight);
    }

    /// What is retired is read by `reader`, too, until that is kept by nobody else.
    pub fn read_by(&self, reader: Arc<dyn Reader>) {
        self.limbo.read_by(reader);
    }

    /// What has been imported, to be kept at hand.
    pub fn imports(&self) -> Imports {
        self.imports.clone()
    }

    /// Forgets what was known of `id` at `rank` and looks again: after [`Error::StaleRegion`], since the owner may have listed
    /// something new. Errors: [`Error::Timeout`] where the rank has to answer, over a network, and has not: the next call goes on with what
    /// it has been asked for.
    #[cold]
    pub fn import<'a>(
        &'a self,
        rank: u32,
        id: usize,
        _call: &'a Call,
        deadline: Deadline,
    ) -> Result<&'a Imported> {
        if id >= REGION_IDS {
            return Err(Error::StaleRegion);
        }
        let incarnation = self.incarnation_of(rank);
        let found = self.look_for(rank, Sought::Region(id), deadline, |look, deadline| {
            self.find_region(look, rank, id, deadline).map(Some)
        })?;
        let fresh = Box::into_raw(Box::new(found.ok_or(Error::StaleRegion)?));
        let old = self.table(rank)[id].swap(fresh, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY:
            // - came from Box::into_raw above, and the swap gave it to this thread alone.
            let old = unsafe { Box::from_raw(old) };
            self.limbo.retire(old, 1);
        }
        if self.incarnation_of(rank) != incarnation {
            // Of the process before: nobody may find it any more.
            let gone = self.forget(rank).into_iter();
            gone.for_each(|one| self.limbo.retire(one, 1));
            return Err(Error::RankDead(rank));
        }
        // SAFETY:
        // - just made; kept until the call is over.
        Ok(unsafe { &*fresh })
    }

    /// Errors: [`Error::StaleRegion`]: it lists nothing for this process.
    fn find_region(
        &self,
        look: &mut Look,
        rank: u32,
        id: usize,
        deadline: Deadline,
    ) -> Result<Imported> {
        let entry: Option<RegionEntry> = self.read_entry(look, rank, region_entry(id), deadline)?;
        let mut bits = 0u64;
        let me = self.rank() as usize;
        let visible = visibility_word(id, me, self.peers.len());
        self.read(
            look,
            rank,
            visible,
            bytemuck::bytes_of_mut(&mut bits),
            deadline,
        )?;
        let entry = entry
            .filter(|_| bits & (1 << (me % 64)) != 0)
            .ok_or(Error::StaleRegion)?;
        let connection = self.connect_within(rank, deadline)?;
        let import = |bytes: &[u8; BUNDLE_LEN]| {
            connection
                .import_within(&RegionKey::from_bytes(bytes)?, deadline)
                .map_err(|e| self.blame(rank, e))
        };
        Ok(Imported {
            data: import(&entry.data)?,
            notices: import(&entry.notices)?,
        })
    }

    /// From now on nothing is found that has been imported from `rank`; to be [retired](World::retire), where memory may be released.
    pub fn forget(&self, rank: u32) -> Vec<Box<dyn Send>> {
        // SAFETY:
        // - null, or a table, which is freed with the world only.
        let table = unsafe {
            self.imports.0[rank as usize]
                .load(Ordering::Acquire)
                .as_ref()
        };
        let places = table.into_iter().flatten();
        let taken = places.filter_map(|place| {
            let old = place.swap(null_mut(), Ordering::AcqRel);
            // SAFETY:
            // - came from Box::into_raw in `import`, and the swap gave it to this thread alone.
            (!old.is_null()).then(|| unsafe { Box::from_raw(old) } as Box<dyn Send>)
        });
        taken.collect()
    }

    fn table(&self, rank: u32) -> &ImportTable {
        let place = &self.imports.0[rank as usize];
        let table = place.load(Ordering::Acquire);
        if !table.is_null() {
            // SAFETY:
            // - leaked until the world is dropped.
            return unsafe { &*table };
        }
        let fresh = Box::into_raw(Box::new(std::array::from_fn(
            |_| AtomicPtr::new(null_mut()),
        )));
        match place.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY:
            // - just made, and leaked until the world is dropped.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY:
                // - `fresh` has not been shared; `other` is the table that won.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &*other
                }
            }
        }
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

    /// The arena that `rank` has listed for the group `name`, if it has. The deadline is as for [`World::import`].
    pub fn find_group(
        &self,
        rank: u32,
        name: [u64; 2],
        deadline: Deadline,
    ) -> Result<Option<RemoteRegion>> {
        self.look_for(rank, Sought::Group(name), deadline, |look, deadline| {
            self.find_arena(look, rank, name, deadline)
        })
    }

    fn find_arena(
        &self,
        look: &mut Look,
        rank: u32,
        name: [u64; 2],
        deadline: Deadline,
    ) -> Result<Option<RemoteRegion>> {
        const EACH: usize = size_of::<GroupEntry>();
        for first in (0..GROUP_PLACES).step_by(GROUPS_AT_ONCE) {
            let mut seen = [GroupEntry::zeroed(); GROUPS_AT_ONCE];
            let at = GROUPS + first * EACH;
            self.read(
                look,
                rank,
                at,
                bytemuck::cast_slice_mut(&mut seen),
                deadline,
            )?;
            // The lowest free place is taken first: those behind one that has never been used have not been, either.
            let used = seen.iter().take_while(|entry| entry.was_used()).count();
            for nth in (0..used).filter(|nth| seen[*nth].may_be(name)) {
                let entry: Option<GroupEntry> =
                    self.read_entry(look, rank, at + nth * EACH, deadline)?;
                if let Some(entry) = entry.filter(|entry| entry.name == name) {
                    let key = RegionKey::from_bytes(&entry.arena)?;
                    let connection = self.connect_within(rank, deadline)?;
                    let imported = connection.import_within(&key, deadline);
                    return imported.map(Some).map_err(|e| self.blame(rank, e));
                }
            }
            if used < GROUPS_AT_ONCE {
                break;
            }
        }
        Ok(None)
    }

    /// Looks at the lives of the ranks: at what the launcher has seen, and (now and then, or if `thoroughly`) at the processes.
    fn look(&self, thoroughly: bool) {
        let deaths = self.job.deaths();
        let news = self.deaths_seen.swap(deaths, Ordering::AcqRel) != deaths;
        if !news && !thoroughly {
            let Some(mut last) = self.last_look.try_lock() else {
                return;
            };
            let pause = LOOK.max(LOOK_EACH * self.size()).min(LOOK_LATEST);
            if last.elapsed() < pause {
                return;
            }
            *last = Instant::now();
        }
        let bootstrap = self.job.bootstrap();
        bootstrap.look();
        if !bootstrap.launcher_lives() {
            // Without its launcher a job has nobody who ends it: as under mpirun, its processes go too.
            tracing::error!("the launcher has ended: so does this process");
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::TERM,
            );
        }
        // Counted before the states are read: what changes meanwhile is seen the next time.
        let changes = bootstrap.changes();
        let changed = self.changes_seen.load(Ordering::Acquire) != changes;
        for rank in (0..self.size()).filter(|rank| *rank != self.rank()) {
            let connection = self.connection(rank);
            if changed || connection.is_some() {
                self.look_at(rank, connection.as_ref());
            }
        }
        self.changes_seen.store(changes, Ordering::Release);
    }

    fn look_at(&self, rank: u32, connection: Option<&Connection>) {
        let place = &self.lives[rank as usize];
        if place.load(Ordering::Acquire) == DEAD {
            return;
        }
        let seen = connection.map_or(Life::Alive, Connection::life);
        // The state is that of the process that is there now.
        let told = match self.check_incarnation(rank) {
            Ok(()) => self.job.bootstrap().state(rank).ok(),
            Err(_) => Some(RankState::Dead),
        };
        let life = match (seen, told) {
            (Life::Dead, _) | (_, Some(RankState::Dead)) => DEAD,
            (Life::Left, _) | (_, Some(RankState::Finalized)) => LEFT,
            _ => HEALTHY,
        };
        if place.swap(life, Ordering::AcqRel) != DEAD && life == DEAD {
            self.deaths.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(rank, "a rank has died");
        }
    }

    /// What is known of a rank's life.
    pub fn life(&self, rank: u32) -> Life {
        match self
            .lives
            .get(rank as usize)
            .map(|life| life.load(Ordering::Acquire))
        {
            Some(HEALTHY) => Life::Alive,
            Some(LEFT) => Life::Left,
            _ => Life::Dead,
        }
    }

    /// Looks at the life of one rank now.
    pub fn lives_now(&self, rank: u32) -> Life {
        self.look(true);
        self.life(rank)
    }

    /// The lives of all ranks, by rank. From now on the deaths among them end no wait for "anyone" any more: the program knows.
    pub fn lives(&self) -> Vec<Life> {
        self.look(true);
        let known = self.deaths.load(Ordering::Acquire);
        self.acknowledged.store(known, Ordering::Release);
        let told = |rank| {
            let life = self.life(rank);
            if life == Life::Dead {
                self.shown[rank as usize].store(true, Ordering::Release);
            }
            life
        };
        (0..self.size()).map(told).collect()
    }

    /// Looks at the lives of the ranks if the launcher has seen another one die. Asks only what costs nothing.
    #[inline]
    pub fn look_at_news(&self) {
        if self.job.deaths() != self.deaths_seen.load(Ordering::Relaxed) {
            self.look(false);
        }
    }

    /// For waits that anyone could end: errors if a rank has died and the program has not been told by [`World::lives`].
    pub fn check_anyone(&self) -> Result<()> {
        self.look(false);
        if self.deaths.load(Ordering::Acquire) == self.acknowledged.load(Ordering::Acquire) {
            return Ok(());
        }
        let dead = self
            .lives
            .iter()
            .position(|life| life.load(Ordering::Acquire) == DEAD);
        Err(Error::RankDead(dead.unwrap_or_default() as u32))
    }

    /// For waits that anyone else could end: errors as [`World::check_anyone`], and if all others have left a while ago. `since`: as for
    /// [`World::check_ranks`].
    pub fn check_company(&self, since: &mut Option<Instant>) -> Result<()> {
        self.check_anyone()?;
        let mut others = (0..self.size()).filter(|rank| *rank != self.rank());
        let Some(first) = others.clone().next() else {
            return Ok(());
        };
        if others.any(|rank| self.life(rank) == Life::Alive) {
            return Ok(());
        }
        self.check_ranks(&[first], since)
    }

    /// For waits that need each of `ranks`: errors if one has died, or has left a while ago. `since`: when the wait began to
    /// notice (start with `None`).
    pub fn check_ranks(&self, ranks: &[u32], since: &mut Option<Instant>) -> Result<()> {
        self.look(false);
        for rank in ranks {
            match self.life(*rank) {
                Life::Alive => {}
                Life::Dead => return Err(Error::RankDead(*rank)),
                Life::Left => {
                    if since.get_or_insert_with(Instant::now).elapsed() > GRACE {
                        return Err(Error::RankDead(*rank));
                    }
                }
            }
        }
        Ok(())
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
        for place in &*self.imports.0 {
            // A clone of the imports that outlives the world finds nothing.
            let table = place.swap(null_mut(), Ordering::AcqRel);
            if table.is_null() {
                continue;
            }
            // SAFETY:
            // - tables and imports came from Box::into_raw, and nobody else has a reference to the world any more.
            unsafe {
                for import in &*table {
                    let import = import.load(Ordering::Acquire);
                    if !import.is_null() {
                        drop(Box::from_raw(import));
                    }
                }
                drop(Box::from_raw(table));
            }
        }
    }
}

pub(crate) fn no_such_rank(rank: u32, size: u32) -> Error {
    Error::InvalidArgument(format!(
        "there is no rank {rank}: ranks go from 0 to {}",
        size - 1
    ))
}
