//! The job of a process: its rank, the number of ranks, and the data that ranks publish for each other.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Board, RankState};
use crate::bootstrap::{self, Bootstrap, Ranked};
use unipgas_base::{Deadline, Error, Result, log, trace};

/// Reports long waits of this process on the board of `unipgas run`, if that has started it. For processes that join no job.
pub fn tell_waits() {
    trace::begin(
        std::env::var("UNIPGAS_RANK")
            .ok()
            .and_then(|rank| rank.parse().ok()),
    );
    let found = || {
        let token = std::env::var("UNIPGAS_JOB").ok()?;
        let rank: u32 = std::env::var("UNIPGAS_RANK").ok()?.parse().ok()?;
        Some((Board::attach(&token).ok()?, rank))
    };
    if let Some((board, rank)) = found()
        // Otherwise the rank is another process, which has started this one.
        && (board.state(rank) == Ok(RankState::Absent) || board.pid(rank) == Ok(std::process::id()))
    {
        board.tell_waits(rank);
    }
}

/// Time that a wait at the bootstrap yields before it sleeps.
const YIELD: Duration = Duration::from_millis(1);
/// Shortest and longest sleep after that.
const SLEEP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// The job of this process, by its [`Bootstrap`].
pub struct Job {
    rank: u32,
    size: u32,
    bootstrap: Arc<dyn Bootstrap>,
    /// The bootstrap's count of deaths. One load shows that no rank has died.
    deaths: NonNull<AtomicU32>,
}

// SAFETY:
// - `deaths` points into the bootstrap, which is Send and lives as long as `self`. It is accessed as an atomic only.
unsafe impl Send for Job {}
// SAFETY:
// - as for Send. The bootstrap is Sync.
unsafe impl Sync for Job {}

impl Job {
    /// The job in the environment, or a job of one without any. Errors: as [`bootstrap::from_env`].
    pub fn from_env() -> Result<Self> {
        let job = Job::new(bootstrap::from_env()?);
        trace::begin(Some(job.rank));
        tracing::info!(
            target: log::JOB,
            here = job.neighbours(),
            hosts = job.bootstrap.hosts(),
            cpus = job.bootstrap.cpus(),
            bound_by = std::env::var("UNIPGAS_BIND").ok().as_deref(),
            "rank {} of {}",
            job.rank,
            job.size
        );
        Ok(job)
    }

    /// The job of `bootstrap`.
    pub fn new(bootstrap: Arc<dyn Bootstrap>) -> Self {
        let deaths = NonNull::from(bootstrap.deaths());
        Job {
            rank: bootstrap.rank(),
            size: bootstrap.size(),
            bootstrap,
            deaths,
        }
    }

    /// Rank `rank` of the job on `board`. Errors: [`Error::InvalidArgument`] if the job has no such rank. [`Error::Unreachable`] if another process has
    /// replaced it.
    pub fn on_board(board: Board, rank: u32) -> Result<Self> {
        Ok(Job::new(Arc::new(Ranked::new(board, rank)?)))
    }

    /// This process's rank, from 0.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Ranks on this host, this one included.
    pub fn neighbours(&self) -> u32 {
        self.bootstrap.neighbours()
    }

    /// Whether `ranks` ranks can exceed the CPUs of this host, so that spinning wastes CPU time.
    pub fn crowded(&self, ranks: u32) -> bool {
        ranks.min(self.neighbours()) > self.bootstrap.cpus()
    }

    /// Whether one counter takes the arrivals of `ranks` ranks: all ranks are on one host, which is [`crowded`](Job::crowded) with these. All ranks get the
    /// same answer.
    pub fn gathers(&self, ranks: u32) -> bool {
        !self.bootstrap.spans_hosts() && self.crowded(ranks)
    }

    /// Approximate number of ranks on each host, if there are several hosts and their number is known. All ranks get the same answer.
    pub fn each_host(&self) -> Option<u32> {
        let hosts = self.bootstrap.hosts().filter(|hosts| *hosts > 1)?;
        Some(self.size().div_ceil(hosts))
    }

    /// Number of ranks that are known to have died. One relaxed load.
    #[inline]
    pub fn deaths(&self) -> u32 {
        // SAFETY:
        // - `Bootstrap::deaths` returned a reference into the bootstrap, which lives as long as `self`, and of which only shared references exist.
        unsafe { self.deaths.as_ref() }.load(Ordering::Relaxed)
    }

    /// The bootstrap.
    pub fn bootstrap(&self) -> &dyn Bootstrap {
        &*self.bootstrap
    }

    /// The bootstrap, as a shared pointer.
    pub fn shared_bootstrap(&self) -> &Arc<dyn Bootstrap> {
        &self.bootstrap
    }

    /// Publishes `value` (at most 448 bytes) under `name` (at most 20) in initialisation `cycle`. A later value of the same name overwrites it.
    pub fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()> {
        self.bootstrap.publish(name, cycle, value)
    }

    /// Waits for the value that `rank` publishes under `name`. Errors: [`Error::Timeout`]. [`Error::RankDead`] if `rank` dies first.
    pub fn fetch(&self, rank: u32, name: &str, cycle: u32, deadline: Deadline) -> Result<Vec<u8>> {
        let start = Instant::now();
        let mut sleep = SLEEP.0;
        loop {
            if let Some(value) = self.bootstrap.fetch(rank, name, cycle)? {
                return Ok(value);
            }
            if self.bootstrap.state(rank)? == RankState::Dead {
                return Err(Error::RankDead(rank));
            }
            if deadline.expired() {
                return Err(Error::Timeout);
            }
            if start.elapsed() < YIELD {
                std::thread::yield_now();
            } else {
                std::thread::sleep(sleep.min(deadline.remaining().unwrap_or(sleep)));
                sleep = (sleep * 2).min(SLEEP.1);
            }
        }
    }

    /// Waits until each rank has arrived at fence number `cycle` (from 1 on). Errors: [`Error::Timeout`]: the caller may call again. [`Error::RankDead`] if
    /// a rank has died.
    pub fn fence(&self, cycle: u32, deadline: Deadline) -> Result<()> {
        self.bootstrap.fence(cycle, deadline)
    }
}
