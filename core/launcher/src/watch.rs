//! The life of a job, from the first process to the last: one thread with one epoll.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::process::Signal;

use super::crowd::Crowd;
use super::forward::{Feeder, Forwarder};
use super::frames::End;
use super::node::{Asked, Mirror};
use super::output::{Sink, Stream};
use super::printer::{Print, Printer};
use super::process::{Process, Starter, raise_open_files};
use super::progress::Progress;
use super::signals::{self, Inbox, ONE_KEYPRESS, asks, ends};
use super::stragglers::{Haste, end_children};
use super::{Exit, GRACE, JobMark, JobOutcome, Launch, NodeRanks, Output, RankOutcome};
use crate::job_snapshot::JobSnapshot;
use unipgas_core::descriptor::Reserved;
use unipgas_core::job::{Board, RankState};
use unipgas_core::{Error, Result, tell};

const SIGNALS: u64 = u64::MAX;
const KEEPER: u64 = u64::MAX - 1;
const OTHER_HOSTS: u64 = u64::MAX - 2;
const STREAM: u64 = 1 << 40;

struct Job<'a> {
    launch: &'a Launch,
    board: Arc<Board>,
    starter: Starter<'a>,
    epoll: OwnedFd,
    /// The ranks that start here, ascending.
    here: Vec<u32>,
    /// For a job on several hosts.
    abroad: Option<Abroad<'a>>,
    /// Processes of the ranks, and their replacements.
    processes: Vec<Process>,
    spares: u32,
    /// Captured output.
    streams: Vec<Stream>,
    /// Passes output on.
    forwarder: Option<Forwarder>,
    /// Writes output, if this launcher is not a part.
    printer: Option<Printer>,
    running: usize,
    first_failure: Option<u32>,
    timed_out: bool,
    /// A signal has asked the job to end.
    asked_to_end: bool,
    /// Set while the ranks end: the time to kill the remaining ones.
    ending: Option<Instant>,
    first_interrupt: Option<Instant>,
    progress: Option<Progress>,
    crowd: Crowd,
    /// The keeper or the launcher of the whole has ended.
    deserted: bool,
    /// A rank has joined the job.
    joined: bool,
    output_lost: bool,
}

/// The connection of a part to the launcher of the whole.
struct Abroad<'a> {
    part: &'a NodeRanks,
    mirror: Mirror,
    /// Standard input of rank 0, unless output is captured.
    feeder: Option<Feeder>,
    /// No more requests will come.
    over: bool,
}

impl<'a> Abroad<'a> {
    fn begin(part: &'a NodeRanks, launch: &Launch, board: &Arc<Board>) -> Result<Self> {
        let forwards = launch.output != Output::Capture;
        Ok(Abroad {
            part,
            mirror: Mirror::start(part, board)?,
            feeder: forwards.then(|| Feeder::start(part)).transpose()?,
            over: false,
        })
    }
}

