//! Access to what only one thread may use at a time: by a lock, or by the callers' promise.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::limbo::Turns;

/// A value for one thread at a time. Interfaces whose objects are not thread-safe by default (uTofu guide §2.5) must not pay for
/// a lock: a locked instruction costs as much as half a put. A program's threads hold it within [calls](crate::calls::Call).
pub struct Guarded<T> {
    lock: Option<Mutex<()>>,
    turns: Arc<Turns>,
    value: UnsafeCell<T>,
}

// SAFETY:
// - the value is reached by one thread at a time: `with` says so, by lock or by its caller's promise.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// With a lock if `shared`. `turns` count how often the progress thread holds it, which makes no calls.
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
        Held {
            // SAFETY:
            // - the lock is held, or the caller promises that no other thread is here.
            value: unsafe { &mut *self.value.get() },
            _lock: lock,
        }
    }

    /// Does something with the value, unless another thread has it, or could without a lock. For the progress thread.
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

/// It ends also by a panic.
struct Turn<'a>(&'a Turns);

impl<'a> Turn<'a> {
    fn begin(turns: &'a Turns) -> Self {
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

/// See [`Guarded::hold`].
pub struct Held<'a, T> {
    value: &'a mut T,
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
