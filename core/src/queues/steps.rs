//! The counters of commands that events start (of session ports, uTofu guide §2.2.8.1, and of deferred work, fi_trigger(3)): commands
//! posted, steps that events have allowed, commands started. One process at a time (the *runner*) starts commands; who cannot become the
//! runner leaves, since the runner looks again after it has resigned.

use std::ops::ControlFlow;

use crate::cache::OwnLine;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use crate::sync::atomic::{AtomicU64, fence};

/// The counters, in memory that the owner and its peers share. All-zero bytes are those of a fresh port.
#[repr(C)]
pub struct Steps {
    posted: OwnLine<AtomicU64>,
    allowed: OwnLine<AtomicU64>,
    started: OwnLine<AtomicU64>,
    /// 0, or the pid of the process that starts commands.
    runner: OwnLine<AtomicU64>,
}

impl Steps {
    /// Those of a fresh port.
    #[allow(
        clippy::new_without_default,
        reason = "the model checker's have no default"
    )]
    pub fn new() -> Self {
        let line = || OwnLine(AtomicU64::new(0));
        Steps {
            posted: line(),
            allowed: line(),
            started: line(),
            runner: line(),
        }
    }

    /// Commands posted so far.
    pub fn posted(&self) -> u64 {
        self.posted.0.load(Acquire)
    }

    /// Lets the next command be started, which the owner has written down. The owner alone.
    pub fn post(&self) {
        self.post_up_to(self.posted().wrapping_add(1));
    }

    /// The same, by an owner who counts his commands himself, where others could have changed the count.
    pub fn post_up_to(&self, posted: u64) {
        self.posted.0.store(posted, Release);
    }

    /// An arrival lets `steps` more commands start.
    pub fn allow(&self, steps: u8) {
        self.allowed.0.fetch_add(steps.into(), AcqRel);
    }

    /// The number of the next command that may start.
    pub fn ready(&self) -> Option<u64> {
        self.ready_of(u64::MAX)
    }

    /// The same, where at most so many commands wait: of more there are none, as somebody has written over the counts.
    pub fn ready_of(&self, most: u64) -> Option<u64> {
        // Between the own change and this look: of two who change something and look, one sees the other's change.
        fence(SeqCst);
        let started = self.started.0.load(Acquire);
        let allowed = self.allowed.0.load(Acquire);
        let posted = self.posted.0.load(Acquire);
        let waiting = posted.checked_sub(started)?;
        (started < allowed.min(posted) && waiting <= most).then_some(started)
    }

    /// Starts, as process `me`, what may start, each command once and in their order, unless somebody else is doing so. A runner
    /// that `has_ended` is replaced: `start` is called again for the command that it was about. Gives whether one was replaced.
    ///
    /// `start` breaks off where the process ends in the middle, as in models.
    pub fn run(
        &self,
        me: u64,
        has_ended: impl Fn(u64) -> bool,
        start: impl FnMut(u64) -> ControlFlow<()>,
    ) -> bool {
        self.run_of(u64::MAX, me, has_ended, start)
    }

    /// The same, where at most so many commands wait: see [`ready_of`](Self::ready_of).
    pub fn run_of(
        &self,
        most: u64,
        me: u64,
        has_ended: impl Fn(u64) -> bool,
        mut start: impl FnMut(u64) -> ControlFlow<()>,
    ) -> bool {
        let mut replaced = false;
        while self.ready_of(most).is_some() {
            match self.become_runner(me, &has_ended) {
                None => break,
                Some(other) => replaced |= other != 0,
            }
            while let Some(number) = self.ready_of(most) {
                if start(number).is_break() {
                    return replaced;
                }
                self.started.0.store(number + 1, Release);
            }
            self.runner.0.store(0, Release);
        }
        replaced
    }

    /// Gives the runner that was replaced, or 0.
    fn become_runner(&self, me: u64, has_ended: impl Fn(u64) -> bool) -> Option<u64> {
        let take = |from| self.runner.0.compare_exchange(from, me, AcqRel, Acquire);
        match take(0) {
            Ok(_) => Some(0),
            Err(other) if other != me && has_ended(other) => take(other).ok(),
            Err(_) => None,
        }
    }
}
