//! Jobs whose ranks are on several hosts.
//!
//! On each host a *part* of the job runs: this program, started by a remote shell, which starts the ranks there as it would start all on one
//! host, and passes on what they tell.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use unipgas_launcher::{Exit, Keeper, Part, Rules, Then, Told, shell_line};

use crate::Law;
use crate::job::{Ended, Files, Job, RankEnd, lives, orphans, whole_lines};
use crate::matrix::COLUMNS;
use crate::place::CUT;
use crate::runner::Runner;
use crate::stall::{LOOK, Seats, Sitting};
use crate::worker::Item;
use unipgas_core::stop::Stop;

/// What makes hosts of namespaces and runs a command that sees them; see packaging/run-hosts, which uses it as well.
const WITH_HOSTS: &str = include_str!("../with-hosts");
/// Names of hosts, with blanks between them.
const NAMES: &str = "HOSTS";
/// Is called as ssh is.
const SHELL: &str = "HOSTS_RSH";
/// Is called with the name of a host and `up` or `down`.
const LINK: &str = "HOSTS_LINK";
/// So many hosts are made at most.
const MOST: usize = 200;

/// The mark of a rank that lives, in the seats that the parent keeps.
pub(crate) const LIVES: u32 = 1;
const ENDED: u32 = 2;

// Kinds of what a part tells.
const LINES: u8 = unipgas_launcher::OWN;
const SITTING: u8 = unipgas_launcher::OWN + 1;
const END: u8 = unipgas_launcher::OWN + 2;
const SAID: u8 = unipgas_launcher::OWN + 3;

/// Hosts on which jobs can run, in groups: each job has one to itself.
#[derive(Debug)]
pub struct Hosts {
    each: usize,
    shell: OsString,
    link: Option<OsString>,
    groups: Mutex<Vec<Vec<String>>>,
}

impl Hosts {
    /// Those that the environment names, in groups of `each`; `None` if it names none.
    ///
    /// # Errors
    /// A text, when there are too few.
    pub fn from_env(each: usize) -> Result<Option<Hosts>, String> {
        let Some(shell) = std::env::var_os(SHELL) else {
            return Ok(None);
        };
        ignore_broken_pipes();
        let names = std::env::var(NAMES).map_err(|e| format!("{NAMES}, beside {SHELL}: {e}"))?;
        let names: Vec<String> = names.split_whitespace().map(String::from).collect();
        let groups: Vec<_> = names.chunks_exact(each).map(<[String]>::to_vec).collect();
        if groups.is_empty() {
            return Err(format!("{NAMES} names {} hosts, not {each}", names.len()));
        }
        Ok(Some(Hosts {
            each,
            shell,
            link: std::env::var_os(LINK),
            groups: Mutex::new(groups),
        }))
    }

    /// Hosts of a job.
    pub fn each(&self) -> usize {
        self.each
    }

    /// So many jobs can run at a time.
    pub fn jobs(&self) -> usize {
        self.groups.lock().len()
    }

    /// Whether links can be taken down.
    pub fn can_cut(&self) -> bool {
        self.link.is_some()
    }

    /// Starts the parts of a job. Errors: a text.
    pub(crate) fn begin(&self, job: &Job<'_>) -> Result<Team<'_>, String> {
        let names = self.groups.lock().pop();
        let names = names.ok_or("more jobs at a time than there are hosts for")?;
        let ranks = job.items[0].law.processes;
        let mut team = Team {
            hosts: self,
            count: self.each.min(ranks as usize),
            parts: None,
            law: job.items[0].law,
            program: job.runner.program.clone(),
            ranks,
            cut: Mutex::new(Vec::new()),
            writing: Mutex::new(()),
            names,
        };
        let command = |number: usize| {
            let mut words = vec![job.runner.program.clone()];
            words.push("--part".into());
            words.push(format!("{number}/{}", team.count).into());
            words.push(job.column.name.into());
            words.push(job.runner.limit.as_secs().to_string().into());
            words.push(job.runner.library.clone());
            words.extend(job.item_args());
            let name = team.names[number].clone();
            let shell = [self.shell.clone(), name.clone().into()];
            (name, [&shell[..], &[shell_line(&words)]].concat())
        };
        let commands: Vec<_> = (0..team.count).map(command).collect();
        let parts = unipgas_launcher::Hosts::start(commands);
        team.parts = Some(parts.map_err(|e| e.to_string())?);
        Ok(team)
    }
}

/// A job on a group of hosts.
pub(crate) struct Team<'a> {
    hosts: &'a Hosts,
    names: Vec<String>,
    count: usize,
    ranks: u32,
    parts: Option<unipgas_launcher::Hosts>,
    law: &'static Law,
    program: OsString,
    /// Hosts whose link is down.
    cut: Mutex<Vec<String>>,
    /// One writes to the log at a time: a file has one place.
    writing: Mutex<()>,
}

