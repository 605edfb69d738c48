//! The part launchers of a job on several hosts, as seen by the launcher of the whole. It starts one on each host by a remote shell, relays frames between
//! them, and decides how the job reacts to failures.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, Sender as Queue};
use parking_lot::Mutex;
use rustix::process::Signal;

use super::failure_policy::{FailureAction, FailurePolicy, Order, Rules};
use super::frames::{self, Begin, End, Frames, OWN, Sender, Written};
use super::{Exit, GRACE};
use crate::job_snapshot::JobSnapshot;
use unipgas_core::{Error, Result, descriptor, own_thread};

/// Time limit for the remote shells to end after the ranks have been killed.
const PATIENCE: Duration = GRACE.saturating_mul(5);

/// Part launchers of one job, one on each host, with pipes to them. They run [`Launch`](super::Launch) with a [`NodeRanks`](super::NodeRanks) on their standard input
/// and output. Both sides must ignore SIGPIPE, since either may end first. Drop ends the launchers and their ranks.
#[derive(Debug)]
pub struct Hosts {
    parts: Vec<Started>,
    events: Receiver<Event>,
    wishes: Queue<Event>,
}

/// Kind and payload.
type Frame = (u8, Vec<u8>);

#[derive(Debug)]
struct Started {
    host: String,
    child: Mutex<Child>,
    /// `None`, or closed: the launcher kills its ranks.
    queue: Mutex<Option<Queue<Frame>>>,
}

#[derive(Debug)]
enum Event {
    /// A launcher has sent a frame.
    Frame(usize, u8, Vec<u8>),
    /// A launcher has sent malformed data.
    Nonsense(usize),
    /// A launcher has closed its pipe.
    Closed(usize),
    /// The caller ends the ranks.
    End,
    /// The caller kills the ranks.
    Kill,
    /// Standard input for rank 0.
    Input(Vec<u8>),
    /// Output of a host has been written.
    Written(usize, Written),
}

/// An event for the launcher of the whole, while a job runs.
#[derive(Debug)]
pub enum NodeEvent<'a> {
    /// A process has ended.
    Ended {
        /// Number of its host.
        host: usize,
        /// Its rank.
        rank: u32,
        /// Its pid on that host.
        pid: u32,
        /// Its exit status or signal.
        exit: Exit,
        /// The reaction.
        then: FailureAction,
    },
    /// A host is lost.
    Lost {
        /// Its number.
        host: usize,
        /// Exit status of its launcher, or of the remote shell.
        status: ExitStatus,
        /// The ranks that ran there.
        ranks: &'a [u32],
        /// The reaction.
        then: FailureAction,
    },
    /// A host could not start a replacement process.
    Cannot {
        /// The rank.
        rank: u32,
        /// The reason.
        why: &'a str,
        /// The reaction.
        then: FailureAction,
    },
    /// A rank has written output.
    Output {
        /// Number of its host.
        host: usize,
        /// The rank.
        rank: u32,
        /// The output is from standard error.
        is_stderr: bool,
        /// The output.
        bytes: &'a [u8],
    },
    /// A launcher has a message to print.
    Said(&'a str),
    /// Picture of the ranks of a host.
    Shown {
        /// Number of the host.
        host: usize,
        /// The picture.
        snapshot: JobSnapshot,
    },
    /// Rank 0 has taken the input that it was given.
    Taken,
    /// News of the ranks of a host, for the board.
    News(&'a [u8]),
    /// Data from the caller of a part: see [`NodeRanks::send`](super::NodeRanks::send).
    Own {
        /// Number of its host.
        host: usize,
        /// The kind.
        kind: u8,
        /// The data.
        bytes: &'a [u8],
    },
}

/// State of a job while it runs.
struct Watch<'a> {
    hosts: &'a Hosts,
    policy: FailurePolicy,
    begun: Vec<bool>,
    open: usize,
    /// Set when the ranks have been killed: the deadline for their launchers to end.
    killed: Option<Instant>,
    failure: Option<Error>,
}

