//! A job of laws: its processes, their reports, and their ends.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use unipgas_core::job::Board;
use unipgas_core::rendezvous::{place_of, sweep};
use unipgas_launcher::Launch;
use unipgas_launcher::{Exit, JobOutcome, Output};

use crate::matrix::Column;
use crate::runner::Runner;
use crate::stall::{Hang, Seats, Stall};
use crate::worker::Item;

/// The log of the library, for readers of a failure.
const LOG: &str = "UNIPGAS_LOG";

/// Items that the same processes run.
pub(crate) struct Job<'a> {
    pub runner: &'a Runner,
    pub column: &'a Column,
    pub items: &'a [Item],
}

/// Memory that a job's processes write to: their reports, the library's log, and the time that they wait.
pub(crate) struct Files {
    pub log: File,
    pub said: File,
    pub seats: File,
}

/// The watch over a job: whether a process on a seat lives, and how to end all processes.
struct Watched<'a> {
    lives: &'a (dyn Fn(u32) -> bool + Sync),
    end: &'a (dyn Fn(&Stall) + Sync),
    /// Whether the job must end in any case.
    stopped: &'a (dyn Fn() -> bool + Sync),
    /// Whether the parent runs a command. The ranks may wait for its effect.
    acts: &'a (dyn Fn() -> bool + Sync),
}

impl Files {
    pub fn new() -> Result<Files, String> {
        let memory = || {
            rustix::fs::memfd_create("conform", rustix::fs::MemfdFlags::CLOEXEC)
                .map(File::from)
                .map_err(|e| format!("memory for the results: {e}"))
        };
        Ok(Files {
            log: memory()?,
            said: memory()?,
            seats: memory()?,
        })
    }
}

impl Job<'_> {
    /// Number of processes, and number of threads that play ranks in one process (0: none).
    fn places(&self) -> (u32, u32) {
        let ranks = self.items[0].law.processes;
        match self.column.threads {
            true => (1, ranks),
            false => (ranks, 0),
        }
    }

    /// Runs the job; calls `progress` with the seeds done so far. Returns the reports of the ranks, their ends, and the hang that ended the job, if any.
    pub fn run(
        &self,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(Vec<Line>, Ended, Option<Hang>), String> {
        let files = Files::new()?;
        let (processes, threads) = self.places();
        // Threads that play ranks share a seat.
        let limit = self.runner.limit * threads.max(1);
        let stall = Stall::new(
            Seats::map(&files.seats, processes)?,
            limit,
            self.items[0].law.replaces,
        );
        let (ended, hang) = match &self.runner.hosts {
            Some(hosts) if self.column.hosts => {
                let team = hosts.begin(self)?;
                let watched = Watched {
                    lives: &|mark| mark == crate::hosts::LIVES,
                    end: &|_| team.end_as_the_clock(),
                    stopped: &|| self.runner.is_stopped(),
                    acts: &|| team.has_command(),
                };
                watch_over(&files, stall, &watched, progress, || team.run(&files))
            }
            _ => {
                let launch = self.launch(&files);
                let watched = Watched {
                    lives: &lives,
                    end: &|stall| stall.end(lives),
                    stopped: &|| self.runner.is_stopped(),
                    acts: &|| false,
                };
                // The processes die with the thread that started them: this thread, which stays until the job ends.
                watch_over(&files, stall, &watched, progress, || self.see(launch))
            }
        };
        let mut ended = ended?;
        let said = whole_lines(&files.said, 0);
        let said = String::from_utf8_lossy(&said);
        ended.said = said.lines().map(str::to_owned).collect();
        Ok((read(&files.log, 0).0, ended, hang))
    }

    /// Runs the processes and returns their ends.
    pub fn see(&self, launch: Launch) -> Result<Ended, String> {
        let outcome = launch.run();
        let outcome = outcome.map_err(|e| format!("the job cannot be started: {e}"))?;
        let mut ended = Ended::of(&outcome);
        if self.items[0].law.needs_kill {
            let killed = |end: &RankEnd| matches!(end.exit, Exit::Signal(libc::SIGKILL));
            if ended.ranks.iter().all(killed) {
                // Like `unipgas run`: all ranks were killed, so none has cleaned up.
                sweep();
            }
            ended.left = leftovers(outcome.job.token());
        }
        Ok(ended)
    }

    /// The launch of the processes.
    pub fn launch(&self, files: &Files) -> Launch {
        let (processes, threads) = self.places();
        let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut launch = Launch::new(processes, self.runner.program.clone());
        launch.args.clone_from(&self.runner.prefix);
        launch.args.extend([
            path(&files.log).into(),
            path(&files.seats).into(),
            self.column.name.into(),
            self.runner.clock().as_secs().to_string().into(),
            threads.to_string().into(),
            self.runner.library.clone(),
        ]);
        launch.args.extend(self.item_args());
        let env = self.column.env.iter();
        launch.env = env
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        if std::env::var_os(LOG).is_none() {
            launch.env.push((LOG.into(), "debug".into()));
        }
        let said = path(&files.said);
        launch.env.push(("UNIPGAS_LOG_FILE".into(), said.into()));
        launch.backend = Some(self.column.backend.into());
        launch.seed = Some(self.items[0].first);
        launch.keep_going = self.items[0].law.needs_kill;
        launch.spares = self.items[0].law.spares();
        launch.output = Output::Capture;
        launch
    }

    pub fn item_args(&self) -> impl Iterator<Item = OsString> {
        self.items.iter().map(|item| item.to_arg().into())
    }
}

