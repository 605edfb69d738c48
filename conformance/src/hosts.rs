//! Jobs with ranks on several hosts.
//!
//! Each host runs a *part* of the job: this program, started by a remote shell. It starts the ranks there like all ranks on a single
//! host, and forwards their reports.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use unipgas_launcher::{
    Exit, FailureAction, Keeper, NodeEvent, NodeRanks, Rules, ignore_broken_pipes, keep_part,
    shell_line,
};

use crate::Law;
use crate::job::{Ended, Files, Job, RankEnd, lives, orphans, whole_lines};
use crate::matrix::columns;
use crate::place::CUT;
use crate::runner::Runner;
use crate::stall::{LOOK, Seats, Sitting};
use crate::worker::Item;
use unipgas_core::stop::Stop;

/// A script that creates hosts from namespaces and runs a command that sees them; tests/run-hosts uses it too.
const WITH_HOSTS: &str = include_str!("../with-hosts");
/// Variable with the names of hosts, separated by blanks.
const NAMES: &str = "HOSTS";
/// Variable with a command that is called like ssh.
const SHELL: &str = "HOSTS_RSH";
/// Variable with a command that is called with the name of a host and `up` or `down`.
const LINK: &str = "HOSTS_LINK";
/// Maximum number of created hosts.
const MOST: usize = 200;

/// The mark of a live rank, in the parent's seats.
pub(crate) const LIVES: u32 = u32::MAX;
const ENDED: u32 = 2;

// Message kinds of a part.
const LINES: u8 = unipgas_launcher::OWN;
const SITTING: u8 = unipgas_launcher::OWN + 1;
const END: u8 = unipgas_launcher::OWN + 2;
const SAID: u8 = unipgas_launcher::OWN + 3;

/// Hosts for jobs, in groups: each job has a group to itself.
#[derive(Debug)]
pub struct HostPool {
    each: usize,
    shell: OsString,
    link: Option<OsString>,
    groups: Mutex<Vec<Vec<String>>>,
}

impl HostPool {
    /// The hosts that the environment names, in groups of `each`; `None` if it names none.
    ///
    /// # Errors
    /// A text, if there are too few.
    pub fn from_env(each: usize) -> Result<Option<HostPool>, String> {
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
        Ok(Some(HostPool {
            each,
            shell,
            link: std::env::var_os(LINK),
            groups: Mutex::new(groups),
        }))
    }

    /// Number of hosts of a job.
    pub fn each(&self) -> usize {
        self.each
    }

    /// Number of jobs that can run in parallel.
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
            commands: AtomicUsize::new(0),
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

/// Whether a line of a rank asks for the end of its host's link.
fn has_cut(lines: &[u8]) -> bool {
    (lines.split(|byte| *byte == b'\n')).any(|line| line.starts_with(CUT.as_bytes()))
}

/// A job on a group of hosts.
pub(crate) struct Team<'a> {
    hosts: &'a HostPool,
    names: Vec<String>,
    count: usize,
    ranks: u32,
    parts: Option<unipgas_launcher::Hosts>,
    law: &'static Law,
    program: OsString,
    /// Hosts with a link that is down.
    cut: Mutex<Vec<String>>,
    /// Only one thread writes to the log at a time: the file has one position.
    writing: Mutex<()>,
    /// Number of commands for hosts that run now.
    commands: AtomicUsize,
}

