//! Starting a job on this machine and seeing it through: what `unipgas run` does, as a library.

mod course;
mod crowd;
mod ends;
mod forward;
mod frames;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hosts;
mod keeper;
pub mod library;
mod lines;
mod output;
mod part;
pub mod picture;
mod printer;
mod process;
mod program;
mod progress;
pub mod rates;
mod signals;
mod stragglers;
pub mod topology;
mod watch;
mod whole;

use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use course::{Others, Rules, Then};
pub use ends::Ends;
pub use frames::OWN;
pub use hosts::{Hosts, Told, shell_line};
pub use keeper::{Keeper, keep};
pub use part::Part;
pub use program::{ProgramError, check_program, find_program};
pub use signals::signal_name;
pub use whole::Place;

use unipgas_core::job::Board;
use unipgas_core::job::board::MAX_SIZE;
use unipgas_core::{Error, Result};

/// How long processes have between SIGTERM and SIGKILL when a job is ended.
pub const GRACE: Duration = Duration::from_secs(2);

/// How the ranks are spread over the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindPolicy {
    /// Left to the scheduler.
    #[default]
    None,
    /// Rank r on usable core r, starting over when there are more ranks than cores.
    Core,
    /// Neighbouring ranks together, in equal shares per NUMA node.
    Numa,
}

impl BindPolicy {
    /// As in `--bind` and the environment variable UNIPGAS_BIND.
    pub fn name(self) -> &'static str {
        match self {
            BindPolicy::None => "none",
            BindPolicy::Core => "core",
            BindPolicy::Numa => "numa",
        }
    }

    /// The one that is called so.
    pub fn named(name: &str) -> Option<Self> {
        let all = [BindPolicy::None, BindPolicy::Core, BindPolicy::Numa];
        all.into_iter().find(|policy| policy.name() == name)
    }
}

/// Where the output of the ranks goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// The launcher's own standard output and error are those of the ranks.
    #[default]
    Inherit,
    /// There too, by the launcher: a line is of one rank, and of standard output or error, where these are different files.
    Lines,
    /// So, and each line begins with `[rank] `.
    Tag,
    /// Into [`RankOutcome::stdout`] and [`RankOutcome::stderr`].
    Capture,
}

/// A job to be started. Make one by [`Launch::new`] and change what should differ.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Number of processes, 1 to [`MAX_SIZE`].
    pub size: u32,
    /// The program: a path, or a name that is looked for in PATH.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables beside the inherited ones and the job's own.
    pub env: Vec<(OsString, OsString)>,
    /// UNIPGAS_BACKEND; without one the library's default.
    pub backend: Option<String>,
    /// UNIPGAS_SEED. If there is none and the backend is `chaos`, one is drawn: see [`Outcome::seed`].
    pub seed: Option<u64>,
    /// How ranks are bound to processors.
    pub bind: BindPolicy,
    /// Whether it is told to which ones.
    pub reports_bindings: bool,
    /// Whether the other ranks go on when one has failed.
    pub keep_going: bool,
    /// How many processes may take the places of those that fail, one after the other.
    pub spares: u32,
    /// Where output goes.
    pub output: Output,
    /// The directory of files that output goes to instead: `rank.N.out` and `rank.N.err`.
    pub files: Option<PathBuf>,
    /// What the launcher's own standard output and error are, where it passes on those of the ranks: see [`Ends::own`].
    pub ends: Ends,
    /// After this time the job is ended.
    pub timeout: Option<Duration>,
    /// The process that waits for this one, from [`keep`]: if it ends first, the job is killed.
    pub keeper: Option<Keeper>,
    /// The job is there already, and this is about one of its ranks, which is dead: `size` is not looked at.
    pub joins: Option<Join>,
    /// The job has ranks on other hosts, with launchers of their own: this one starts those that are here.
    pub part: Option<Part>,
    /// The launcher is a process of its own, as `unipgas run` is: standard input goes to rank 0, signals are forwarded,
    /// failures are told on standard error, and what the ranks have started ends with the job. Off: input is empty, and
    /// the calling process's signals and other children are left alone.
    pub foreground: bool,
}

/// A place in a job whose process has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// What the job's ranks have been told as UNIPGAS_JOB.
    pub token: String,
    /// The rank.
    pub rank: u32,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// Whether it ended with status 0.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }

    /// The status that a shell would give: 128 + n for signal n.
    pub fn status(self) -> i32 {
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

/// How one rank ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankOutcome {
    /// Which.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
    /// What it wrote to standard output, if that was captured.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, if that was captured.
    pub stderr: Vec<u8>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// By rank; of a job on several hosts those that were on this one. Where spares have taken the places of others, those that were there last.
    pub ranks: Vec<RankOutcome>,
    /// The rank that was the first to fail with no spare for it.
    pub first_failure: Option<u32>,
    /// The job was ended because its time was over.
    pub timed_out: bool,
    /// What the ranks wrote could not be passed on (see [`Output::Lines`]).
    pub output_lost: bool,
    /// A rank has joined the job, as programs of GASPI and RCCE do.
    pub joined: bool,
    /// The seed that the ranks were given.
    pub seed: Option<u64>,
    /// What the job was called.
    pub job: JobMark,
}

/// A job's name. As long as it is kept no other job of this process has the same.
#[derive(Debug, Clone)]
pub struct JobMark {
    token: String,
    /// Its number is a part of the name.
    _descriptor: Option<Arc<OwnedFd>>,
}

impl JobMark {
    /// As UNIPGAS_JOB has told it to the ranks.
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

impl Outcome {
    /// Whether every rank ended with status 0, in time.
    pub fn success(&self) -> bool {
        self.status() == 0
    }

    /// The exit status of the whole: that of the first rank that failed, 124 when the time was over first, 1 if output was lost.
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

    /// The status of one rank, as GPI-2's gaspi_run gives the status of rank 0. After a timeout: [`status`](Outcome::status).
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
            format!("rank{plural} {} {how}", picture::listed(ranks))
        });
        let parts: Vec<_> = parts.collect();
        (failed > 0).then(|| format!("{failed} of {size} ranks failed: {}", parts.join(", ")))
    }
}

impl Launch {
    /// A job of `size` processes of `program`, otherwise plain.
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
            ends: Ends::default(),
            timeout: None,
            keeper: None,
            joins: None,
            part: None,
            files: None,
            foreground: false,
        }
    }

    /// Whether it tells on standard error what becomes of the job: that of a part does not, the launcher of the whole does.
    fn tells(&self) -> bool {
        self.foreground && self.part.is_none()
    }

    /// Starts the job and returns when all of its processes have ended. The processes die with the calling *thread*, which
    /// therefore stays here until then.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a size or program that cannot be, and for the rank of a process that has not died, [`Error::Exhausted`] and [`Error::Os`] when the
    /// machine cannot start so many processes; those already started have been killed then. [`Error::Unreachable`]: there is no job to
    /// [join](Launch::joins).
    pub fn run(mut self) -> Result<Outcome> {
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
            let mut seed = [0u8; 4];
            rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
                .map_err(|e| Error::os("cannot draw a seed (getrandom)", e))?;
            self.seed = Some(u64::from(u32::from_ne_bytes(seed)));
        }
        watch::run(&self)
    }
}

#[cfg(test)]
mod tests;
