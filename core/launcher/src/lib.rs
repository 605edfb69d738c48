//! Starts a job on this machine and supervises it: `unipgas run` as a library.

mod cluster;
mod crowd;
mod ends;
mod failure_policy;
mod forward;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hosts;
pub mod job_snapshot;
mod keeper;
pub mod library;
mod lines;
mod node;
mod output;
mod printer;
mod process;
mod program;
mod progress;
pub mod rates;
mod signals;
mod stragglers;
pub mod topology;
mod watch;

use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use cluster::NodePlacement;
pub use ends::OutputProperties;
pub use failure_policy::{FailureAction, FailureEffect, Rules};
pub use frames::OWN;
pub use hosts::{Hosts, NodeEvent, shell_line};
pub use keeper::{Keeper, keep, keep_part};
pub use node::NodeRanks;
pub use program::{ProgramError, check_program, find_program};
pub use signals::ignore_broken_pipes;
pub(crate) use signals::signal_name;

use unipgas_core::job::Board;
use unipgas_core::job::board::MAX_SIZE;
use unipgas_core::random::random;
use unipgas_core::{Error, Result};

/// Time between SIGTERM and SIGKILL when a job is ended.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Placement of the ranks on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindPolicy {
    /// The scheduler decides.
    #[default]
    None,
    /// Rank r on usable core r. With more ranks than cores, it starts again at the first core.
    Core,
    /// Neighbouring ranks together, in equal shares for each NUMA node.
    Numa,
}

impl BindPolicy {
    /// The name for `--bind` and the environment variable UNIPGAS_BIND.
    pub fn name(self) -> &'static str {
        match self {
            BindPolicy::None => "none",
            BindPolicy::Core => "core",
            BindPolicy::Numa => "numa",
        }
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [BindPolicy::None, BindPolicy::Core, BindPolicy::Numa];
        all.into_iter().find(|policy| policy.name() == name)
    }
}

/// Destination of the ranks' output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// The ranks inherit the launcher's standard output and error.
    #[default]
    Inherit,
    /// The launcher writes it to its own standard output and error. Each line comes from one rank, and from one of the two streams if these are different
    /// files.
    Lines,
    /// As [`Lines`](Output::Lines), and each line begins with `[rank] `.
    Tag,
    /// Into [`RankOutcome::stdout`] and [`RankOutcome::stderr`].
    Capture,
}

/// A job to be started. Make one by [`Launch::new`], and change its fields.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Number of processes, 1 to [`MAX_SIZE`].
    pub size: u32,
    /// The program: a path, or a name to search in PATH.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables, in addition to the inherited ones and the job's own.
    pub env: Vec<(OsString, OsString)>,
    /// UNIPGAS_BACKEND. `None`: the library's default.
    pub backend: Option<String>,
    /// UNIPGAS_SEED. Without one, the backend `chaos` gets a random seed: see [`JobOutcome::seed`].
    pub seed: Option<u64>,
    /// How ranks are bound to processors.
    pub bind: BindPolicy,
    /// Whether the launcher reports the processors of each rank.
    pub reports_bindings: bool,
    /// Whether the other ranks go on after a failure.
    pub keep_going: bool,
    /// Number of processes that may replace failed ones, one after the other.
    pub spares: u32,
    /// Destination of the output.
    pub output: Output,
    /// The directory of output files, `rank.N.out` and `rank.N.err`, which replace `output`.
    pub files: Option<PathBuf>,
    /// Properties of the launcher's own standard output and error, if it passes on the ranks' output: see [`OutputProperties::own`].
    pub ends: OutputProperties,
    /// The launcher ends the job after this time.
    pub timeout: Option<Duration>,
    /// The process that waits for this one, from [`keep`]. If it ends first, the launcher kills the job.
    pub keeper: Option<Keeper>,
    /// The launch replaces one dead rank of a running job. `size` is ignored.
    pub joins: Option<Join>,
    /// The job has ranks on other hosts, with launchers of their own. This launcher starts the ranks of this host.
    pub part: Option<NodeRanks>,
    /// The launcher is a separate process, as `unipgas run` is. It passes standard input to rank 0, forwards signals, and reports failures on standard
    /// error. Processes that the ranks have started end with the job. Off: input is empty, and the calling process's signals and other children are left
    /// alone.
    pub foreground: bool,
}

/// A dead rank of a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// UNIPGAS_JOB of the job's ranks.
    pub token: String,
    /// The rank.
    pub rank: u32,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Exit {
    /// Exit with this status.
    Code(i32),
    /// Death by this signal.
    Signal(i32),
}

impl Exit {
    /// Whether it ended with status 0.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }

    /// Exit status as in a shell: 128 + n for signal n.
    pub(crate) fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with status {code}"),
            Exit::Signal(signal) => write!(
                f,
                "was killed by signal {signal} ({})",
                signal_name(*signal)
            ),
        }
    }
}

/// End of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankOutcome {
    /// The rank.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
    /// End of the process.
    pub exit: Exit,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
}

