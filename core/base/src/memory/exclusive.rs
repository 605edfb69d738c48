//! A value that one thread at a time may use.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Admits one thread at a time. Others get an error instead of waiting.
pub struct Exclusive<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY:
// - `with` gives the value to one thread at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// The lock of `value`.
    pub fn new(value: T) -> Self {
        Exclusive {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks out all threads. False if a thread is inside; then nothing changes.
    pub fn close(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    /// Reverts [`close`](Self::close).
    pub fn open(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Runs `work` with the value. Errors: [`Error::Busy`] while a thread is inside, or after [`close`](Self::close).
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        struct Open<'a>(&'a AtomicBool);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        if self.taken.swap(true, Ordering::Acquire) {
            return Err(Error::Busy);
        }
        let _open = Open(&self.taken);
        // SAFETY:
        // - `taken` was false, and this call owns it until `_open` is dropped: this is the only reference.
        work(unsafe { &mut *self.value.get() })
    }
}