impl Hosts {
    /// Runs the command of each host: a complete command line, which starts a remote shell if the host is another machine. Messages use the host's name.
    ///
    /// # Errors
    /// [`Error::Os`] if a command cannot be started.
    pub fn start(commands: Vec<(String, Vec<OsString>)>) -> Result<Hosts> {
        let (wishes, events) = channel::unbounded();
        let mut hosts = Hosts {
            parts: Vec::new(),
            events,
            wishes,
        };
        for (host, words) in commands {
            // On an error, the drop of `hosts` ends the commands already started.
            let (child, input, output) = spawn(&words)?;
            let (queue, frames) = channel::unbounded();
            let number = hosts.parts.len();
            hosts.parts.push(Started {
                host,
                child: Mutex::new(child),
                queue: Mutex::new(Some(queue)),
            });
            write(input, frames)?;
            listen(number, output, hosts.wishes.clone())?;
        }
        Ok(hosts)
    }

    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The name of a host.
    pub fn name(&self, number: usize) -> &str {
        &self.parts[number].host
    }

    /// Relays frames between the launchers until all have ended. `rules` decide the reaction to a lost process or host. Returns the first rank that failed
    /// without a spare.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the launcher on a host could not be started, or sends malformed data. The ranks of the other hosts have then been killed.
    pub fn run(&self, rules: Rules, mut heard: impl FnMut(NodeEvent<'_>)) -> Result<Option<u32>> {
        let mut watch = Watch {
            hosts: self,
            policy: FailurePolicy::new(rules, self.parts.len()),
            begun: vec![false; self.parts.len()],
            open: self.parts.len(),
            killed: None,
            failure: None,
        };
        while watch.open > 0 {
            let event = match watch.killed {
                None => self.events.recv().ok(),
                Some(end) => self.events.recv_deadline(end).ok(),
            };
            match event {
                Some(event) => watch.take(event, &mut heard),
                None => {
                    self.end_shells();
                    watch.killed = Some(Instant::now() + PATIENCE);
                }
            }
            watch.carry_out();
        }
        match watch.failure {
            Some(failure) => Err(failure),
            None => Ok(watch.policy.first_failure),
        }
    }

    /// Sends all ranks a signal.
    pub fn signal(&self, signal: Signal) {
        self.tell_all(frames::SIGNAL, &signal.as_raw().to_le_bytes());
    }

    /// Ends the ranks as after a failure: SIGTERM, then SIGKILL after `GRACE`.
    pub fn end(&self) {
        self.wish(Event::End);
    }

    /// Requests a picture of the ranks of each host: [`NodeEvent::Shown`].
    pub(crate) fn show(&self) {
        self.tell_all(frames::SHOW, &[]);
    }

    /// Kills the ranks. Their launchers then end.
    pub fn kill(&self) {
        self.wish(Event::Kill);
    }

    /// Returns a function that passes standard input to rank 0. Empty: end of input.
    pub(super) fn feeder(&self) -> impl Fn(Vec<u8>) + Send + 'static {
        let wishes = self.wishes.clone();
        // Ignored after the end of the job.
        move |bytes| drop(wishes.send(Event::Input(bytes)))
    }