impl Team<'_> {
    fn parts(&self) -> Result<&unipgas_launcher::Hosts, String> {
        self.parts.as_ref().ok_or("no part was started".into())
    }

    /// Sees the job through; what the ranks tell goes to `files`.
    pub fn run(&self, files: &Files) -> Result<Ended, String> {
        let parts = self.parts()?;
        let seats = Seats::map(&files.seats, self.ranks)?;
        let whole = Mutex::new(Ended::default());
        let ends = Mutex::new(BTreeMap::new());
        let homes = (0..self.ranks as usize).map(|rank| rank % self.count);
        let rules = Rules {
            homes: homes.collect(),
            keep_going: self.law.needs_kill,
            spares: self.law.spares(),
        };
        let heard = |told: Told<'_>| match told {
            Told::Own {
                host,
                kind: LINES,
                bytes,
            } => self.lines(&files.log, host, bytes),
            Told::Own {
                kind: SAID, bytes, ..
            } => self.write(&files.said, bytes),
            Told::Own {
                kind: SITTING,
                bytes,
                ..
            } => Sitting::read_all(bytes).for_each(|sitting| seats.put(sitting)),
            Told::Lost {
                host, ranks, then, ..
            } => {
                for rank in ranks {
                    ends.lock().insert(*rank, Exit::Signal(libc::SIGKILL));
                    self.lose(*rank, then, files, &seats);
                }
                let left = self.left_at(host);
                let mut whole = whole.lock();
                whole.left = whole.left.take().or(left);
            }
            Told::Own { bytes, .. } => {
                let Ok(ended) = serde_json::from_slice::<Ended>(bytes) else {
                    return parts.kill();
                };
                let mut whole = whole.lock();
                whole.left = whole.left.take().or(ended.left);
                whole.ranks.extend(ended.ranks);
            }
            Told::Ended { rank, exit, .. } => drop(ends.lock().insert(rank, exit)),
            _ => {}
        };
        let ended = parts.run(rules, heard);
        let first_failure = ended.map_err(|e| e.to_string())?;
        let mut whole = whole.into_inner();
        whole.first_failure = first_failure;
        // Of those on a lost host, nobody has told the last words.
        for (rank, exit) in ends.into_inner() {
            if whole.ranks.iter().all(|end| end.rank != rank) {
                whole.ranks.push(RankEnd {
                    rank,
                    exit,
                    wrote: Vec::new(),
                });
            }
        }
        whole.ranks.sort_by_key(|end| end.rank);
        match whole.ranks.len() == self.ranks as usize {
            true => Ok(whole),
            false => Err("not all hosts have told how their ranks ended".into()),
        }
    }

    /// The launcher of the rank's host has been killed, and the rank with it.
    fn lose(&self, rank: u32, then: Then, files: &Files, seats: &Seats) {
        if !matches!(then, Then::Replaced { .. }) {
            // Nobody waits for it any more.
            seats.put(Sitting {
                mark: ENDED,
                ..seats.get(rank)
            });
        }
        if self.law.kills_launcher {
            self.write(&files.log, format!("dies {rank} 0 0 \n").as_bytes());
        }
    }

    /// What a host has left whose launcher was killed: it can say nothing.
    fn left_at(&self, number: usize) -> Option<String> {
        let host = &self.names[number];
        let output = Command::new(&self.hosts.shell)
            .arg(host)
            .arg(&self.program)
            .arg("--orphans")
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
                (!text.is_empty()).then(|| format!("on host {host} {text}"))
            }
            Ok(output) => Some(format!("host {host} does not say: {}", output.status)),
            Err(error) => Some(format!("host {host} does not say: {error}")),
        }
    }

    /// Ends the ranks by SIGALRM.
    pub fn end_as_the_clock(&self) {
        if let Ok(parts) = self.parts() {
            parts.signal(Signal::ALARM);
        }
    }

    fn lines(&self, log: &File, number: usize, bytes: &[u8]) {
        let is_cut = |line: &[u8]| line.starts_with(CUT.as_bytes());
        if bytes.split(|byte| *byte == b'\n').any(is_cut) {
            let host = &self.names[number];
            self.cut.lock().push(host.clone());
            self.link(host, "down");
        }
        self.write(log, bytes);
    }

    fn write(&self, mut log: &File, bytes: &[u8]) {
        let _alone = self.writing.lock();
        // Where it cannot be told, nothing is found in the log, which is a failure.
        let _ = log.write_all(bytes);
    }

    fn link(&self, host: &str, way: &str) {
        let link = self.hosts.link.as_deref().unwrap_or(OsStr::new("false"));
        // Who waits for the link's end does so for ever where this fails, and that is a failure.
        let _ = Command::new(link).args([host, way]).status();
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        self.parts = None;
        for host in self.cut.lock().drain(..) {
            self.link(&host, "up");
        }
        let names = std::mem::take(&mut self.names);
        self.hosts.groups.lock().push(names);
    }
}

