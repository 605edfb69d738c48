//! The launchers of a job on several hosts, as the launcher of the whole sees them: it starts one on each, by a remote shell, hands on what
//! they tell each other, and decides what becomes of the job.

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

use super::course::{Course, Order, Rules, Then};
use super::frames::{self, Begin, End, Frames, OWN, Sender, Written};
use super::{Exit, GRACE};
use crate::picture::Picture;
use unipgas_core::{Error, Result, descriptor, own_thread};

/// How long the remote shells have to end when the ranks have been killed.
const PATIENCE: Duration = GRACE.saturating_mul(5);

/// Launchers of one job, each on a host, with pipes to them. They run [`Launch`](super::Launch) with a [`Part`](super::Part) of their
/// standard input and output. Both ignore SIGPIPE: some end before the others. Dropped, it ends them and their ranks.
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
    /// Closed when its ranks are to be killed.
    queue: Mutex<Option<Queue<Frame>>>,
}

#[derive(Debug)]
enum Event {
    /// A launcher tells something.
    Frame(usize, u8, Vec<u8>),
    /// What it tells is none of it.
    Nonsense(usize),
    /// It tells nothing more.
    Closed(usize),
    /// The ranks are to be ended.
    End,
    /// They are to be killed.
    Kill,
    /// Standard input for rank 0.
    Input(Vec<u8>),
    /// Output of a host has been written.
    Written(usize, Written),
}

/// What the launcher of the whole hears while a job runs.
#[derive(Debug)]
pub enum Told<'a> {
    /// A process has ended.
    Ended {
        /// The number of its host.
        host: usize,
        /// Its rank.
        rank: u32,
        /// Its pid there.
        pid: u32,
        /// How.
        exit: Exit,
        /// And what comes then.
        then: Then,
    },
    /// A host is lost.
    Lost {
        /// Its number.
        host: usize,
        /// How its launcher ended, or the remote shell.
        status: ExitStatus,
        /// The ranks that ran there.
        ranks: &'a [u32],
        /// What comes then.
        then: Then,
    },
    /// A host could not start a process in the place of another one.
    Cannot {
        /// The rank.
        rank: u32,
        /// Why.
        why: &'a str,
        /// What comes then.
        then: Then,
    },
    /// A rank has written something.
    Output {
        /// The number of its host.
        host: usize,
        /// Which.
        rank: u32,
        /// To standard error.
        is_stderr: bool,
        /// What.
        bytes: &'a [u8],
    },
    /// The launcher on a host has something to say.
    Said(&'a str),
    /// What the ranks of a host are doing.
    Shown {
        /// The number of the host.
        host: usize,
        /// What.
        picture: Picture,
    },
    /// Rank 0 has taken the input that it was given.
    Taken,
    /// What has changed on the board of a host.
    News(&'a [u8]),
    /// What the caller of a part has sent: see [`Part::send`](super::Part::send).
    Own {
        /// The number of its host.
        host: usize,
        /// The kind.
        kind: u8,
        /// What.
        bytes: &'a [u8],
    },
}

/// What becomes of a job, while it is seen through.
struct Watch<'a> {
    hosts: &'a Hosts,
    course: Course,
    begun: Vec<bool>,
    open: usize,
    /// The ranks have been killed; when those who still have to tell so are not waited for any more.
    killed: Option<Instant>,
    failure: Option<Error>,
}

impl Hosts {
    /// Runs the command of each host, which is named in messages: a whole command line, of a remote shell where the host is another one.
    ///
    /// # Errors
    /// [`Error::Os`]: one cannot be started.
    pub fn start(commands: Vec<(String, Vec<OsString>)>) -> Result<Hosts> {
        let (wishes, events) = channel::unbounded();
        let mut hosts = Hosts {
            parts: Vec::new(),
            events,
            wishes,
        };
        for (host, words) in commands {
            // Those that have been started end with `hosts`.
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

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The name of a host.
    pub fn name(&self, number: usize) -> &str {
        &self.parts[number].host
    }

    /// Hands on what the launchers tell each other until all have ended. Where a process or a host is lost, `rules` say what is done.
    /// The rank that was the first to fail with no spare for it.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: the launcher on a host could not be started, or makes no sense; the ranks of the others have been killed then.
    pub fn run(&self, rules: Rules, mut heard: impl FnMut(Told<'_>)) -> Result<Option<u32>> {
        let mut watch = Watch {
            hosts: self,
            course: Course::new(rules, self.parts.len()),
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
            None => Ok(watch.course.first_failure),
        }
    }

    /// Sends all ranks a signal.
    pub fn signal(&self, signal: Signal) {
        self.tell_all(frames::SIGNAL, &signal.as_raw().to_le_bytes());
    }

    /// Ends the ranks as a failure of one of them does: by SIGTERM, and SIGKILL after a while.
    pub fn end(&self) {
        self.wish(Event::End);
    }

    /// Asks what the ranks are doing: [`Told::Shown`].
    pub fn show(&self) {
        self.tell_all(frames::SHOW, &[]);
    }

    /// Kills the ranks; their launchers end then.
    pub fn kill(&self) {
        self.wish(Event::Kill);
    }

    /// What gives rank 0 standard input; nothing: its end.
    pub(super) fn feeder(&self) -> impl Fn(Vec<u8>) + Send + 'static {
        let wishes = self.wishes.clone();
        // When all is over, nobody takes it.
        move |bytes| drop(wishes.send(Event::Input(bytes)))
    }

    /// What is told that output of a host has been written.
    pub(super) fn writer(&self) -> impl Fn(usize, Written) + Send + 'static {
        let wishes = self.wishes.clone();
        // When all is over, no rank writes any more.
        move |host, written| drop(wishes.send(Event::Written(host, written)))
    }

    /// The first that a launcher is told which waits for that: see [`Part::open`](super::Part::open).
    pub(super) fn begin(&self, host: usize, begin: &Begin) {
        self.tell(host, frames::BEGIN, begin.to_bytes());
    }

    fn wish(&self, event: Event) {
        // It is heard as long as there are hosts.
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
            // One that has ended has no rank to tell; why it has ended is found where it is waited for.
            let _ = queue.send((kind, payload));
        }
    }

