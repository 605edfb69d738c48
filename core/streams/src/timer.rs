//! The timer of the agent's looks at peers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unipgas_base::descriptor::{set_timer, timer};
use unipgas_base::{Result, liveness_timer};

/// Time between two looks, in milliseconds.
const PAUSE_MS: i64 = 500;

/// The time of the next look. The timer runs only while a look is needed.
pub(super) struct Timer {
    fd: OwnedFd,
    runs: AtomicBool,
    /// Time of the last due look, in nanoseconds.
    last: AtomicU64,
}

impl Timer {
    pub(crate) fn new() -> Result<Self> {
        Ok(Timer {
            fd: timer()?,
            runs: AtomicBool::new(false),
            last: AtomicU64::new(0),
        })
    }

    /// Starts the timer if it does not run: bytes have left, or need another look. A thread that finds it running has sent before the look.
    pub fn start(&self) {
        if self.runs.load(Ordering::SeqCst) || self.runs.swap(true, Ordering::SeqCst) {
            return;
        }
        set_timer(&self.fd, PAUSE_MS * 1_000_000);
    }

    /// Makes the next look due now, but not before half the usual time after the last one. A count of looks without an answer declares a peer dead.
    pub(crate) fn hasten(&self) {
        self.runs.store(true, Ordering::SeqCst);
        let since = liveness_timer::now().saturating_sub(self.last.load(Ordering::Relaxed));
        let rest = (PAUSE_MS * 500_000).saturating_sub(since.try_into().unwrap_or(i64::MAX));
        set_timer(&self.fd, rest.max(1));
    }

    /// For the agent: whether a look is due. The timer stops then.
    pub(crate) fn is_due(&self) -> bool {
        let runs = self.runs.load(Ordering::SeqCst);
        let due = runs && rustix::io::read(&self.fd, &mut [0u8; 8]).is_ok();
        if due {
            self.last.store(liveness_timer::now(), Ordering::Relaxed);
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
