//! Who this process is, how it finds the others of its job before they can communicate, and what it learns of their lives.
//!
//! Three sources tell it: the [board](Ranked) of `unipgas run`; another launcher ([`Launched`]): PMIx (Open MPI's `mpirun`, `prterun`,
//! `srun --mpi=pmix`) or PMI (MPICH's `mpiexec`); or nobody, and the process is [alone](Alone).

mod alone;
mod environment;
mod fence;
mod foreign;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
mod host;
mod launched;
pub(crate) mod pmi;
mod pmix;
mod ranked;

pub use alone::Alone;
pub use launched::Launched;
pub use ranked::Ranked;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::job::{Board, RankState};
use crate::rendezvous::{JobName, Launcher};
use crate::{Deadline, Error, Result, log, nap, variables};

/// What a job needs from whoever has started its processes.
///
/// What is published is told apart by a name and by the *cycle*, which counts the initialisations of a process from 1: a source may
/// forget what belongs to the one before the last.
pub trait Bootstrap: Send + Sync {
    /// Where rank and size come from, in a few words.
    fn source(&self) -> String;

    /// This process's rank, from 0.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn size(&self) -> u32;

    /// Ranks on this host, this one included.
    fn neighbours(&self) -> u32;

    /// Whether the job has, or has had, ranks on other hosts. All ranks say the same, at any time.
    fn spans_hosts(&self) -> bool {
        self.neighbours() < self.size()
    }

    /// How many hosts the job has, where the launcher tells that. All ranks say the same.
    fn hosts(&self) -> Option<u32> {
        (!self.spans_hosts()).then_some(1)
    }

    /// CPUs that the ranks of this host share.
    fn cpus(&self) -> u32;

    /// Whether `rank` is on this host.
    fn shares_host(&self, rank: u32) -> bool;

    /// Tells the other ranks `value` (at most 448 bytes) under `name` (at most 20). What is published before a fence is found after it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::Exhausted`]; [`Error::Os`] where the launcher cannot be talked to.
    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()>;

    /// Has what was published found without a fence. May wait until all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Os`], [`Error::Unreachable`] where the launcher cannot be talked to.
    fn commit(&self) -> Result<()> {
        Ok(())
    }

    /// What `rank` has published; `None` if it has not yet.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; [`Error::Os`] where the launcher cannot be talked to.
    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>>;

    /// Waits until every rank has come to fence number `cycle` (from 1 on).
    ///
    /// # Errors
    /// [`Error::Timeout`]: call again; [`Error::RankDead`] if a rank has died.
    fn fence(&self, cycle: u32, deadline: Deadline) -> Result<()>;

    /// Counts the deaths that are known, always in the same place: fast paths load it.
    fn deaths(&self) -> &AtomicU32;

    /// How often a [`state`](Self::state) has changed so far.
    fn changes(&self) -> u32;

    /// Where `rank` is in its life, as far as known.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that the job does not have.
    fn state(&self, rank: u32) -> Result<RankState>;

    /// How many processes have had this rank before this one, which has taken the place of a dead one then.
    fn incarnation(&self) -> u32 {
        0
    }

    /// How many processes of `rank` have died.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that the job does not have.
    fn died(&self, rank: u32) -> Result<u32> {
        Ok(u32::from(self.state(rank)? == RankState::Dead))
    }

    /// The last incarnation of `rank` that can be talked to: it has published all that the others need.
    ///
    /// # Errors
    /// As [`died`](Self::died).
    fn present(&self, rank: u32) -> Result<u32> {
        let _ = rank;
        Ok(0)
    }

    /// The cycle in which this process begins: that in which the process has died whose place it has taken.
    fn first_cycle(&self) -> u32 {
        1
    }

    /// Looks for deaths that nobody tells of. System calls: not for fast paths.
    fn look(&self) {}

    /// Whether the launcher still runs. System calls: not for fast paths.
    fn launcher_lives(&self) -> bool {
        true
    }

    /// Sends the process of a rank of this host an interrupt signal, to end it on purpose. `World::end` does so for all ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; [`Error::Unreachable`] for a rank of another host.
    fn end(&self, rank: u32) -> Result<()>;