/// Becomes `with-hosts`, which makes so many hosts for each of `jobs` and runs this program again with `args`. Errors: a text.
pub(crate) fn make(each: usize, jobs: usize, args: &[String]) -> Result<ExitCode, String> {
    use std::os::unix::process::CommandExt;
    let myself = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
    let count = each * jobs.min(MOST / each).max(1);
    let error = Command::new("sh")
        .args(["-c", WITH_HOSTS, "with-hosts", "-n", &count.to_string()])
        .arg(myself)
        .args(args)
        .exec();
    Err(format!("cannot start sh: {error}"))
}

/// `NUMBER/COUNT COLUMN LIMIT LIBRARY ITEM…`: the part of a job on host NUMBER of COUNT, whose ranks have that remainder.
pub(crate) fn run_part(args: &[String]) -> ExitCode {
    Stop::let_through();
    let told = |error: &dyn std::fmt::Display| {
        eprintln!("unipgas: {error}");
        2
    };
    // What the ranks have started ends, too, if the launcher is killed.
    let kept = unipgas_launcher::keep(|keeper| match part(args, keeper) {
        Ok(()) => 0,
        Err(error) => told(&error),
    });
    ExitCode::from(kept.unwrap_or_else(|error| told(&error)))
}

/// Prints what jobs have left on this host whose launchers were killed.
pub(crate) fn tell_orphans() -> ExitCode {
    if let Some(left) = orphans() {
        println!("{left}");
    }
    ExitCode::SUCCESS
}

/// A pipe whose other end has closed is an error of the write, and no signal.
fn ignore_broken_pipes() {
    // SAFETY:
    // - sets a disposition; programs that are started get the default one from the standard library.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

fn part(args: &[String], keeper: Keeper) -> Result<(), String> {
    ignore_broken_pipes();
    let [place, column, limit, library, items @ ..] = args else {
        return Err("started without its arguments".into());
    };
    let place = place.split_once('/').ok_or("a host without a number")?;
    let number = |text: &str| text.parse::<u32>().map_err(|e| format!("{text}: {e}"));
    let (number, count, limit) = (number(place.0)?, number(place.1)?, number(limit)?);
    let items: Option<Vec<Item>> = items.iter().map(|arg| Item::from_arg(arg)).collect();
    let items = items.ok_or("an item that is no law and seeds")?;
    let column = COLUMNS.iter().find(|one| one.name == column);
    let (column, first) = column.zip(items.first()).ok_or("no column or no item")?;
    let here: Vec<u32> = (number..first.law.processes)
        .step_by(count.max(1) as usize)
        .collect();
    let pipe = |fd: BorrowedFd<'_>| {
        fd.try_clone_to_owned()
            .map_err(|e| format!("no pipe to the parent: {e}"))
    };
    let part = Part::new(
        count,
        here.clone(),
        pipe(std::io::stdin().as_fd())?,
        pipe(std::io::stdout().as_fd())?,
    );
    let runner = Runner::new(Duration::from_secs(limit.into()), library.into())?;
    let job = Job {
        runner: &runner,
        column,
        items: &items,
    };
    let files = Files::new()?;
    let seats = Seats::map(&files.seats, first.law.processes)?;
    let mut launch = job.launch(&files);
    launch.part = Some(part.clone());
    launch.keeper = Some(keeper);
    let over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let telling = scope.spawn(|| pass_on(&part, &files, &seats, &over));
        let ended = job.see(launch);
        over.store(true, Ordering::Release);
        telling.join().map_err(|_| "a defect of the runner")?;
        ended
    })?;
    let ended = serde_json::to_vec(&ended).map_err(|e| e.to_string())?;
    part.send(END, &ended).map_err(|e| e.to_string())
}

/// Tells the parent what the ranks here tell and how long they have waited, until all is over.
fn pass_on(part: &Part, files: &Files, seats: &Seats, over: &AtomicBool) {
    let (mut at, mut said_at) = (0, 0);
    let mut before = Vec::new();
    loop {
        let last = over.load(Ordering::Acquire);
        let lines = whole_lines(&files.log, at);
        at += lines.len() as u64;
        let said = whole_lines(&files.said, said_at);
        said_at += said.len() as u64;
        let mut sitting = Vec::new();
        for rank in part.here() {
            let mut one = seats.get(*rank);
            // Their pids are none of the parent's.
            one.mark = match one.mark {
                0 => 0,
                pid if lives(pid) => LIVES,
                _ => ENDED,
            };
            one.write(&mut sitting);
        }
        let told = [
            (SAID, &said, !said.is_empty()),
            (LINES, &lines, !lines.is_empty()),
            (SITTING, &sitting, sitting != before),
        ];
        for (kind, bytes, is_new) in told {
            // With nobody to tell, the job ends.
            if is_new && part.send(kind, bytes).is_err() {
                return;
            }
        }
        before = sitting;
        if last {
            return;
        }
        std::thread::sleep(LOOK);
    }
}
