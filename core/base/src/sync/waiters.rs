//! Waits on an object. They end when another thread closes it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::{Error, Result};

/// Waits in progress.
#[derive(Debug, Default)]
pub struct Waiters {
    inside: AtomicUsize,
    ended: AtomicBool,
}

/// A wait in progress. The object stays until this is dropped.
pub struct Inside<'a>(&'a Waiters);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Release);
    }
}

impl Waiters {
    /// Begins a wait.
    pub fn enter(&self) -> Inside<'_> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        Inside(self)
    }

    /// Checks that the object is not being closed. Errors: [`Error::Ended`].
    pub fn check(&self) -> Result<()> {
        match self.ended.load(Ordering::SeqCst) {
            true => Err(Error::Ended),
            false => Ok(()),
        }
    }

    /// Ends all waits and returns after the last. `wake` wakes their threads.
    pub fn end(&self, wake: impl Fn()) {
        self.ended.store(true, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) > 0 {
            wake();
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