    fn close(&self) {
        self.parts.iter().for_each(|part| *part.queue.lock() = None);
    }

    fn end_shells(&self) {
        for part in &self.parts {
            // One that has been waited for is not killed.
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
            // It has been waited for already, or cannot be.
            while let (Ok(None), true) = (child.try_wait(), Instant::now() < end) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Watch<'_> {
    fn take(&mut self, event: Event, heard: &mut dyn FnMut(Told<'_>)) {
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
            Event::End => self.course.end(),
            Event::Kill => self.kill(),
            Event::Written(host, written) => {
                self.hosts.tell(host, frames::WRITTEN, written.to_bytes());
            }
            Event::Input(bytes) => {
                if let Some(home) = self.course.home(0) {
                    self.hosts.tell(home, frames::INPUT, bytes);
                }
            }
        }
    }

    /// `None`: it makes no sense.
    fn hear(
        &mut self,
        host: usize,
        kind: u8,
        payload: &[u8],
        heard: &mut dyn FnMut(Told<'_>),
    ) -> Option<()> {
        match kind {
            frames::NEWS => {
                self.hosts.tell_others(host, kind, payload);
                heard(Told::News(payload));
            }
            frames::END => {
                let (rank, _) = frames::rank_of(payload)?;
                self.hosts
                    .tell(self.course.home(rank)?, kind, payload.to_vec());
            }
            frames::ENDED => {
                let end = End::from_bytes(payload)?;
                let then = self.course.ended(host, &end)?;
                let End {
                    rank, pid, exit, ..
                } = end;
                heard(Told::Ended {
                    host,
                    rank,
                    pid,
                    exit,
                    then,
                });
            }
            frames::CANNOT => {
                let (rank, why) = frames::rank_of(payload)?;
                let then = self.course.cannot(host, rank)?;
                let why = &String::from_utf8_lossy(why);
                heard(Told::Cannot { rank, why, then });
            }
            frames::OUTPUT => {
                let (rank, is_stderr, bytes) = frames::output(payload)?;
                heard(Told::Output {
                    host,
                    rank,
                    is_stderr,
                    bytes,
                });
            }
            frames::SAID => heard(Told::Said(&String::from_utf8_lossy(payload))),
            // As whatever else it tells, it says that the launcher could do its work.
            frames::STARTED => {}
            frames::TAKEN => heard(Told::Taken),
            frames::SHOWN => {
                let picture = serde_json::from_slice(payload).ok()?;
                heard(Told::Shown { host, picture });
            }
            OWN.. => heard(Told::Own {
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
            "what the part of the job on host {} tells makes no sense: a greeting of the remote shell?",
            self.hosts.name(host)
        )));
        self.kill();
    }

    fn closed(&mut self, host: usize, heard: &mut dyn FnMut(Told<'_>)) {
        let status = self.hosts.parts[host].child.lock().wait();
        let status = match status {
            Ok(status) => status,
            Err(e) => return self.fail(Error::os("cannot wait for a remote shell", e)),
        };
        // Nobody is to be told there any more.
        *self.hosts.parts[host].queue.lock() = None;
        if self.killed.is_some() || self.course.is_over() && status.success() {
            return;
        }
        let ranks = self.course.running_at(host);
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
        let then = self.course.lose(host);
        heard(Told::Lost {
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
        self.course.end();
        self.hosts.close();
        self.killed = Some(Instant::now() + PATIENCE);
    }

    fn carry_out(&mut self) {
        for order in std::mem::take(&mut self.course.orders) {
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

/// A remote shell that its user's terminal does not interrupt: the ranks are told.
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

/// Writes what is queued, until the queue is closed.
fn write(pipe: ChildStdin, frames: Receiver<Frame>) -> Result<()> {
    let sender = Sender::new(OwnedFd::from(pipe));
    let mut open = Some((sender, frames));
    own_thread::start("job-tell", move || {
        // Dropped at the end: closes the pipe.
        let Some((sender, frames)) = open.take() else {
            return;
        };
        for (kind, payload) in frames {
            // Who reads no more has ended.
            if sender.send(kind, &payload).is_err() {
                return;
            }
        }
    })
    .map(drop)
}

/// Says what a launcher tells, until it has ended.
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

/// A command line for a shell, which a remote shell hands to one.
pub fn shell_line(words: &[OsString]) -> OsString {
    let quoted: Vec<OsString> = words.iter().map(|word| quoted(word)).collect();
    quoted.join(OsStr::new(" "))
}

/// As one word of a shell.
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
