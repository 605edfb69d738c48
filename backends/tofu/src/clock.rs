//! Timer of the progress thread. TNIs raise no interrupts, so threads have to poll. A waiting thread polls all the time. Without one, the
//! progress thread polls at the ticks of this clock: often while data arrives, and rarely otherwise.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};

use unipgas_core::Result;
use unipgas_core::descriptor::{set_timer, timer};

/// Shortest and longest tick interval, in nanoseconds.
const SPANS: (i64, i64) = (100_000, 4_000_000);

/// A timer with an adaptive interval.
pub(crate) struct Clock {
    fd: OwnedFd,
    span: AtomicI64,
}

impl Clock {
    /// Starts with the shortest interval. Errors: [`Error::Os`](unipgas_core::Error::Os).
    pub fn new() -> Result<Self> {
        let clock = Clock {
            fd: timer()?,
            span: AtomicI64::new(SPANS.0),
        };
        set_timer(&clock.fd, SPANS.0);
        Ok(clock)
    }

    /// Reports a poll, and whether it found `something`. Schedules the next tick.
    pub fn looked(&self, something: bool) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        let span = match something {
            true => SPANS.0,
            false => (self.span.load(Ordering::Relaxed) * 2).min(SPANS.1),
        };
        self.span.store(span, Ordering::Relaxed);
        set_timer(&self.fd, span);
    }

    /// Shortens the interval, because an event is expected soon.
    pub fn hurry(&self) {
        if self.span.swap(SPANS.0, Ordering::Relaxed) > SPANS.0 {
            set_timer(&self.fd, SPANS.0);
        }
    }
}

impl AsFd for Clock {
    /// Readable at a tick.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
