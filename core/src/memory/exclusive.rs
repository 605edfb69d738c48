//! What one thread at a time works on.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Lets one thread in at a time; others are told instead of made to wait.
pub(crate) struct Exclusive<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY:
// - `with` hands the value to one thread at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Exclusive {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Lets nobody in any more, unless a thread is inside: then false.
    pub(crate) fn close(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    /// Takes back what [`close`](Self::close) has done.
    pub(crate) fn open(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Errors: [`Error::Busy`] while another thread is inside.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
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
        // - `taken` was false and is ours until `_open` is dropped, so that this is the only reference.
        work(unsafe { &mut *self.value.get() })
    }
}
