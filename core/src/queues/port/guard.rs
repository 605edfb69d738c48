//! Access to what only one thread may use at a time: by a lock, or by the callers' promise.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::limbo::Turns;

/// A value for one thread at a time. Interfaces whose objects are not thread-safe by default (uTofu guide §2.5) must not pay for
/// a lock: a locked instruction costs as much as half a put.
pub struct Guarded<T> {
    lock: Option<Mutex<()>>,
    turns: Arc<Turns>,
    value: UnsafeCell<T>,
}

// SAFETY:
// - the value is reached by one thread at a time: `with` says so, by lock or by its caller's promise.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// With a lock if `shared`. Whenever it is held, `turns` count that.
    pub fn new(value: T, shared: bool, turns: Arc<Turns>) -> Self {
        Guarded {
            lock: shared.then(|| Mutex::new(())),
            turns,
            value: UnsafeCell::new(value),
        }
    }

    /// Whether there is a lock.
    pub fn is_shared(&self) -> bool {
        self.lock.is_some()
    }

    /// The value, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, for this thread alone until the result is dropped. Once at a time in a thread.
    ///
    /// # Safety
    /// Without a lock: no other thread holds it meanwhile.
    #[inline(always)]
    pub unsafe fn hold(&self) -> Held<'_, T> {
        let lock = self.lock.as_ref().map(wait_for);
        // SAFETY:
        // - the lock is held, or the caller promises that nobody else is here.
        unsafe { self.held(lock) }
    }

    /// The value, unless another thread has it, or could without a lock.
    pub fn try_hold(&self) -> Option<Held<'_, T>> {
        let lock = self.lock.as_ref()?.try_lock()?;
        // SAFETY:
        // - the lock is held.
        Some(unsafe { self.held(Some(lock)) })
    }

    /// # Safety
    /// `lock` is this value's, or nobody else is here.
    #[inline(always)]
    unsafe fn held<'a>(&'a self, lock: Option<MutexGuard<'a, ()>>) -> Held<'a, T> {
        self.turns.begin();
        Held {
            // SAFETY:
            // - the caller's word.
            value: unsafe { &mut *self.value.get() },
            turns: &self.turns,
            _lock: lock,
        }
    }
}

#[cold]
fn wait_for(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock()
}

/// See [`Guarded::hold`].
pub struct Held<'a, T> {
    value: &'a mut T,
    turns: &'a Turns,
    /// Let go of when the turn is over.
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.turns.end();
    }
}