pub(super) fn run(launch: &Launch) -> Result<JobOutcome> {
    // The start of the ranks is part of the timeout.
    let end = launch
        .timeout
        .and_then(|limit| Instant::now().checked_add(limit));
    let _reserved = Reserved::take();
    let open_files = raise_open_files(launch)?;
    // The ranks open the board by this descriptor. The outcome keeps it open.
    let (board, descriptor) = match &launch.joins {
        Some(join) => (Board::attach(&join.token)?, None),
        None => {
            let (board, descriptor) = Board::create(launch.size)?;
            (board, Some(Arc::new(descriptor)))
        }
    };
    let board = Arc::new(board);
    let part = launch.part.as_ref();
    let abroad = part.map(|part| Abroad::begin(part, launch, &board));
    let abroad = abroad.transpose()?;
    let forwards = match launch.output {
        Output::Inherit => part.is_some(),
        Output::Lines | Output::Tag => true,
        Output::Capture => false,
    };
    let forwarder = forwards.then(Forwarder::start).transpose()?;
    let prints = forwarder.as_ref().filter(|_| part.is_none());
    let printer = prints.map(|forwarder| {
        let streams = forwarder.streams();
        Printer::start(launch, move |_, written| streams.written(written))
    });
    let printer = printer.transpose()?;
    let here = match (&launch.part, &launch.joins) {
        (Some(part), _) => part.here().to_vec(),
        (None, Some(join)) => vec![join.rank],
        (None, None) => (0..launch.size).collect(),
    };
    let inbox = if launch.foreground {
        Some(Inbox::open()?)
    } else {
        None
    };
    if launch.foreground {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|e| Error::os("cannot adopt the ranks' children (prctl)", e))?;
    }
    let mask = inbox
        .as_ref()
        .map_or_else(signals::current_mask, Inbox::mask_before);
    let starter = Starter::new(launch, &board, mask, open_files)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
        .map_err(|e| Error::os("cannot watch processes (epoll)", e))?;
    let crowd = Crowd::new(here.len(), cores(), Instant::now());
    let mut job = Job {
        launch,
        board,
        starter,
        epoll,
        processes: Vec::with_capacity(here.len()),
        spares: launch.spares,
        here,
        abroad,
        streams: Vec::new(),
        forwarder,
        printer,
        running: 0,
        first_failure: None,
        timed_out: false,
        asked_to_end: false,
        ending: None,
        first_interrupt: None,
        progress: (launch.tells() && launch.joins.is_none()).then(|| Progress::new(Instant::now())),
        crowd,
        deserted: false,
        joined: false,
        output_lost: false,
    };
    let seen_through = job
        .start(inbox.as_ref())
        .and_then(|()| job.watch(inbox.as_ref(), end));
    if seen_through.is_err() {
        job.kill_all();
    }
    if launch.foreground {
        end_children(if job.deserted {
            Haste::Kill
        } else {
            Haste::Ask
        });
    }
    job.streams.iter_mut().for_each(Stream::finish);
    job.forwarder = None;
    if let Some(printer) = job.printer.take() {
        let soon = job.timed_out || job.asked_to_end || job.deserted;
        let patience = soon.then_some(GRACE);
        let keeper = launch.keeper.as_ref().filter(|_| !job.deserted);
        job.output_lost = printer.finish(inbox.as_ref(), keeper, patience);
    }
    // Drop sends the last news of the ranks before any later frame of the caller.
    job.abroad = None;
    let name = JobMark {
        token: job.board.token(),
        _descriptor: descriptor,
    };
    seen_through.map(|()| job.outcome(name))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(usize::MAX, usize::from)
}

