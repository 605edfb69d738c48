//! The launcher of a job on several hosts. It supervises the job as [`Launch::run`] does on one host.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Sender};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::Signal;

use super::failure_policy::{FailureAction, FailureEffect, Rules};
use super::frames::Begin;
use super::hosts::{Hosts, NodeEvent};
use super::printer::{Print, Printer};
use super::progress::Progress;
use super::signals::{Inbox, ONE_KEYPRESS, asks, ends};
use super::{Exit, GRACE, JobMark, JobOutcome, Launch, RankOutcome};
use crate::job_snapshot::JobSnapshot;
use unipgas_core::job::Board;
use unipgas_core::{Error, Result, own_thread};

/// Bytes of standard input in flight.
const BLOCK: usize = 64 << 10;
/// Time limit for the hosts' pictures. The report omits later ones.
const LATEST: Duration = Duration::from_secs(1);

/// A host, and the ranks that start on it.
#[derive(Debug, Clone)]
pub struct NodePlacement {
    /// Its name, for messages.
    pub host: String,
    /// The ranks, ascending.
    pub here: Vec<u32>,
    /// A complete command line that starts the launcher there. The launcher must call [`NodeRanks::open`](super::NodeRanks::open) first.
    pub command: Vec<OsString>,
}

/// Result of the job.
struct Seen {
    ranks: Vec<RankOutcome>,
    first_failure: Option<u32>,
}

/// State that the threads of a launcher share.
struct Shared<'a> {
    launch: &'a Launch,
    hosts: &'a Hosts,
    board: &'a Board,
    printer: &'a Printer,
    timed_out: AtomicBool,
    /// A signal has asked the job to end.
    asked_to_end: AtomicBool,
    shown: Mutex<Shown>,
}

/// Pictures of the hosts since the last request.
#[derive(Default)]
struct Shown {
    pictures: BTreeMap<usize, JobSnapshot>,
    /// Time to print the pictures, complete or not. `None`: no request.
    until: Option<Instant>,
}

impl Launch {
    /// Runs the job on the hosts of `places`. Each launcher gets `plan`, the data that it needs to start its ranks. The launchers apply the options for
    /// output and environment themselves. `heard` gets the data from callers of parts, with the number of the place.
    ///
    /// # Errors
    /// As [`run`](Launch::run). [`Error::Unreachable`] if the launcher on a host could not be started.
    pub fn run_on(
        &self,
        places: &[NodePlacement],
        plan: &[u8],
        mut heard: impl FnMut(usize, u8, &[u8]),
    ) -> Result<JobOutcome> {
        let homes = homes(self.size, places)?;
        let (board, descriptor) = Board::create(self.size)?;
        for rank in 0..self.size {
            board.set_afar(rank)?;
        }
        // Before other threads start.
        let inbox = Inbox::open()?;
        let commands = places
            .iter()
            .map(|place| (place.host.clone(), place.command.clone()));
        let hosts = Hosts::start(commands.collect())?;
        for (number, place) in places.iter().enumerate() {
            let begin = Begin {
                hosts: places.len() as u32,
                job: board.everywhere(),
                here: place.here.clone(),
                plan: plan.to_vec(),
            };
            hosts.begin(number, &begin);
        }
        let rules = Rules {
            homes,
            keep_going: self.keep_going,
            spares: self.spares,
        };
        let printer = Printer::start(self, hosts.writer())?;
        let shared = Shared {
            launch: self,
            hosts: &hosts,
            board: &board,
            printer: &printer,
            timed_out: AtomicBool::new(false),
            asked_to_end: AtomicBool::new(false),
            shown: Mutex::default(),
        };
        let taken = feed(hosts.feeder())?;
        let over = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|e| Error::os("cannot watch the job (eventfd)", e))?;
        let seen = std::thread::scope(|scope| {
            let watching = scope.spawn(|| shared.watch(&inbox, &over));
            let seen = shared.see(rules, &taken, &mut heard);
            // Fails only if it is readable already.
            let _ = rustix::io::write(&over, &1u64.to_ne_bytes());
            let _ = watching.join();
            seen
        });
        let timed_out = shared.timed_out.load(Ordering::Acquire);
        let soon = timed_out || shared.asked_to_end.load(Ordering::Acquire);
        let patience = soon.then_some(GRACE);
        let output_lost = printer.finish(Some(&inbox), self.keeper.as_ref(), patience);
        let seen = seen?;
        Ok(JobOutcome {
            ranks: seen.ranks,
            first_failure: seen.first_failure,
            timed_out,
            output_lost,
            joined: board.joined() > 0,
            seed: self.seed,
            job: JobMark {
                token: board.token(),
                _descriptor: Some(Arc::new(descriptor)),
            },
        })
    }
}

