//! When the agent looks whether its peers are still there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::descriptor::above;
use crate::{Error, Result, pace};

/// Between two looks.
const PAUSE_MS: i64 = 500;

/// When to look next. It runs only while there is something to look for.
pub(super) struct Timer {
    fd: OwnedFd,
    runs: AtomicBool,
    /// When a look was due last, in nanoseconds.
    last: AtomicU64,
}

impl Timer {
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = above(|| timerfd_create(TimerfdClockId::Monotonic, flags));
        Ok(Timer {
            fd: fd.map_err(|e| Error::os("timerfd_create", e))?,
            runs: AtomicBool::new(false),
            last: AtomicU64::new(0),
        })
    }

    /// Something has been sent, or is to be looked at again: it runs from now on, if it did not. Who finds that it does has sent before the look.
    pub fn start(&self) {
        if self.runs.load(Ordering::SeqCst) || self.runs.swap(true, Ordering::SeqCst) {
            return;
        }
        self.arm(PAUSE_MS * 1_000_000);
    }

    /// Makes the next look due now, at the earliest half the usual time after the last one: a count of looks without an answer declares a peer dead.
    pub fn hasten(&self) {
        self.runs.store(true, Ordering::SeqCst);
        let since = pace::now().saturating_sub(self.last.load(Ordering::Relaxed));
        let rest = (PAUSE_MS * 500_000).saturating_sub(since.try_into().unwrap_or(i64::MAX));
        self.arm(rest.max(1));
    }

    fn arm(&self, nanoseconds: i64) {
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let once = Itimerspec {
            it_interval: none,
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: nanoseconds,
            },
        };
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once);
    }

    /// For the agent: whether it is time to look. It runs no more then.
    pub fn is_due(&self) -> bool {
        let runs = self.runs.load(Ordering::SeqCst);
        let due = runs && rustix::io::read(&self.fd, &mut [0u8; 8]).is_ok();
        if due {
            self.last.store(pace::now(), Ordering::Relaxed);
            self.runs.store(false, Ordering::SeqCst);
        }
        due
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