impl Job<'_> {
    fn start(&mut self, inbox: Option<&Inbox>) -> Result<()> {
        if let Some(inbox) = inbox {
            self.add(inbox.fd(), SIGNALS)?;
        }
        if let Some(keeper) = &self.launch.keeper {
            self.add(keeper.as_fd(), KEEPER)?;
        }
        if let Some(abroad) = &self.abroad {
            self.add(abroad.mirror.bell(), OTHER_HOSTS)?;
        }
        if let Some(join) = &self.launch.joins {
            return self.take_place(join.rank);
        }
        if let Some((ranks, cores)) = self.starter.crowding(&self.here) {
            self.report(format_args!(
                "{ranks} ranks share {cores} cores (--bind core): fewer ranks, or --bind numa or none, suit this machine"
            ));
        }
        for rank in self.here.clone() {
            if self.launch.reports_bindings {
                self.report(format_args!("{}", self.starter.binding(rank)));
            }
            self.tell_progress(Instant::now());
            self.start_rank(rank)?;
        }
        if let Some(abroad) = &self.abroad {
            abroad.part.tell_started();
        }
        Ok(())
    }

    /// Replaces a rank of a job that another launcher has started.
    fn take_place(&mut self, rank: u32) -> Result<()> {
        if self.board.is_afar(rank)? {
            return Err(Error::InvalidArgument(format!(
                "rank {rank} of that job is on another host: start it there"
            )));
        }
        let taken = self.start_again(rank)?;
        taken.map(drop).ok_or_else(|| {
            Error::InvalidArgument(format!("the process that is rank {rank} has not died"))
        })
    }

    /// Returns the pid.
    fn start_rank(&mut self, rank: u32) -> Result<u32> {
        let mut process = self.starter.start(rank)?;
        self.running += 1;
        let [out, err] = process.outputs();
        let input = process.child.stdin.take();
        let (place, pid) = (self.processes.len(), process.child.id());
        self.processes.push(process);
        self.board.set_pid(rank, pid)?;
        self.add(self.processes[place].pidfd.as_fd(), place as u64)?;
        if let Some((input, feeder)) = input.zip(self.feeder()) {
            feeder.becomes(input);
        }
        for (is_stderr, fd) in [(false, out), (true, err)] {
            if let Some(fd) = fd {
                self.add_output(rank, is_stderr, fd)?;
            }
        }
        Ok(pid)
    }

    fn add_output(&mut self, rank: u32, is_stderr: bool, fd: OwnedFd) -> Result<()> {
        let whole = self
            .launch
            .part
            .as_ref()
            .map(|part| Sink::Whole(part.clone()));
        let printer = || self.printer.as_ref().map(|one| Sink::Printer(one.sender()));
        if let Some((forwarder, sink)) = self.forwarder.as_ref().zip(whole.or_else(printer)) {
            return forwarder.add(fd, |fd| Stream::new(rank, is_stderr, fd, sink));
        }
        self.add(fd.as_fd(), STREAM | self.streams.len() as u64)?;
        self.streams
            .push(Stream::new(rank, is_stderr, fd, Sink::Kept)?);
        Ok(())
    }

    fn feeder(&self) -> Option<&Feeder> {
        self.abroad.as_ref()?.feeder.as_ref()
    }

    /// The present or last process of `rank`.
    fn process_of(&self, rank: u32) -> Option<&Process> {
        self.processes
            .iter()
            .rev()
            .find(|process| process.rank == rank)
    }

    fn add(&self, fd: impl AsFd, token: u64) -> Result<()> {
        epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN,
        )
        .map_err(|e| Error::os("cannot watch a process (epoll)", e))
    }

    fn watch(&mut self, inbox: Option<&Inbox>, end: Option<Instant>) -> Result<()> {
        let mut events = Vec::with_capacity(64);
        while self.running > 0 || self.abroad.as_ref().is_some_and(|abroad| !abroad.over) {
            let end_of_time = end.filter(|_| !self.timed_out);
            let progress = self.progress.as_ref().and_then(Progress::next);
            let next = [self.ending, end_of_time, progress, self.crowd.next()]
                .into_iter()
                .flatten()
                .min();
            let left = next.map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::os("cannot wait for the ranks (epoll_wait)", e)),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    SIGNALS => inbox.into_iter().for_each(|inbox| self.hand_on(inbox)),
                    KEEPER => self.desert(),
                    OTHER_HOSTS => self.hear(),
                    token if token & STREAM != 0 => self.pump((token & !STREAM) as usize),
                    place => self.reap(place as usize),
                }
            }
            let now = Instant::now();
            self.tell_progress(now);
            self.tell_of_crowd(now);
            if self.ending.is_some_and(|at| now >= at) {
                self.signal_all(Signal::KILL);
                self.ending = now.checked_add(GRACE);
            }
            if !self.timed_out && end.is_some_and(|at| now >= at) && self.running > 0 {
                self.timed_out = true;
                let seconds = self.launch.timeout.unwrap_or_default().as_secs_f64();
                self.say(format_args!(
                    "the job did not end within {seconds} s (--timeout); ending it"
                ));
                self.show();
                self.end_all();
            }
        }
        Ok(())
    }

    /// Prints a picture of the ranks.
    fn show(&self) {
        let picture = JobSnapshot::look(&self.board).to_string();
        self.say(format_args!(
            "what the ranks are doing:\n{}",
            picture.trim_end()
        ));
    }

    fn pump(&mut self, index: usize) {
        // End of file also makes the descriptor readable. Its close removes it from the epoll.
        self.streams[index].pump();
    }

    fn hand_on(&mut self, inbox: &Inbox) {
        while let Some(arrived) = inbox.next() {
            self.asked_to_end |= ends(arrived.signal);
            if arrived.signal == libc::SIGINT {
                let now = Instant::now();
                if self
                    .first_interrupt
                    .is_some_and(|first| now.duration_since(first) > ONE_KEYPRESS)
                {
                    self.say(format_args!("interrupted again; killing the job"));
                    self.signal_all(Signal::KILL);
                    continue;
                }
                self.first_interrupt.get_or_insert(now);
            }
            if asks(arrived.signal) {
                self.show();
            }
            if !arrived.from_terminal
                && let Some(signal) = Signal::from_named_raw(arrived.signal)
            {
                self.signal_all(signal);
            }
        }
    }

    /// Carries out requests of the launcher of the whole.
    fn hear(&mut self) {
        let asked = self.abroad.as_ref().map(|abroad| abroad.mirror.asked());
        for asked in asked.into_iter().flatten() {
            match asked {
                Asked::End(rank) => {
                    if let Some(process) = self.process_of(rank) {
                        // Cannot fail: the rank is on the board.
                        let _ = self.board.want_end(rank);
                        process.signal(Signal::INT);
                    }
                }
                Asked::Signal(signal) => {
                    self.asked_to_end |= ends(signal);
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        self.signal_all(signal);
                    }
                }
                Asked::Show => {
                    let picture = JobSnapshot::look(&self.board);
                    if let Some(abroad) = &self.abroad {
                        abroad.part.tell_picture(&picture);
                    }
                }
                Asked::EndAll => self.end_all(),
                // If deserted, the launcher of the whole learns that this host is lost.
                Asked::Start(rank) if !self.deserted => self.take_in(rank),
                Asked::Start(_) => {}
                Asked::GivenUp(rank) => {
                    self.first_failure.get_or_insert(rank);
                }
                Asked::Written(written) => {
                    if let Some(forwarder) = &self.forwarder {
                        forwarder.streams().written(written);
                    }
                }
                Asked::Input(bytes) => {
                    if let Some(feeder) = self.feeder() {
                        feeder.feed(bytes);
                    }
                }
                Asked::Over => self.finish(),
                Asked::Kill => self.desert(),
            }
        }
    }

    fn finish(&mut self) {
        if let Some(abroad) = &mut self.abroad {
            abroad.over = true;
        }
    }

    /// Starts a process for a rank that was here, or on a lost host.
    fn take_in(&mut self, rank: u32) {
        // Cannot fail: the rank is on the board.
        let _ = self.board.set_here(rank);
        if let Err(at) = self.here.binary_search(&rank) {
            self.here.insert(at, rank);
        }
        if let Err(error) = self.start_again(rank)
            && let Some(abroad) = &self.abroad
        {
            abroad.part.tell_cannot(rank, &error);
        }
    }

    fn reap(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let rank = process.rank;
        if process.exit.is_some() {
            return;
        }
        let Some(exit) = process.reap() else { return };
        let pid = process.child.id();
        self.running -= 1;
        // A pidfd of a reaped process stays readable.
        let _ = epoll::delete(&self.epoll, &self.processes[place].pidfd);
        // Cannot fail, here and below: the rank is on the board.
        let _ = self.board.set_ended(rank);
        let state = self.board.state(rank);
        self.joined |= state != Ok(RankState::Absent);
        let left_properly = state == Ok(RankState::Finalized) && matches!(exit, Exit::Code(_));
        if left_properly {
            // A process may wait for the rank's next life cycle.
            self.board.ring();
        } else {
            let _ = self.board.mark_dead(rank);
        }
        // The last output of a rank comes before the message about its end.
        let streams = self.streams.iter_mut();
        let of_rank = streams.filter(|stream| stream.rank == rank);
        of_rank.for_each(Stream::drain);
        if let Some(forwarder) = &self.forwarder {
            forwarder.drain(rank);
        }
        if let Some(abroad) = &self.abroad {
            if self.deserted {
                // The launcher of the whole counts the ranks of a lost host.
                return;
            }
            // The launcher of the whole decides the reaction.
            return abroad.part.tell_end(End {
                rank,
                pid,
                exit,
                left: left_properly,
                wanted: self.board.end_is_wanted(rank),
            });
        }
        if exit.success() || self.ending.is_some() {
            return;
        }
        let failed = format!("rank {rank} (pid {pid}) {exit}");
        if self.spares > 0 && !left_properly && self.replace(rank, &failed) {
            return;
        }
        if self.board.end_is_wanted(rank) {
            return;
        }
        self.first_failure.get_or_insert(rank);
        let others = match (self.running, self.launch.keep_going) {
            (0, _) => "",
            (_, true) => "; the others go on",
            (_, false) => "; ending the others",
        };
        self.say_after(format_args!("{failed}{others}"), &[rank]);
        if self.running > 0 && !self.launch.keep_going {
            self.end_all();
        }
    }

    /// Starts a spare for a dead rank. `failed` is the message about its end. Returns whether the rank is replaced.
    fn replace(&mut self, rank: u32, failed: &str) -> bool {
        match self.start_again(rank) {
            // A user has started a process for the rank.
            Ok(None) => true,
            Ok(Some(pid)) => {
                self.spares -= 1;
                let left = self.spares;
                self.say_after(
                    format_args!("{failed}; process {pid} takes its place, spares left: {left}"),
                    &[rank],
                );
                true
            }
            Err(error) => {
                self.say(format_args!("no spare for rank {rank}: {error}"));
                false
            }
        }
    }

    /// Starts a dead rank again, and returns the pid. `None`: the rank is not dead.
    fn start_again(&mut self, rank: u32) -> Result<Option<u32>> {
        let wanted = self.board.end_is_wanted(rank);
        if !self.board.begin_again(rank)? {
            return Ok(None);
        }
        let started = self.start_rank(rank);
        if started.is_err() {
            self.board.mark_dead(rank)?;
            if wanted {
                self.board.want_end(rank)?;
            }
        }
        started.map(Some)
    }

    /// Kills the ranks: the process that waits for the job has ended.
    fn desert(&mut self) {
        if let Some(keeper) = self.launch.keeper.as_ref().filter(|_| !self.deserted) {
            // The descriptor stays readable.
            let _ = epoll::delete(&self.epoll, keeper);
        }
        self.deserted = true;
        self.finish();
        self.ending = Some(Instant::now());
        self.signal_all(Signal::KILL);
    }

    fn end_all(&mut self) {
        self.signal_all(Signal::TERM);
        // A stopped process takes SIGTERM only after SIGCONT.
        self.signal_all(Signal::CONT);
        self.ending = Instant::now().checked_add(GRACE);
    }

    fn signal_all(&self, signal: Signal) {
        self.processes
            .iter()
            .for_each(|process| process.signal(signal));
    }

    /// For an error return.
    fn kill_all(&mut self) {
        self.signal_all(Signal::KILL);
        for process in &mut self.processes {
            // Fails only if it has been reaped already.
            let _ = process.child.wait();
        }
    }

    fn tell_progress(&mut self, now: Instant) {
        let news = |progress: &mut Progress| progress.news(&self.board, now);
        if let Some(joined) = self.progress.as_mut().and_then(news) {
            let size = self.launch.size;
            self.say(format_args!(
                "{joined} of {size} ranks have joined the job so far"
            ));
        }
    }

    fn tell_of_crowd(&mut self, now: Instant) {
        let running = self.processes.iter().filter(|one| one.exit.is_none());
        let Some(rank) = self
            .crowd
            .news(running.map(|one| (one.rank, one.child.id())), now)
        else {
            return;
        };
        self.report(format_args!(
            "{} ranks share {} cores, and rank {rank} computes or polls memory without a pause: the others wait for its whole time slices. Faster: fewer ranks; waits by \
             calls of the library; or -x UNIPGAS_NAP=200, which lets a rank sleep a moment each 200 microseconds",
            self.here.len(),
            cores()
        ));
    }

    /// Prints a message about this host only. A part sends it to the launcher of the whole.
    fn report(&self, text: std::fmt::Arguments<'_>) {
        match &self.abroad {
            Some(abroad) => abroad.part.say(&text.to_string()),
            None => self.say(text),
        }
    }

    fn say(&self, text: std::fmt::Arguments<'_>) {
        self.say_after(text, &[]);
    }

    /// Prints a message after all earlier output of these ranks.
    fn say_after(&self, text: std::fmt::Arguments<'_>, ranks: &[u32]) {
        match &self.printer {
            _ if !self.launch.tells() => {}
            Some(printer) => printer.print(Print::Said(text.to_string(), ranks.to_vec())),
            None => tell(&text.to_string()),
        }
    }

    fn outcome(self, name: JobMark) -> JobOutcome {
        let last = self.here.iter().filter_map(|rank| self.process_of(*rank));
        let mut ranks: Vec<RankOutcome> = last
            .map(|process| RankOutcome {
                rank: process.rank,
                pid: process.child.id(),
                exit: process.exit.unwrap_or(Exit::Signal(libc::SIGKILL)),
                stdout: Vec::new(),
                stderr: Vec::new(),
            })
            .collect();
        if self.launch.output == Output::Capture {
            for stream in self.streams {
                let Ok(place) = ranks.binary_search_by_key(&stream.rank, |one| one.rank) else {
                    continue;
                };
                let (place, is_stderr) = (&mut ranks[place], stream.is_stderr);
                let all = if is_stderr {
                    &mut place.stderr
                } else {
                    &mut place.stdout
                };
                all.extend(stream.into_bytes());
            }
        }
        JobOutcome {
            ranks,
            first_failure: self.first_failure,
            timed_out: self.timed_out,
            joined: self.joined,
            output_lost: self.output_lost,
            seed: self.launch.seed,
            job: name,
        }
    }
}
