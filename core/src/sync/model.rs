//! Atomics, cells, locks and thread-local memory for code under the model checker. With `--cfg loom` they are loom's.
//!
//! Only modelled code uses these types. Memory that a program shares with the library is always accessed by the atomics of `std`.

#[cfg(loom)]
pub(crate) use checked::*;
#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::yield_now;
    pub(crate) use std::thread_local;

    pub(crate) use parking_lot::Mutex;
    use parking_lot::lock_api::RawMutex as _;

    /// A cell with the interface of loom's cell. Each access is a closure, so that the model sees its begin and end.
    #[repr(transparent)]
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell with this value.
        #[inline(always)]
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `read` with a pointer for reading.
        #[inline(always)]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Calls `write` with a pointer for writing.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    /// A lock without a guard.
    pub(crate) struct RawMutex(parking_lot::RawMutex);

    impl RawMutex {
        pub(crate) const fn new() -> Self {
            RawMutex(parking_lot::RawMutex::INIT)
        }

        #[inline]
        pub(crate) fn lock(&self) {
            self.0.lock();
        }

        pub(crate) fn try_lock(&self) -> bool {
            self.0.try_lock()
        }

        /// # Safety
        /// The calling thread holds the lock.
        #[inline]
        pub(crate) unsafe fn unlock(&self) {
            // SAFETY:
            // - contract of this call: the calling thread holds the lock.
            unsafe { self.0.unlock() }
        }
    }

    macro_rules! statics {
        ($($(#[$doc:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
            $($(#[$doc])* static $name: $type = $value;)*
        };
    }
    pub(crate) use statics;
}

#[cfg(loom)]
mod checked {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic;
    pub(crate) use loom::thread::yield_now;
    pub(crate) use loom::thread_local;

    /// A mutex with the interface of `parking_lot`.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no thread has panicked")
        }
    }

    /// Keeps the guard of a lock of the model.
    pub(crate) struct RawMutex {
        held: std::cell::UnsafeCell<Option<loom::sync::MutexGuard<'static, ()>>>,
        lock: loom::sync::Mutex<()>,
    }

    // SAFETY:
    // - only the holder of the lock accesses `held`.
    unsafe impl Send for RawMutex {}
    // SAFETY:
    // - as for Send.
    unsafe impl Sync for RawMutex {}

    impl RawMutex {
        pub(crate) fn new() -> Self {
            RawMutex {
                held: std::cell::UnsafeCell::new(None),
                lock: loom::sync::Mutex::new(()),
            }
        }

        pub(crate) fn lock(&self) {
            self.keep(self.lock.lock().expect("no thread has panicked"));
        }

        pub(crate) fn try_lock(&self) -> bool {
            self.lock.try_lock().map(|guard| self.keep(guard)).is_ok()
        }

        fn keep(&self, guard: loom::sync::MutexGuard<'_, ()>) {
            // SAFETY:
            // - the guard does not outlive the lock. Either `unlock` drops it, or the drop of this type does: `held` is its first field.
            unsafe { *self.held.get() = Some(std::mem::transmute(guard)) };
        }

        /// # Safety
        /// The calling thread holds the lock.
        pub(crate) unsafe fn unlock(&self) {
            // SAFETY:
            // - contract of this call: the calling thread holds the lock, so it alone accesses `held`.
            let guard = unsafe { (*self.held.get()).take() };
            drop(guard);
        }
    }

    /// Statics that each execution of the model creates again.
    macro_rules! statics {
        ($($(#[$doc:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
            loom::lazy_static! { $($(#[$doc])* static ref $name: $type = $value;)* }
        };
    }
    pub(crate) use statics;
}