/// The host of each rank. Errors: [`Error::InvalidArgument`] for a rank on no host, or on two.
fn homes(size: u32, places: &[NodePlacement]) -> Result<Vec<usize>> {
    let mut homes = vec![None; size as usize];
    for (number, place) in places.iter().enumerate() {
        for rank in &place.here {
            let home = homes.get_mut(*rank as usize);
            match home {
                Some(home) if home.is_none() => *home = Some(number),
                _ => {
                    return Err(Error::InvalidArgument(format!(
                        "rank {rank} is not on one host, of {size} ranks"
                    )));
                }
            }
        }
    }
    let homes: Option<Vec<usize>> = homes.into_iter().collect();
    homes.ok_or_else(|| Error::InvalidArgument("a rank is on no host".into()))
}

impl Shared<'_> {
    fn say(&self, text: String) {
        self.say_after(text, &[]);
    }

    /// Prints a message after all earlier output of these ranks.
    fn say_after(&self, text: String, ranks: &[u32]) {
        self.printer.print(Print::Said(text, ranks.to_vec()));
    }

    fn see(
        &self,
        rules: Rules,
        taken: &Sender<()>,
        own: &mut dyn FnMut(usize, u8, &[u8]),
    ) -> Result<Seen> {
        let mut ranks = Vec::new();
        let hear = |told: NodeEvent<'_>| self.hear(told, &mut ranks, taken, own);
        let first_failure = self.hosts.run(rules, hear)?;
        Ok(Seen {
            ranks,
            first_failure,
        })
    }

    fn hear(
        &self,
        told: NodeEvent<'_>,
        outcomes: &mut Vec<RankOutcome>,
        taken: &Sender<()>,
        own: &mut dyn FnMut(usize, u8, &[u8]),
    ) {
        // Fails if standard input has ended.
        let resume_input = || {
            let _ = taken.send(());
        };
        match told {
            NodeEvent::Ended {
                host,
                rank,
                pid,
                exit,
                then,
            } => {
                set_outcome(outcomes, rank, pid, exit);
                let host = self.hosts.name(host);
                let what = format!("rank {rank} (pid {pid} on {host}) {exit}");
                self.tell_end(&what, "another process takes its place", then, &[rank]);
                if rank == 0 {
                    // The old process takes no more input.
                    resume_input();
                }
            }
            NodeEvent::Lost {
                host,
                status,
                ranks,
                then,
            } => {
                for rank in ranks {
                    set_outcome(outcomes, *rank, 0, Exit::Signal(libc::SIGKILL));
                }
                if ranks.contains(&0) {
                    resume_input();
                }
                let name = self.hosts.name(host);
                let what = format!("host {name} is lost ({status}), with {}", listed(ranks));
                let replaced = "processes of other hosts take their places";
                self.tell_end(&what, replaced, then, ranks);
            }
            NodeEvent::Cannot { rank, why, then } => {
                let what = format!("no spare for rank {rank}: {why}");
                self.tell_end(&what, "", then, &[rank]);
            }
            NodeEvent::Output {
                host,
                rank,
                is_stderr,
                bytes,
            } => self.printer.print(Print::Output {
                host,
                rank,
                is_stderr,
                bytes: bytes.to_vec(),
            }),
            NodeEvent::Said(text) => self.say(text.into()),
            NodeEvent::Shown { host, snapshot } => self.hear_of(host, snapshot),
            NodeEvent::Taken => resume_input(),
            NodeEvent::News(news) => {
                self.board.take(news);
            }
            NodeEvent::Own { host, kind, bytes } => own(host, kind, bytes),
        }
    }

    /// Requests pictures of the ranks.
    fn show(&self) {
        let mut shown = self.shown.lock();
        if shown.until.is_none() {
            shown.until = Instant::now().checked_add(LATEST);
            self.hosts.show();
        }
    }

    fn hear_of(&self, host: usize, picture: JobSnapshot) {
        let mut shown = self.shown.lock();
        if shown.until.is_some() {
            shown.pictures.insert(host, picture);
            if shown.pictures.len() == self.hosts.count() {
                self.say_shown(&mut shown);
            }
        }
    }

    /// Prints the pictures if they are late.
    fn say_if(&self, is_late: impl Fn(Option<Instant>) -> bool) {
        let mut shown = self.shown.lock();
        if is_late(shown.until) {
            self.say_shown(&mut shown);
        }
    }

    fn say_shown(&self, shown: &mut Shown) {
        let mut picture = JobSnapshot::default();
        for (host, part) in std::mem::take(shown).pictures {
            picture.join(self.hosts.name(host), part);
        }
        self.say(
            format!("what the ranks are doing:\n{picture}")
                .trim_end()
                .into(),
        );
    }

    fn tell_end(&self, what: &str, replaced: &str, then: FailureAction, ranks: &[u32]) {
        let then = match then {
            FailureAction::Nothing => return,
            FailureAction::Replaced { left } => format!("; {replaced}, spares left: {left}"),
            FailureAction::Failed(FailureEffect::None) => String::new(),
            FailureAction::Failed(FailureEffect::GoOn) => "; the others go on".into(),
            FailureAction::Failed(FailureEffect::End) => "; ending the others".into(),
        };
        self.say_after(format!("{what}{then}"), ranks);
    }

    /// Handles signals, the timeout, the end of the keeper, and messages about a slow start.
    fn watch(&self, inbox: &Inbox, over: &OwnedFd) {
        let limit = self.launch.timeout;
        let mut end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut progress = Progress::new(Instant::now());
        let mut keeper = self.launch.keeper.as_ref().map(AsFd::as_fd);
        let mut first_interrupt = None;
        loop {
            let shown = self.shown.lock().until;
            let next = [end, progress.next(), shown].into_iter().flatten().min();
            let [is_over, keeper_has_ended] = wait_for_event(inbox, over.as_fd(), keeper, next);
            if is_over {
                return;
            }
            if keeper_has_ended {
                keeper = None;
                self.hosts.kill();
            }
            self.take_signals(inbox, &mut first_interrupt);
            let now = Instant::now();
            if let Some(joined) = progress.news(self.board, now) {
                let size = self.launch.size;
                self.say(format!(
                    "{joined} of {size} ranks have joined the job so far"
                ));
            }
            let is_late = |at: Option<Instant>| at.is_some_and(|at| now >= at);
            self.say_if(is_late);
            if is_late(end) {
                end = self.pass_end();
            }
        }
    }

    /// Asks for the ranks' pictures at the timeout, and ends the job at the next call. Returns the time of that call.
    fn pass_end(&self) -> Option<Instant> {
        if self.timed_out.swap(true, Ordering::AcqRel) {
            self.hosts.end();
            return None;
        }
        // The ranks send their pictures before they end.
        self.show();
        let seconds = self.launch.timeout.unwrap_or_default().as_secs_f64();
        self.say(format!(
            "the job did not end within {seconds} s (--timeout); ending it"
        ));
        Instant::now().checked_add(LATEST)
    }

    fn take_signals(&self, inbox: &Inbox, first_interrupt: &mut Option<Instant>) {
        while let Some(arrived) = inbox.next() {
            if ends(arrived.signal) {
                self.asked_to_end.store(true, Ordering::Release);
            }
            if asks(arrived.signal) {
                self.show();
            }
            self.hand_on(arrived.signal, first_interrupt);
        }
    }

    /// The terminal does not signal the ranks, since they are on other hosts.
    fn hand_on(&self, signal: i32, first_interrupt: &mut Option<Instant>) {
        if signal == libc::SIGINT {
            let now = Instant::now();
            if first_interrupt.is_some_and(|first| now.duration_since(first) > ONE_KEYPRESS) {
                self.say("interrupted again; killing the job".into());
                return self.hosts.kill();
            }
            if first_interrupt.replace(now).is_some() {
                return;
            }
        }
        if let Some(signal) = Signal::from_named_raw(signal) {
            self.hosts.signal(signal);
        }
    }
}

