//! Atomics, cells, locks and thread-local memory for code under the model checker. With `--cfg loom` they are loom's.
//!
//! Only modelled code uses these types. Memory that a program shares with the library is always accessed by the atomics of `std`.

#[cfg(loom)]
pub(crate) use checked::statics;
#[cfg(loom)]
pub use checked::{Mutex, RawMutex, UnsafeCell, atomic, thread_local, yield_now};
#[cfg(not(loom))]
pub(crate) use real::statics;
#[cfg(not(loom))]
pub use real::{Mutex, RawMutex, UnsafeCell, atomic, thread_local, yield_now};

#[cfg(not(loom))]
mod real {
    pub use std::sync::atomic;
    pub use std::thread::yield_now;
    pub use std::thread_local;

    pub use parking_lot::Mutex;
    use parking_lot::lock_api::RawMutex as _;

    /// A cell with the interface of loom's cell. Each access is a closure, so that the model sees its begin and end.
    #[repr(transparent)]
    #[derive(Debug)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell with this value.
        #[inline(always)]
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `read` with a pointer for reading.
        #[inline(always)]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Calls `write` with a pointer for writing.
        #[inline(always)]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    /// A lock without a guard.
    pub struct RawMutex(parking_lot::RawMutex);

    #[expect(clippy::new_without_default, reason = "statics need a constant")]
    impl RawMutex {
        /// A free lock.
        pub const fn new() -> Self {
            RawMutex(parking_lot::RawMutex::INIT)
        }

        /// Waits for the lock.
        #[inline]
        pub fn lock(&self) {
            self.0.lock();
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> bool {
            self.0.try_lock()
        }

        /// # Safety
        /// The calling thread holds the lock.
        #[inline]
        pub unsafe fn unlock(&self) {
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
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic;
    pub use loom::thread::yield_now;
    pub use loom::thread_local;

    /// A mutex with the interface of `parking_lot`.
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no thread has panicked")
        }
    }

    /// Keeps the guard of a lock of the model.
    pub struct RawMutex {
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
        pub fn new() -> Self {
            RawMutex {
                held: std::cell::UnsafeCell::new(None),
                lock: loom::sync::Mutex::new(()),
            }
        }

        pub fn lock(&self) {
            self.keep(self.lock.lock().expect("no thread has panicked"));
        }

        pub fn try_lock(&self) -> bool {
            self.lock.try_lock().map(|guard| self.keep(guard)).is_ok()
        }

        fn keep(&self, guard: loom::sync::MutexGuard<'_, ()>) {
            // SAFETY:
            // - the guard does not outlive the lock. Either `unlock` drops it, or the drop of this type does: `held` is its first field.
            unsafe { *self.held.get() = Some(std::mem::transmute(guard)) };
        }

        /// # Safety
        /// The calling thread holds the lock.
        pub unsafe fn unlock(&self) {
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
