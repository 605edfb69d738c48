//! Exclusive access of one thread at a time. A lock or a contract of the callers ensures it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use unipgas_base::reclaimer::ReaderEpoch;

/// A value for one thread at a time. Interfaces with objects that are not thread-safe by default (uTofu guide §2.5) must not pay for a lock: a locked
/// instruction costs half as much as a put. A program's threads hold the value within [calls](unipgas_base::calls::Call).
pub(crate) struct Guarded<T> {
    lock: Option<Mutex<()>>,
    turns: Arc<ReaderEpoch>,
    value: UnsafeCell<T>,
}

// SAFETY:
// - one thread at a time reaches the value: `hold` and `try_with` ensure it by lock, or by the contract of `hold`.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Makes a lock if `shared`. `turns` counts the sections in which the progress thread holds the value: it makes no calls.
    pub(crate) fn new(value: T, shared: bool, turns: Arc<ReaderEpoch>) -> Self {
        Guarded {
            lock: shared.then(|| Mutex::new(())),
            turns,
            value: UnsafeCell::new(value),
        }
    }

    /// The value. The exclusive reference ensures that no other thread uses it.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, for this thread alone until the result is dropped. A thread must not call it twice at once.
    ///
    /// # Safety
    /// Without a lock: no other thread holds the value at the same time.
    #[inline(always)]
    pub(crate) unsafe fn hold(&self) -> GuardedAccess<'_, T> {
        let lock = self.lock.as_ref().map(wait_for);
        GuardedAccess {
            // SAFETY:
            // - the lock is held; or contract of this call: no other thread holds the value.
            value: unsafe { &mut *self.value.get() },
            _lock: lock,
        }
    }

    /// Calls `work` with the value, if there is a lock and it is free. For the progress thread.
    pub fn try_with(&self, work: impl FnOnce(&mut T)) {
        let Some(_lock) = self.lock.as_ref().and_then(Mutex::try_lock) else {
            return;
        };
        let _turn = Turn::begin(&self.turns);
        // SAFETY:
        // - the lock is held.
        work(unsafe { &mut *self.value.get() });
    }
}

/// A section that also ends on a panic.
struct Turn<'a>(&'a ReaderEpoch);

impl<'a> Turn<'a> {
    fn begin(turns: &'a ReaderEpoch) -> Self {
        turns.begin();
        Turn(turns)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cold]
fn wait_for(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock()
}

/// Access to the value; see `Guarded::hold`.
pub struct GuardedAccess<'a, T> {
    value: &'a mut T,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Deref for GuardedAccess<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for GuardedAccess<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}