/// End of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// In ascending order of ranks. For a job on several hosts, the ranks of this host. For a replaced rank, the last process.
    pub ranks: Vec<RankOutcome>,
    /// The first rank that failed without a spare.
    pub first_failure: Option<u32>,
    /// The job was ended after its timeout.
    pub timed_out: bool,
    /// Some output of the ranks could not be passed on (see [`Output::Lines`]).
    pub output_lost: bool,
    /// A rank has joined the job, as programs of GASPI and RCCE do.
    pub joined: bool,
    /// The ranks' seed.
    pub seed: Option<u64>,
    /// Name of the job.
    pub job: JobMark,
}

/// A job's name. While it exists, no other job of this process gets the same name.
#[derive(Debug, Clone)]
pub struct JobMark {
    token: String,
    /// Its number is a part of the name.
    _descriptor: Option<Arc<OwnedFd>>,
}

impl JobMark {
    /// The value of UNIPGAS_JOB in the ranks.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl PartialEq for JobMark {
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token
    }
}

impl Eq for JobMark {}

impl JobOutcome {
    /// Whether each rank ended with status 0, in time.
    pub fn success(&self) -> bool {
        self.status() == 0
    }

    /// Exit status of the job: status of the first failed rank; 124 if the timeout came first; 1 if output was lost.
    pub fn status(&self) -> i32 {
        match self.first_failure {
            Some(rank) => self
                .ranks
                .iter()
                .find(|one| one.rank == rank)
                .map_or(1, |one| one.exit.status()),
            None if self.timed_out => 124,
            None if self.output_lost => 1,
            None => 0,
        }
    }

    /// Status of one rank, as GPI-2's gaspi_run returns the status of rank 0. After a timeout: [`status`](JobOutcome::status).
    pub fn status_of(&self, rank: u32) -> i32 {
        let one = self.ranks.iter().find(|one| one.rank == rank);
        match one.filter(|_| !self.timed_out) {
            Some(one) if !one.exit.success() => one.exit.status(),
            Some(_) => i32::from(self.output_lost),
            None => self.status(),
        }
    }

    /// One line: the failed ranks, grouped by their ends. `None`: no rank has failed.
    pub fn failures(&self, size: u32) -> Option<String> {
        let mut kinds: Vec<(Exit, Vec<u32>)> = Vec::new();
        for one in self.ranks.iter().filter(|one| !one.exit.success()) {
            match kinds.iter_mut().find(|(exit, _)| *exit == one.exit) {
                Some((_, ranks)) => ranks.push(one.rank),
                None => kinds.push((one.exit, vec![one.rank])),
            }
        }
        let failed: usize = kinds.iter().map(|(_, ranks)| ranks.len()).sum();
        let parts = kinds.iter().map(|(exit, ranks)| {
            let plural = if ranks.len() > 1 { "s" } else { "" };
            let how = match exit {
                Exit::Code(code) => format!("status {code}"),
                Exit::Signal(signal) => signal_name(*signal).to_owned(),
            };
            format!("rank{plural} {} {how}", job_snapshot::listed(ranks))
        });
        let parts: Vec<_> = parts.collect();
        (failed > 0).then(|| format!("{failed} of {size} ranks failed: {}", parts.join(", ")))
    }
}

impl Launch {
    /// A job of `size` processes of `program`, with default options.
    pub fn new(size: u32, program: impl Into<OsString>) -> Launch {
        Launch {
            size,
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            backend: None,
            seed: None,
            bind: BindPolicy::None,
            reports_bindings: false,
            keep_going: false,
            spares: 0,
            output: Output::Inherit,
            ends: OutputProperties::default(),
            timeout: None,
            keeper: None,
            joins: None,
            part: None,
            files: None,
            foreground: false,
        }
    }

    /// Whether it reports events of the job on standard error. A part does not: the launcher of the whole reports them.
    fn tells(&self) -> bool {
        self.foreground && self.part.is_none()
    }

    /// Starts the job, and returns when all of its processes have ended. The processes die with the calling *thread*, which this call blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an invalid size or program, and for a [joined](Launch::joins) rank that is alive. [`Error::Exhausted`] and
    /// [`Error::Os`] if the machine cannot start all processes; processes already started have then been killed. [`Error::Unreachable`] if there is no job
    /// to join.
    pub fn run(mut self) -> Result<JobOutcome> {
        if let Some(join) = &self.joins {
            self.size = Board::attach(&join.token)?.size();
        }
        if self.size == 0 || self.size > MAX_SIZE {
            return Err(Error::InvalidArgument(format!(
                "a job has 1 to {MAX_SIZE} processes, not {}",
                self.size
            )));
        }
        if self.seed.is_none() && self.backend.as_deref() == Some("chaos") {
            self.seed = Some(u64::from(u32::from_ne_bytes(random()?)));
        }
        watch::run(&self)
    }
}

#[cfg(test)]
mod tests;
