//! Waits for an object, which end when another thread closes it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use unipgas_core::Error;

/// Waits in progress.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    inside: AtomicUsize,
    ended: AtomicBool,
}

/// A wait that goes on: the object stays until this is dropped.
pub(crate) struct Inside<'a>(&'a Waiters);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Release);
    }
}

impl Waiters {
    /// A wait begins.
    pub fn enter(&self) -> Inside<'_> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        Inside(self)
    }

    /// Errors: [`Error::Ended`] once the object is being closed.
    pub fn check(&self) -> unipgas_core::Result<()> {
        match self.ended.load(Ordering::SeqCst) {
            true => Err(Error::Ended),
            false => Ok(()),
        }
    }

    /// Ends all waits. `wake` wakes their threads.
    pub fn end(&self, wake: impl Fn()) {
        self.ended.store(true, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) > 0 {
            wake();
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