impl Team<'_> {
    fn parts(&self) -> Result<&unipgas_launcher::Hosts, String> {
        self.parts.as_ref().ok_or("no part was started".into())
    }

    /// Runs the job to its end; writes the reports of the ranks to `files`.
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
        let ended = std::thread::scope(|scope| {
            let heard = |told: NodeEvent<'_>| match told {
                NodeEvent::Own {
                    host,
                    kind: LINES,
                    bytes,
                } => {
                    self.write(&files.log, bytes);
                    if has_cut(bytes) {
                        self.beside(scope, move || self.cut(host));
                    }
                }
                NodeEvent::Own {
                    kind: SAID, bytes, ..
                } => self.write(&files.said, bytes),
                NodeEvent::Own {
                    kind: SITTING,
                    bytes,
                    ..
                } => Sitting::read_all(bytes).for_each(|sitting| seats.put(sitting)),
                NodeEvent::Lost {
                    host, ranks, then, ..
                } => {
                    for rank in ranks {
                        ends.lock().insert(*rank, Exit::Signal(libc::SIGKILL));
                        self.lose(*rank, then, files, &seats);
                    }
                    let whole = &whole;
                    self.beside(scope, move || {
                        let left = self.left_at(host);
                        whole.lock().leaves(left);
                    });
                }
                NodeEvent::Own { bytes, .. } => {
                    let Ok(ended) = serde_json::from_slice::<Ended>(bytes) else {
                        return parts.kill();
                    };
                    let mut whole = whole.lock();
                    whole.leaves(ended.left);
                    whole.ranks.extend(ended.ranks);
                }
                NodeEvent::Ended { rank, exit, .. } => drop(ends.lock().insert(rank, exit)),
                _ => {}
            };
            parts.run(rules, heard)
        });
        let first_failure = ended.map_err(|e| e.to_string())?;
        let mut whole = whole.into_inner();
        whole.first_failure = first_failure;
        // Ranks on a lost host have not reported their last lines.
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

    /// The launcher of the rank's host was killed, and the rank with it.
    fn lose(&self, rank: u32, then: FailureAction, files: &Files, seats: &Seats) {
        if !matches!(then, FailureAction::Replaced { .. }) {
            // No rank waits for it any more.
            seats.put(Sitting {
                mark: ENDED,
                ..seats.get(rank)
            });
        }
        if self.law.kills_launcher {
            self.write(&files.log, format!("dies {rank} 0 0 \n").as_bytes());
        }
    }

    /// Processes left behind on a host without a launcher, which cannot report them.
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

    /// Runs a command for a host in another thread. It takes long on a busy machine, and the events of the job must not wait for it.
    fn beside<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        command: impl FnOnce() + Send + 'scope,
    ) {
        self.commands.fetch_add(1, Ordering::AcqRel);
        scope.spawn(move || {
            command();
            self.commands.fetch_sub(1, Ordering::AcqRel);
        });
    }

    /// Whether a command for a host runs. Ranks that wait for its effect do not hang.
    pub fn has_command(&self) -> bool {
        self.commands.load(Ordering::Acquire) > 0
    }

    fn cut(&self, number: usize) {
        let host = &self.names[number];
        self.cut.lock().push(host.clone());
        self.link(host, "down");
    }

    fn write(&self, mut log: &File, bytes: &[u8]) {
        let _alone = self.writing.lock();
        // Ignores write errors: a line missing from the log is a failure.
        let _ = log.write_all(bytes);
    }

    fn link(&self, host: &str, way: &str) {
        let link = self.hosts.link.as_deref().unwrap_or(OsStr::new("false"));
        // Ignores errors: a rank that waits for the link's end then hangs, which is a failure.
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

/// Replaces this process by `with-hosts`, which creates `each` hosts for each of `jobs` and runs this program again with `args`. Errors: a text.
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

/// `NUMBER/COUNT COLUMN LIMIT LIBRARY ITEM…`: the part of a job on host NUMBER of COUNT. It runs the ranks with remainder NUMBER.
pub(crate) fn run_part(args: &[String]) -> ExitCode {
    Stop::let_through();
    // Children of the ranks end too, even if the launcher is killed.
    keep_part(|keeper| part(args, keeper))
}

/// Prints processes that jobs have left on this host after their launchers were killed.
pub(crate) fn tell_orphans() -> ExitCode {
    if let Some(left) = orphans() {
        println!("{left}");
    }
    ExitCode::SUCCESS
}

fn part(args: &[String], keeper: Keeper) -> Result<(), String> {
    let [place, column, limit, library, items @ ..] = args else {
        return Err("started without its arguments".into());
    };
    let place = place.split_once('/').ok_or("a host without a number")?;
    let number = |text: &str| text.parse::<u32>().map_err(|e| format!("{text}: {e}"));
    let (number, count, limit) = (number(place.0)?, number(place.1)?, number(limit)?);
    let items: Option<Vec<Item>> = items.iter().map(|arg| Item::from_arg(arg)).collect();
    let items = items.ok_or("an item that is no law and seeds")?;
    let column = columns().iter().find(|one| one.name == column);
    let (column, first) = column.zip(items.first()).ok_or("no column or no item")?;
    let here: Vec<u32> = (number..first.law.processes)
        .step_by(count.max(1) as usize)
        .collect();
    let part = NodeRanks::new(count, here).map_err(|e| e.to_string())?;
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
        telling.thread().unpark();
        telling.join().map_err(|_| "a defect of the runner")?;
        ended
    })?;
    let ended = serde_json::to_vec(&ended).map_err(|e| e.to_string())?;
    part.send(END, &ended).map_err(|e| e.to_string())
}

/// Polls of the reports between two polls of the wait times, which change each time.
const SITTING_POLLS: u32 = 4;

/// Forwards the reports and wait times of the ranks here to the parent until the job ends.
fn pass_on(part: &NodeRanks, files: &Files, seats: &Seats, over: &AtomicBool) {
    let (mut at, mut said_at) = (0, 0);
    let mut before = Vec::new();
    for poll in 0u32.. {
        let last = over.load(Ordering::Acquire);
        let lines = whole_lines(&files.log, at);
        at += lines.len() as u64;
        let said = whole_lines(&files.said, said_at);
        said_at += said.len() as u64;
        let sitting = match last || poll % SITTING_POLLS == 0 {
            true => sitting_here(part, seats),
            false => before.clone(),
        };
        let told = [
            (SAID, &said, !said.is_empty()),
            (LINES, &lines, !lines.is_empty()),
            (SITTING, &sitting, sitting != before),
        ];
        for (kind, bytes, is_new) in told {
            // Without a parent, the job ends.
            if is_new && part.send(kind, bytes).is_err() {
                return;
            }
        }
        before = sitting;
        if last {
            return;
        }
        std::thread::park_timeout(LOOK);
    }
}

/// The seats of the ranks here, in the form for a parent on another host.
fn sitting_here(part: &NodeRanks, seats: &Seats) -> Vec<u8> {
    let mut sitting = Vec::new();
    for rank in part.here() {
        let mut one = seats.get(*rank);
        // Their pids mean nothing to the parent.
        one.mark = match one.mark {
            0 => 0,
            pid if lives(pid) => LIVES,
            _ => ENDED,
        };
        one.write(&mut sitting);
    }
    sitting
}