/// Whether a process of this host lives.
pub(crate) fn lives(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid as i32);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Runs `job` under watch. Returns its result, and the hang that ended it, if any.
fn watch_over<T>(
    files: &Files,
    mut stall: Stall,
    watched: &Watched<'_>,
    progress: &(dyn Fn(u64) + Sync),
    job: impl FnOnce() -> T,
) -> (T, Option<Hang>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&files.log, &mut stall, watched, &over, progress));
        let ended = job();
        over.store(true, Ordering::Release);
        watching.thread().unpark();
        (ended, watching.join().unwrap_or(None))
    })
}

/// Reports the seeds that rank 0 has done at intervals, and ends the job if it hangs.
fn watch(
    log: &File,
    stall: &mut Stall,
    watched: &Watched<'_>,
    over: &AtomicBool,
    progress: &dyn Fn(u64),
) -> Option<Hang> {
    let (mut at, mut seeds, mut told) = (0, 0, 0);
    while !over.load(Ordering::Acquire) {
        let (lines, next) = read(log, at);
        at = next;
        told += lines.len() as u64;
        if (watched.stopped)() {
            // Repeats this: some processes may have no seat yet.
            (watched.end)(stall);
        } else if (watched.acts)() {
            stall.moved();
        } else if let Some(hang) = stall.found(told, watched.lives) {
            (watched.end)(stall);
            return Some(hang);
        }
        seeds += lines
            .iter()
            .filter(|line| line.rank == 0 && (line.what == "ok" || line.what == "none"))
            .count() as u64;
        progress(seeds);
        std::thread::park_timeout(crate::stall::LOOK);
    }
    None
}

/// A line of a rank's report.
#[derive(Debug)]
pub(crate) struct Line {
    pub what: String,
    pub rank: u32,
    pub item: (usize, u64),
    pub text: String,
}

/// The whole lines from `at` on, and the start of the next line.
pub(crate) fn read(log: &File, at: u64) -> (Vec<Line>, u64) {
    let bytes = whole_lines(log, at);
    let text = String::from_utf8_lossy(&bytes);
    (
        text.lines().filter_map(parse).collect(),
        at + bytes.len() as u64,
    )
}