    /// Returns a function that reports written output to its host.
    pub(super) fn writer(&self) -> impl Fn(usize, Written) + Send + 'static {
        let wishes = self.wishes.clone();
        // Ignored after the end of the job: no rank writes any more.
        move |host, written| drop(wishes.send(Event::Written(host, written)))
    }

    /// Sends the first frame to a launcher that waits for it: see [`NodeRanks::open`](super::NodeRanks::open).
    pub(super) fn begin(&self, host: usize, begin: &Begin) {
        self.tell(host, frames::BEGIN, frames::payload(begin));
    }

    fn wish(&self, event: Event) {
        // Cannot fail while `self.events` exists.
        let _ = self.wishes.send(event);
    }

    fn tell_all(&self, kind: u8, payload: &[u8]) {
        (0..self.parts.len()).for_each(|number| self.tell(number, kind, payload.to_vec()));
    }

    fn tell_others(&self, number: usize, kind: u8, payload: &[u8]) {
        let others = (0..self.parts.len()).filter(|other| *other != number);
        others.for_each(|other| self.tell(other, kind, payload.to_vec()));
    }

    fn tell(&self, number: usize, kind: u8, payload: Vec<u8>) {
        if let Some(queue) = &*self.parts[number].queue.lock() {
            // A launcher that has ended has no ranks. `closed` handles its end.
            let _ = queue.send((kind, payload));
        }
    }

    fn close(&self) {
        self.parts.iter().for_each(|part| *part.queue.lock() = None);
    }

    fn end_shells(&self) {
        for part in &self.parts {
            // Fails only after `wait`.
            let _ = part.child.lock().kill();
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.close();
        let end = Instant::now() + PATIENCE;
        for part in &self.parts {
            let mut child = part.child.lock();
            // Ends early if the child has been waited for, or cannot be.
            while let (Ok(None), true) = (child.try_wait(), Instant::now() < end) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Watch<'_> {
    fn take(&mut self, event: Event, heard: &mut dyn FnMut(NodeEvent<'_>)) {
        match event {
            Event::Frame(host, kind, payload) => {
                self.begun[host] = true;
                if self.hear(host, kind, &payload, heard).is_none() {
                    self.nonsense(host);
                }
            }
            Event::Nonsense(host) => self.nonsense(host),
            Event::Closed(host) => {
                self.open -= 1;
                self.closed(host, heard);
            }
            Event::End => self.policy.end(),
            Event::Kill => self.kill(),
            Event::Written(host, written) => {
                self.hosts
                    .tell(host, frames::WRITTEN, frames::payload(&written));
            }
            Event::Input(bytes) => {
                if let Some(home) = self.policy.home(0) {
                    self.hosts.tell(home, frames::INPUT, bytes);
                }
            }
        }
    }

    /// `None`: the frame is invalid.
    fn hear(
        &mut self,
        host: usize,
        kind: u8,
        payload: &[u8],
        heard: &mut dyn FnMut(NodeEvent<'_>),
    ) -> Option<()> {
        match kind {
            frames::NEWS => {
                self.hosts.tell_others(host, kind, payload);
                heard(NodeEvent::News(payload));
            }
            frames::END => {
                let (rank, _) = frames::rank_of(payload)?;
                self.hosts
                    .tell(self.policy.home(rank)?, kind, payload.to_vec());
            }
            frames::ENDED => {
                let end: End = frames::record(payload)?;
                let then = self.policy.ended(host, &end)?;
                let End {
                    rank, pid, exit, ..
                } = end;
                heard(NodeEvent::Ended {
                    host,
                    rank,
                    pid,
                    exit,
                    then,
                });
            }
            frames::CANNOT => {
                let (rank, why) = frames::rank_of(payload)?;
                let then = self.policy.cannot(host, rank)?;
                let why = &String::from_utf8_lossy(why);
                heard(NodeEvent::Cannot { rank, why, then });
            }
            frames::OUTPUT => {
                let (rank, is_stderr, bytes) = frames::output(payload)?;
                heard(NodeEvent::Output {
                    host,
                    rank,
                    is_stderr,
                    bytes,
                });
            }
            frames::SAID => heard(NodeEvent::Said(&String::from_utf8_lossy(payload))),
            // Its only effect is in `begun`: the launcher works, as after any frame.
            frames::STARTED => {}
            frames::TAKEN => heard(NodeEvent::Taken),
            frames::SHOWN => {
                let snapshot = frames::record(payload)?;
                heard(NodeEvent::Shown { host, snapshot });
            }
            OWN.. => heard(NodeEvent::Own {
                host,
                kind,
                bytes: payload,
            }),
            _ => return None,
        }
        Some(())
    }

    fn nonsense(&mut self, host: usize) {
        self.fail(Error::Unreachable(format!(
            "the output of the job's part on host {} is invalid: a greeting of the remote shell?",
            self.hosts.name(host)
        )));
        self.kill();
    }

    fn closed(&mut self, host: usize, heard: &mut dyn FnMut(NodeEvent<'_>)) {
        let status = self.hosts.parts[host].child.lock().wait();
        let status = match status {
            Ok(status) => status,
            Err(e) => return self.fail(Error::os("cannot wait for a remote shell", e)),
        };
        // The launcher takes no more orders.
        *self.hosts.parts[host].queue.lock() = None;
        if self.killed.is_some() || self.policy.is_over() && status.success() {
            return;
        }
        let ranks = self.policy.running_at(host);
        if !self.begun[host] {
            let why = match status.code() {
                Some(127) => "; the same unipgas must be in the same place on all hosts",
                _ => "",
            };
            self.fail(Error::Unreachable(format!(
                "the part of the job on host {} ended: {status}{why}",
                self.hosts.name(host)
            )));
            return self.kill();
        }
        let then = self.policy.lose(host);
        heard(NodeEvent::Lost {
            host,
            status,
            ranks: &ranks,
            then,
        });
    }

    fn fail(&mut self, failure: Error) {
        self.failure.get_or_insert(failure);
    }

    fn kill(&mut self) {
        self.policy.end();
        self.hosts.close();
        self.killed = Some(Instant::now() + PATIENCE);
    }

    fn carry_out(&mut self) {
        for order in std::mem::take(&mut self.policy.orders) {
            let word = |rank: u32| rank.to_le_bytes().to_vec();
            match order {
                Order::Start { host, rank } => self.hosts.tell(host, frames::START, word(rank)),
                Order::GiveUp { host, rank } => self.hosts.tell(host, frames::GIVEN_UP, word(rank)),
                Order::Lost { rank } => self.hosts.tell_all(frames::LOST, &word(rank)),
                Order::EndAll => self.hosts.tell_all(frames::END_ALL, &[]),
                Order::Over => self.hosts.tell_all(frames::OVER, &[]),
            }
        }
    }
}

/// Starts a remote shell that ignores the terminal's interrupts: the ranks get these as frames.
fn spawn(words: &[OsString]) -> Result<(Child, ChildStdin, ChildStdout)> {
    let none = || Error::InvalidArgument("no command for a host".into());
    let (program, args) = words.split_first().ok_or_else(none)?;
    let cannot = |e| Error::os(&format!("cannot start {}", program.display()), e);
    let _reserved = descriptor::Reserved::take();
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let deaf = || {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY:
            // - sets a disposition; allowed between fork and exec.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY:
    // - between fork and exec `deaf` makes system calls only: it takes no lock and allocates nothing.
    unsafe { command.pre_exec(deaf) };
    let mut child = command.spawn().map_err(cannot)?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => Ok((child, input, output)),
        _ => Err(Error::Os("a process without its pipes".into())),
    }
}

/// Writes queued frames until the queue is closed.
fn write(pipe: ChildStdin, frames: Receiver<Frame>) -> Result<()> {
    let sender = Sender::new(OwnedFd::from(pipe));
    let mut open = Some((sender, frames));
    own_thread::start("job-tell", move || {
        // Drop at the end closes the pipe.
        let Some((sender, frames)) = open.take() else {
            return;
        };
        for (kind, payload) in frames {
            // The reader has ended.
            if sender.send(kind, &payload).is_err() {
                return;
            }
        }
    })
    .map(drop)
}

/// Reports the frames of a launcher until it ends.
fn listen(number: usize, mut pipe: ChildStdout, events: Queue<Event>) -> Result<()> {
    own_thread::start("job-hear", move || {
        let mut frames = Frames::default();
        let mut block = [0; 64 << 10];
        let tell = |event| events.send(event).is_ok();
        let mut sound = true;
        loop {
            match pipe.read(&mut block) {
                Ok(0) => break,
                Ok(n) if sound => frames.add(&block[..n]),
                Ok(_) => continue,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            }
            while sound {
                sound = match frames.next() {
                    Ok(Some((kind, payload))) => tell(Event::Frame(number, kind, payload)),
                    Ok(None) => break,
                    Err(_) => {
                        tell(Event::Nonsense(number));
                        false
                    }
                };
            }
        }
        tell(Event::Closed(number));
    })
    .map(drop)
}

/// A command line, quoted for the shell that a remote shell runs.
pub fn shell_line(words: &[OsString]) -> OsString {
    let quoted: Vec<OsString> = words.iter().map(|word| quoted(word)).collect();
    quoted.join(OsStr::new(" "))
}

/// `word`, quoted as one word of a shell.
fn quoted(word: &OsStr) -> OsString {
    let mut text = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    OsString::from_vec(text)
}
