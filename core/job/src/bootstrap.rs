//! Bootstrap of a process: its rank and job, exchange of data with other ranks before they can communicate, and reports of their deaths.
//!
//! There are three sources:
//! - the board of `unipgas run`
//! - another launcher (`Launched`): PMIx (Open MPI's `mpirun`, `prterun`, `srun --mpi=pmix`) or PMI (MPICH's `mpiexec`)
//! - none: the process is [alone](Alone)
//!
//! In tests and simulations, ranks share one process ([`LoopbackJob`]).

mod alone;
mod environment;
mod fence;
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod host;
mod launched;
mod loopback;
pub(crate) mod pmi;
mod pmix;
mod ranked;

pub use alone::Alone;
pub(crate) use launched::Launched;
pub use loopback::LoopbackJob;
pub(crate) use ranked::Ranked;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::job::{Board, RankState};
use crate::rendezvous::{JobName, Launcher};
use unipgas_base::{Deadline, Error, Result, log, nap, variables};

/// Services that a job needs from the launcher of its processes.
///
/// A published value has a name and a *cycle*, which counts the initialisations of a process from 1. A source may forget values of the cycle before the
/// last.
pub trait Bootstrap: Send + Sync {
    /// Short name of the source of rank and size.
    fn source(&self) -> String;

    /// This process's rank, from 0.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn size(&self) -> u32;

    /// Ranks on this host, this one included.
    fn neighbours(&self) -> u32;

    /// Whether the job has, or has had, ranks on other hosts. All ranks always get the same answer.
    fn spans_hosts(&self) -> bool {
        self.neighbours() < self.size()
    }

    /// Number of hosts of the job, if the launcher provides it. All ranks get the same answer.
    fn hosts(&self) -> Option<u32> {
        (!self.spans_hosts()).then_some(1)
    }

    /// CPUs that the ranks of this host share.
    fn cpus(&self) -> u32;

    /// Whether `rank` is on this host.
    fn shares_host(&self, rank: u32) -> bool;

    /// Publishes `value` (at most 448 bytes) under `name` (at most 20) for the other ranks. Values published before a fence are visible after it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::Exhausted`]. [`Error::Os`] if the launcher cannot be reached.
    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()>;

    /// Makes published values visible without a fence. May wait until all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Os`], [`Error::Unreachable`] if the launcher cannot be reached.
    fn commit(&self) -> Result<()> {
        Ok(())
    }

    /// The value that `rank` has published. `None`: not published yet.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]. [`Error::Os`] if the launcher cannot be reached.
    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>>;

    /// Waits until each rank has arrived at fence number `cycle` (from 1 on).
    ///
    /// # Errors
    /// [`Error::Timeout`]: the caller may call again. [`Error::RankDead`] if a rank has died.
    fn fence(&self, cycle: u32, deadline: Deadline) -> Result<()>;

    /// Count of known deaths. Its address never changes: fast paths load it.
    fn deaths(&self) -> &AtomicU32;

    /// Number of changes of a [`state`](Self::state) so far.
    fn changes(&self) -> u32 {
        0
    }

    /// Stage of the life of `rank`, as far as known.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the job has no such rank.
    fn state(&self, rank: u32) -> Result<RankState>;

    /// Number of processes that had this rank before. Above 0, this process replaces a dead one.
    fn incarnation(&self) -> u32 {
        0
    }

    /// Number of processes of `rank` that have died.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the job has no such rank.
    fn died(&self, rank: u32) -> Result<u32> {
        Ok(u32::from(self.state(rank)? == RankState::Dead))
    }

    /// The last incarnation of `rank` that has published its data for the other ranks.
    ///
    /// # Errors
    /// As [`died`](Self::died).
    fn present(&self, rank: u32) -> Result<u32> {
        let _ = rank;
        Ok(0)
    }

    /// The cycle in which this process begins: 1, or the cycle in which the process that it replaces died.
    fn first_cycle(&self) -> u32 {
        1
    }

    /// Checks for deaths that no launcher reports. It makes system calls, so it is not for fast paths.
    fn look(&self) {}

    /// Whether the launcher still runs. It makes system calls, so it is not for fast paths.
    fn launcher_lives(&self) -> bool {
        true
    }

    /// Sends an interrupt signal to the process of `rank`, to end it on purpose. `World::end` does so for ranks of all hosts.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]. [`Error::PeerDead`] if the rank has no process. [`Error::Unreachable`] for a rank of another host, unless
    /// `unipgas run` has started the job.
    fn end(&self, rank: u32) -> Result<()>;

    /// Leaves the job properly.
    ///
    /// # Errors
    /// [`Error::Os`] if the launcher cannot be reached.
    fn leave(&self) -> Result<()> {
        Ok(())
    }
}

/// The source in the environment. The first of these decides:
/// - `unipgas run`: UNIPGAS_JOB, UNIPGAS_RANK and UNIPGAS_SIZE
/// - PMIx: PMIX_NAMESPACE and PMIX_RANK
/// - PMI: PMI_RANK and PMI_SIZE
/// - none: a job of one
///
/// # Errors
/// [`Error::InvalidArgument`] for inconsistent values, and if an unknown launcher has started several processes. [`Error::Unreachable`] if the launcher has
/// ended or cannot be reached.
pub fn from_env() -> Result<Arc<dyn Bootstrap>> {
    variables::check()?;
    log::begin(JobName::rank_from_env)?;
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

/// Variables that identify launchers.
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

/// Variables of launchers in the environment, and their values, for users.
pub fn traces() -> Vec<(&'static str, String)> {
    let found = |name: &'static str| Some((name, std::env::var(name).ok()?));
    TRACES.into_iter().filter_map(found).collect()
}

/// The source of a job with ranks on other hosts, for a process that may start without the others. `None`: all ranks are on this host, or the job has no
/// ranks. The launcher is not contacted if the environment shows that all ranks are here.
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

/// Number of ranks of `job` on this host, if the environment or the board of `unipgas run` shows it.
///
/// # Errors
/// [`Error::InvalidArgument`]. [`Error::Unreachable`] if `unipgas run` has ended.
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
    let Some((hosts, host)) = unipgas_engine::host::played()? else {
        let token = variables::get("UNIPGAS_JOB")?.unwrap_or_default();
        return match Board::attach(&token) {
            Ok(board) => Ok(Some(board.here())),
            // UNIPGAS_JOB is a name that a user has chosen for processes of this host.
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
