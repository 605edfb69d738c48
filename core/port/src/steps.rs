//! Counters of commands that events start: session ports (uTofu guide §2.2.8.1) and deferred work (fi_trigger(3)). They count commands posted, steps allowed by
//! events, and commands started. One process at a time, the *runner*, starts commands. Other processes do not wait: the runner checks again after it has
//! resigned.

use std::ops::ControlFlow;

use unipgas_base::cache::OwnLine;
use unipgas_base::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use unipgas_base::sync::atomic::{AtomicU64, fence};

/// The counters, in memory that the owner and its peers share. All-zero bytes are the counters of a new port.
#[repr(C)]
pub struct Steps {
    posted: OwnLine<AtomicU64>,
    allowed: OwnLine<AtomicU64>,
    started: OwnLine<AtomicU64>,
    /// 0, or the pid of the process that starts commands.
    runner: OwnLine<AtomicU64>,
}

impl Steps {
    /// The counters of a new port.
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

    /// Number of posted commands.
    pub fn posted(&self) -> u64 {
        self.posted.0.load(Acquire)
    }

    /// Posts the next command, which the owner has stored. Only the owner may call.
    pub fn post(&self) {
        self.post_up_to(self.posted().wrapping_add(1));
    }

    /// Sets the number of posted commands. For an owner with a private counter, since peers may change this one.
    pub(crate) fn post_up_to(&self, posted: u64) {
        self.posted.0.store(posted, Release);
    }

    /// Lets `steps` more commands start, after an arrival.
    pub fn allow(&self, steps: u8) {
        self.allowed.0.fetch_add(steps.into(), AcqRel);
    }

    /// Number of the next command that may start.
    pub fn ready(&self) -> Option<u64> {
        self.ready_of(u64::MAX)
    }

    /// [`ready`](Self::ready) with at most `most` waiting commands. More waiting commands mean corrupt counters: then `None`.
    pub(crate) fn ready_of(&self, most: u64) -> Option<u64> {
        // This fence is between the caller's change and these loads. If two threads change a counter and then load, at least one sees the other's change.
        fence(SeqCst);
        let started = self.started.0.load(Acquire);
        let allowed = self.allowed.0.load(Acquire);
        let posted = self.posted.0.load(Acquire);
        let waiting = posted.checked_sub(started)?;
        (started < allowed.min(posted) && waiting <= most).then_some(started)
    }

    /// Starts the commands that may start, as process `me`: each once and in order, unless another runner is active. Replaces a runner that `has_ended`, and
    /// calls `start` again for its last command. Returns whether a runner was replaced.
    ///
    /// `start` breaks if the process ends in the middle, as in models.
    pub fn run(
        &self,
        me: u64,
        has_ended: impl Fn(u64) -> bool,
        start: impl FnMut(u64) -> ControlFlow<()>,
    ) -> bool {
        self.run_of(u64::MAX, me, has_ended, start)
    }

    /// [`run`](Self::run) with at most `most` waiting commands: see [`ready_of`](Self::ready_of).
    pub(crate) fn run_of(
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

    /// Returns the replaced runner, or 0. `None`: another runner is active.
    fn become_runner(&self, me: u64, has_ended: impl Fn(u64) -> bool) -> Option<u64> {
        let take = |from| self.runner.0.compare_exchange(from, me, AcqRel, Acquire);
        match take(0) {
            Ok(_) => Some(0),
            Err(other) if other != me && has_ended(other) => take(other).ok(),
            Err(_) => None,
        }
    }
}
