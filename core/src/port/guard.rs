//! Access to what only one thread may use at a time: by a lock, or by the callers' promise.

use std::cell::UnsafeCell;
use std::sync::Mutex;

/// A value for one thread at a time. Interfaces whose objects are not thread-safe by default (uTofu guide §2.5) must not pay for
/// a lock: a locked instruction costs as much as half a put.
pub struct Guarded<T> {
    lock: Option<Mutex<()>>,
    value: UnsafeCell<T>,
}

// SAFETY:
// - the value is reached by one thread at a time: `with` says so, by lock or by its caller's promise.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// With a lock if `shared`.
    pub fn new(value: T, shared: bool) -> Self {
        Guarded {
            lock: shared.then(|| Mutex::new(())),
            value: UnsafeCell::new(value),
        }
    }

    /// Whether there is a lock.
    pub fn is_shared(&self) -> bool {
        self.lock.is_some()
    }

    /// Runs `use_it` with the value. Do not nest.
    ///
    /// # Safety
    /// Without a lock: no two calls at the same time.
    #[inline(always)]
    pub unsafe fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        let _held = self
            .lock
            .as_ref()
            .map(|lock| lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        // SAFETY:
        // - the lock is held, or the caller promises that nobody else is here.
        use_it(unsafe { &mut *self.value.get() })
    }
}