    /// Leaves the job in order.
    ///
    /// # Errors
    /// [`Error::Os`] where the launcher cannot be talked to.
    fn leave(&self) -> Result<()>;
}

/// The source that the environment names: `unipgas run` by UNIPGAS_JOB, UNIPGAS_RANK and UNIPGAS_SIZE; else PMIx by PMIX_NAMESPACE and
/// PMIX_RANK; else PMI by PMI_RANK and PMI_SIZE; else none, for a job of one.
///
/// # Errors
/// [`Error::InvalidArgument`] for values that do not fit together, and where a launcher that is not understood has started several
/// processes; [`Error::Unreachable`] if the launcher has gone or cannot be talked to.
pub fn from_env() -> Result<Arc<dyn Bootstrap>> {
    variables::check()?;
    log::begin()?;
    nap::begin()?;
    if let Some(token) = variables::get("UNIPGAS_JOB")? {
        return Ok(Arc::new(by_token(&token)?));
    }
    if let Some(server) = pmix::from_env()? {
        return Ok(Arc::new(Launched::new(server)?));
    }
    if let Some(server) = pmi::from_env()? {
        return Ok(Arc::new(Launched::new(server)?));
    }
    foreign::refuse(&|name| std::env::var(name).ok())?;
    Ok(Arc::new(Alone::default()))
}

/// What launchers are known by.
const TRACES: [&str; 17] = [
    "UNIPGAS_JOB",
    "UNIPGAS_RANK",
    "UNIPGAS_SIZE",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "PMI_JOBID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
];

/// What launchers have left in the environment, for people: variables and their values.
pub fn traces() -> Vec<(&'static str, String)> {
    let found = |name: &'static str| Some((name, std::env::var(name).ok()?));
    TRACES.into_iter().filter_map(found).collect()
}

/// The source, for a process of `job` that may start without the others, where the job has ranks on other hosts; `None` if all are here, or
/// have no ranks. On one host no launcher is talked to.
///
/// # Errors
/// As [`from_env`].
pub fn beyond_this_host(job: &JobName) -> Result<Option<Arc<dyn Bootstrap>>> {
    if neighbours(job)?.is_none_or(|here| job.size() != Some(here)) && job.rank().is_some() {
        let bootstrap = from_env()?;
        if bootstrap.spans_hosts() {
            return Ok(Some(bootstrap));
        }
    }
    Ok(None)
}

/// How many ranks of `job` are on this host, as far as the environment or the board of `unipgas run` tells.
///
/// # Errors
/// [`Error::InvalidArgument`]; [`Error::Unreachable`] if `unipgas run` has ended.
pub fn neighbours(job: &JobName) -> Result<Option<u32>> {
    let Some(size) = job.size() else {
        return Ok(None);
    };
    if job.launcher() != Launcher::Unipgas {
        return Ok(environment::neighbours(
            &|name| std::env::var(name).ok(),
            size,
        ));
    }
    let Some((hosts, host)) = crate::host::played()? else {
        let token = variables::get("UNIPGAS_JOB")?.unwrap_or_default();
        return match Board::attach(&token) {
            Ok(board) => Ok(Some(board.here())),
            // A name that somebody has given to processes of this host.
            Err(Error::InvalidArgument(_)) => Ok(Some(size)),
            Err(error) => Err(error),
        };
    };
    Ok(Some(size.saturating_sub(host).div_ceil(hosts)))
}

fn by_token(token: &str) -> Result<Ranked> {
    let number = |name: &str| -> Result<u32> {
        let value = variables::get(name)?.unwrap_or_default();
        let must = "must be a number beside UNIPGAS_JOB: start the program by `unipgas run`";
        value
            .parse()
            .map_err(|_| variables::wrong(name, &value, must))
    };
    let (rank, size) = (number("UNIPGAS_RANK")?, number("UNIPGAS_SIZE")?);
    let board = Board::attach(token)?;
    if size != board.size() {
        return Err(Error::InvalidArgument(format!(
            "UNIPGAS_SIZE is {size}, but the job has {} ranks",
            board.size()
        )));
    }
    Ranked::new(board, rank)
}