/// The bytes from `at` on, up to the end of the last whole line.
pub(crate) fn whole_lines(log: &File, at: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let mut from = at;
    while let Ok(n) = log.read_at(&mut piece, from)
        && n > 0
    {
        bytes.extend_from_slice(&piece[..n]);
        from += n as u64;
    }
    bytes.truncate(bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1));
    bytes
}

fn parse(line: &str) -> Option<Line> {
    let mut parts = line.splitn(5, ' ');
    Some(Line {
        what: parts.next()?.into(),
        rank: parts.next()?.parse().ok()?,
        item: (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?),
        text: parts.next().unwrap_or_default().into(),
    })
}

/// The end of a job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// In order of ranks.
    pub ranks: Vec<RankEnd>,
    /// The rank that was the first to fail.
    pub first_failure: Option<u32>,
    /// Processes and files that the job left behind, if checked.
    pub left: Option<String>,
    /// The lines that the library has logged, of all ranks.
    #[serde(skip)]
    pub said: Vec<String>,
}

/// The end of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankEnd {
    pub rank: u32,
    #[serde(with = "ExitWords")]
    pub exit: Exit,
    /// The last lines on standard error of this process and its predecessors.
    pub wrote: Vec<String>,
}

/// Number of kept lines: enough for a panic and its backtrace.
const KEPT: usize = 80;

/// Serialized form of [`Exit`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Exit")]
enum ExitWords {
    Code(i32),
    Signal(i32),
}

impl Ended {
    /// Notes what a host has left behind. The first note stays.
    pub fn leaves(&mut self, left: Option<String>) {
        self.left = self.left.take().or(left);
    }

    fn of(outcome: &JobOutcome) -> Ended {
        let wrote = |stderr: &[u8]| {
            let text = String::from_utf8_lossy(stderr);
            let lines = text.lines().map(str::trim);
            let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            let first = lines.len().saturating_sub(KEPT);
            lines[first..].iter().map(|line| (*line).into()).collect()
        };
        let ranks = outcome.ranks.iter().map(|end| RankEnd {
            rank: end.rank,
            exit: end.exit,
            wrote: wrote(&end.stderr),
        });
        Ended {
            ranks: ranks.collect(),
            first_failure: outcome.first_failure,
            left: None,
            said: Vec::new(),
        }
    }
}

/// Processes that a job has left behind, and its rendezvous file.
pub(crate) fn leftovers(job: &str) -> Option<String> {
    let mut left = processes(|one| one == job);
    let file = place_of(job).ok().filter(|place| place.exists());
    left.extend(file.map(|place| place.display().to_string()));
    (!left.is_empty()).then(|| format!("left behind: {}", left.join(", ")))
}

/// Time in which processes must end after their launcher was killed. On a loaded machine, a killed process waits for a processor.
const SOON: Duration = Duration::from_secs(60);

/// Processes of this host left behind by jobs without a live launcher.
pub(crate) fn orphans() -> Option<String> {
    let start = Instant::now();
    loop {
        let left = processes(|job| Board::attach(job).is_err());
        if left.is_empty() {
            return None;
        }
        if start.elapsed() > SOON {
            return Some(format!("left behind: {}", left.join(", ")));
        }
        std::thread::sleep(crate::stall::LOOK);
    }
}

/// The processes of the jobs for which `is_it` is true.
fn processes(is_it: impl Fn(&str) -> bool) -> Vec<String> {
    let is_one = |process: &Path| {
        // Skips a process that has just ended, or that belongs to another user.
        let all = std::fs::read(process.join("environ")).unwrap_or_default();
        all.split(|b| *b == 0).any(|one| {
            let job = one.strip_prefix(b"UNIPGAS_JOB=");
            job.is_some_and(|job| is_it(&String::from_utf8_lossy(job)))
        })
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit))
        .filter(|entry| is_one(&entry.path()))
        .map(|entry| format!("process {}", entry.file_name().display()))
        .collect()
}
