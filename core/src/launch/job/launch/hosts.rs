//! The launcher of a job on several hosts: it starts a launcher on each by a remote shell, and hands on what they tell each other.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Child, ChildStdout, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::Signal;

use super::frames::{self, Frames, LOST, OWN, Sender};
use crate::{Error, Result, descriptor};

/// Launchers of one job, each on a host, with pipes to them. They run [`Launch`](super::Launch) with a [`Part`](super::Part) of their
/// standard input and output. Both ignore SIGPIPE: some end before the others. Dropped, it ends them and their ranks.
#[derive(Debug)]
pub struct Hosts {
    parts: Vec<Started>,
}

#[derive(Debug)]
struct Started {
    host: String,
    child: Mutex<Child>,
    /// Closed when its ranks are to be killed.
    input: Mutex<Option<Sender>>,
    output: Mutex<Option<ChildStdout>>,
}

/// What [`Hosts::run`] was told.
struct Course<'a> {
    homes: &'a [usize],
    keep_going: bool,
    heard: &'a (dyn Fn(usize, u8, &[u8]) + Sync),
}

impl Hosts {
    /// Runs each command on its host: `shell HOST COMMAND`, as ssh is called.
    ///
    /// # Errors
    /// [`Error::Os`]: the shell cannot be started.
    pub fn start(shell: &OsStr, commands: &[(String, Vec<OsString>)]) -> Result<Hosts> {
        let start = |(host, command): &(String, Vec<OsString>)| -> Result<Started> {
            let _reserved = descriptor::Reserved::take();
            let mut child = Command::new(shell)
                .arg(host)
                .args(command.iter().map(|word| quoted(word)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| Error::os(&format!("cannot start {}", shell.display()), e))?;
            let input = child.stdin.take();
            Ok(Started {
                host: host.clone(),
                input: Mutex::new(input.map(|pipe| Sender::new(OwnedFd::from(pipe)))),
                output: Mutex::new(child.stdout.take()),
                child: Mutex::new(child),
            })
        };
        let mut hosts = Hosts { parts: Vec::new() };
        for command in commands {
            // Those that have been started end with `hosts`.
            hosts.parts.push(start(command)?);
        }
        Ok(hosts)
    }

    /// Hands on what the launchers tell each other until all have ended; `homes` says on which host, counted from 0, each rank is. What is
    /// the user's own (see [`Part::send`](super::Part::send)) goes to `heard`, with the number of the host. Where one fails, the ranks of
    /// the others are killed; but if they are to keep going and it had begun, they are told that its ranks are dead, and `heard` gets
    /// [`LOST`].
    ///
    /// # Errors
    /// [`Error::Unreachable`]: the launcher on a host could not be started, or has been killed.
    pub fn run(
        &self,
        homes: &[usize],
        keep_going: bool,
        heard: impl Fn(usize, u8, &[u8]) + Sync,
    ) -> Result<()> {
        let course = Course {
            homes,
            keep_going,
            heard: &heard,
        };
        let each = |number: usize| {
            let ended = self.see_through(number, &course);
            if ended.is_err() {
                self.kill();
            }
            ended
        };
        std::thread::scope(|scope| {
            let each = &each;
            let threads: Vec<_> = (0..self.parts.len())
                .map(|number| scope.spawn(move || each(number)))
                .collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // All are waited for.
            ended.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Sends all ranks a signal.
    pub fn signal(&self, signal: Signal) {
        self.tell_all(frames::SIGNAL, &signal.as_raw().to_le_bytes());
    }

    /// Ends the ranks as a failure of one of them does: by SIGTERM, and SIGKILL after a while.
    pub fn end(&self) {
        self.tell_all(frames::END_ALL, &[]);
    }

    /// Kills the ranks; their launchers end then.
    pub fn kill(&self) {
        self.parts.iter().for_each(|part| *part.input.lock() = None);
    }

    fn tell_all(&self, kind: u8, payload: &[u8]) {
        (0..self.parts.len()).for_each(|number| self.tell(number, kind, payload));
    }

    fn tell(&self, number: usize, kind: u8, payload: &[u8]) {
        if let Some(input) = &*self.parts[number].input.lock() {
            // One that has ended has no rank to tell; why it has ended is found where it is waited for.
            let _ = input.send(kind, payload);
        }
    }

    fn see_through(&self, number: usize, course: &Course<'_>) -> Result<()> {
        let part = &self.parts[number];
        let mut output = part.output.lock().take();
        let mut frames = Frames::default();
        let mut block = [0; 64 << 10];
        let (mut sound, mut begun) = (Ok(()), false);
        while let Some(pipe) = &mut output {
            match pipe.read(&mut block) {
                Ok(0) => break,
                Ok(n) => frames.add(&block[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            begun = true;
            sound = self.hand_on(number, &mut frames, course);
            if sound.is_err() {
                self.kill();
                break;
            }
        }
        drop(output);
        let status = part.child.lock().wait();
        let status = status.map_err(|e| Error::os("cannot wait for a remote shell", e))?;
        sound?;
        match status.success() {
            true => Ok(()),
            false if begun && course.keep_going => {
                self.lose(number, course);
                Ok(())
            }
            false => Err(Error::Unreachable(format!(
                "the part of the job on host {} ended: {status}",
                part.host
            ))),
        }
    }

    fn lose(&self, number: usize, course: &Course<'_>) {
        let ranks = (0u32..).zip(course.homes);
        for (rank, _) in ranks.filter(|(_, home)| **home == number) {
            self.tell_others(number, frames::LOST, &rank.to_le_bytes());
        }
        (course.heard)(number, LOST, &[]);
    }

    fn tell_others(&self, number: usize, kind: u8, payload: &[u8]) {
        let others = (0..self.parts.len()).filter(|other| *other != number);
        others.for_each(|other| self.tell(other, kind, payload));
    }

    fn hand_on(&self, number: usize, frames: &mut Frames, course: &Course<'_>) -> Result<()> {
        while let Some((kind, payload)) = frames.next()? {
            let rank = <[u8; 4]>::try_from(payload.as_slice()).map(u32::from_le_bytes);
            let home = rank.ok().and_then(|rank| course.homes.get(rank as usize));
            match (kind, home) {
                (frames::NEWS, _) => self.tell_others(number, kind, &payload),
                (frames::END, Some(home)) => self.tell(*home, kind, &payload),
                (OWN.., _) => (course.heard)(number, kind, &payload),
                _ => {
                    return Err(Error::Unreachable(format!(
                        "what the part of the job on host {} tells makes no sense: a greeting of the remote shell?",
                        self.parts[number].host
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.kill();
        for part in &self.parts {
            // It has been waited for already, or cannot be.
            let _ = part.child.lock().wait();
        }
    }
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
