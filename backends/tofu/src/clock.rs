//! Timer of the progress thread. TNIs raise no interrupts, so threads have to poll. A waiting thread polls all the time. Without one, the
//! progress thread polls at the ticks of this clock: often while data arrives, and rarely otherwise.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use unipgas_core::descriptor::above;
use unipgas_core::{Error, Result};

/// Shortest and longest tick interval, in nanoseconds.
const SPANS: (i64, i64) = (100_000, 4_000_000);

/// A timer with an adaptive interval.
pub(crate) struct Clock {
    fd: OwnedFd,
    span: AtomicI64,
}

impl Clock {
    /// Starts with the shortest interval. Errors: [`Error::Os`].
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = above(|| timerfd_create(TimerfdClockId::Monotonic, flags));
        let clock = Clock {
            fd: fd.map_err(|e| Error::os("timerfd_create", e))?,
            span: AtomicI64::new(SPANS.0),
        };
        clock.set(SPANS.0);
        Ok(clock)
    }

    fn set(&self, span: i64) {
        let time = |nanoseconds| Timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds,
        };
        let once = Itimerspec {
            it_interval: time(0),
            it_value: time(span),
        };
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once);
    }

    /// Reports a poll, and whether it found `something`. Schedules the next tick.
    pub fn looked(&self, something: bool) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        let span = match something {
            true => SPANS.0,
            false => (self.span.load(Ordering::Relaxed) * 2).min(SPANS.1),
        };
        self.span.store(span, Ordering::Relaxed);
        self.set(span);
    }

    /// Shortens the interval, because an event is expected soon.
    pub fn hurry(&self) {
        if self.span.swap(SPANS.0, Ordering::Relaxed) > SPANS.0 {
            self.set(SPANS.0);
        }
    }
}

impl AsFd for Clock {
    /// Readable at a tick.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