/// Waits for a signal, the end of the job or of the keeper, or until `next`. Returns whether the job, and the keeper, have ended.
fn wait_for_event(
    inbox: &Inbox,
    over: BorrowedFd<'_>,
    keeper: Option<BorrowedFd<'_>>,
    next: Option<Instant>,
) -> [bool; 2] {
    let left = next.map(|at| at.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let fds = [Some(over), keeper, Some(inbox.fd())];
    let watched = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    let mut fds: Vec<PollFd<'_>> = fds.into_iter().flatten().map(watched).collect();
    // After an interrupt, all conditions are checked again.
    let _ = poll(&mut fds, timeout.as_ref());
    let is_ready = |at: usize| !fds[at].revents().is_empty();
    [is_ready(0), keeper.is_some() && is_ready(1)]
}

/// Sets the outcome of a rank, in ascending order of the ranks.
fn set_outcome(outcomes: &mut Vec<RankOutcome>, rank: u32, pid: u32, exit: Exit) {
    let one = RankOutcome {
        rank,
        pid,
        exit,
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    match outcomes.binary_search_by_key(&rank, |one| one.rank) {
        Ok(at) => outcomes[at] = one,
        Err(at) => outcomes.insert(at, one),
    }
}

/// `rank 1` or `ranks 1, 2`.
fn listed(ranks: &[u32]) -> String {
    let all: Vec<String> = ranks.iter().map(u32::to_string).collect();
    match ranks {
        [] => "no rank any more".into(),
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", all.join(", ")),
    }
}

/// Reads standard input for rank 0, one block at a time. A message to the returned sender requests the next block.
fn feed(give: impl Fn(Vec<u8>) + Send + 'static) -> Result<Sender<()>> {
    let (taken, more) = channel::unbounded();
    // Not joined: it may still be reading at the end of the job.
    own_thread::start("job-input", move || {
        let mut block = vec![0; BLOCK];
        loop {
            wait_for_foreground();
            match std::io::stdin().lock().read(&mut block) {
                Ok(n @ 1..) => give(block[..n].to_vec()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                // At the end of the input, or without one.
                Ok(0) | Err(_) => return give(Vec::new()),
            }
            if more.recv().is_err() {
                return;
            }
        }
    })?;
    Ok(taken)
}

/// Waits, since the kernel stops a background process that reads from its terminal.
fn wait_for_foreground() {
    let stdin = std::io::stdin();
    while let Ok(group) = rustix::termios::tcgetpgrp(&stdin)
        && group != rustix::process::getpgrp()
    {
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_is_on_one_host() {
        let place = |here: &[u32]| NodePlacement {
            host: "h".into(),
            here: here.to_vec(),
            command: Vec::new(),
        };
        let found = |places: &[&[u32]]| {
            let places: Vec<NodePlacement> = places.iter().map(|here| place(here)).collect();
            homes(3, &places)
        };
        assert_eq!(found(&[&[0, 2], &[1]]), Ok(vec![0, 1, 0]));
        for wrong in [&[&[0u32, 2][..]][..], &[&[0, 1, 2], &[1]], &[&[0, 1, 2, 3]]] {
            assert!(found(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ranks_are_listed() {
        assert_eq!(listed(&[3]), "rank 3");
        assert_eq!(listed(&[0, 3]), "ranks 0, 3");
    }
}
