//! A lock for what one thread uses nearly always: that thread takes it without a locked instruction, until another thread comes.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::resume_unwind;

use crate::driver;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{RawMutex, fence, this_thread};

/// A value that threads use one at a time. The thread that made it is its owner: for it, locking is two stores and a load. The first other
/// thread makes it an ordinary lock for good.
///
/// The owner announces itself by a plain store and then looks whether the lock is shared; the other thread shares it, has every thread of
/// the process execute a barrier (`membarrier`), and then looks whether the owner is inside. So one of the two sees the other.
pub struct Biased<T> {
    owner: usize,
    inside: AtomicBool,
    shared: AtomicBool,
    others: RawMutex,
    /// The thread that has the mutex; 0: none.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY:
// - `lock` lets one thread at a time at the value.
unsafe impl<T: Send> Send for Biased<T> {}
// SAFETY:
// - as for Send.
unsafe impl<T: Send> Sync for Biased<T> {}

/// Access to the value, until it is dropped.
///
/// One pointer, so that it travels in a register: a flag beside it would be written and read back by pieces of different widths.
pub struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    /// The thread that took it gives it back.
    _here: PhantomData<*const ()>,
}

/// With this a call unwinds to its entry, which gives an error, where its thread is inside a call that holds the same lock.
#[derive(Debug)]
pub struct Reentered;

/// No defect: it is not told on standard error.
#[cold]
fn reentered() -> ! {
    resume_unwind(Box::new(Reentered))
}

impl<T> Biased<T> {
    /// The calling thread becomes the owner.
    pub fn new(value: T) -> Self {
        Biased {
            owner: this_thread::number(),
            inside: AtomicBool::new(false),
            shared: AtomicBool::new(!fence::register()),
            others: RawMutex::new(),
            holder: AtomicUsize::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the thread that is inside. If that is this very thread, as in a handler of a signal, unwinds with [`Reentered`].
    #[inline(always)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        if this_thread::number() == self.owner {
            if self.inside.load(Ordering::Relaxed) {
                reentered();
            }
            self.inside.store(true, Ordering::Relaxed);
            fence::light();
            if !self.shared.load(Ordering::Acquire) {
                return self.guard();
            }
            self.inside.store(false, Ordering::Release);
        }
        self.lock_shared()
    }

    #[inline(always)]
    fn guard(&self) -> BiasedGuard<'_, T> {
        BiasedGuard {
            lock: self,
            _here: PhantomData,
        }
    }

    #[cold]
    fn lock_shared(&self) -> BiasedGuard<'_, T> {
        if self.holder.load(Ordering::Relaxed) == this_thread::number() {
            reentered();
        }
        if !driver::serve_until(|| self.others.try_lock()) {
            self.others.lock();
        }
        self.holder.store(this_thread::number(), Ordering::Relaxed);
        if !self.shared.load(Ordering::Relaxed) {
            self.shared.store(true, Ordering::SeqCst);
            // A child of the process that registered has to do so itself.
            let fenced = fence::heavy() || fence::register() && fence::heavy();
            assert!(fenced, "could be registered when it was made");
        }
        if this_thread::number() != self.owner {
            // The owner goes out, and then comes the ordinary way.
            while self.inside.load(Ordering::Acquire) {
                driver::give_way();
            }
        }
        self.guard()
    }

    /// # Safety
    /// The calling thread holds the mutex, and gives it up.
    #[cold]
    unsafe fn unlock_shared(&self) {
        self.holder.store(0, Ordering::Relaxed);
        // SAFETY:
        // - the caller's word.
        unsafe { self.others.unlock() }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY:
        // - this guard is the only one: the owner saw that the lock was not shared, or the mutex is held and the owner was seen outside.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY:
        // - as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // The owner is either inside or holds the mutex; nobody else is ever inside.
        if this_thread::number() == self.lock.owner && self.lock.inside.load(Ordering::Relaxed) {
            self.lock.inside.store(false, Ordering::Release);
        } else {
            // SAFETY:
            // - taken by `lock_shared` in this thread, as the guard cannot leave it.
            unsafe { self.lock.unlock_shared() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Two words that must always be equal, counted up by several threads.
    fn hammer(threads: usize, rounds: u64) {
        let lock = Biased::new([0u64; 2]);
        let count = || {
            for _ in 0..rounds {
                let mut pair = lock.lock();
                assert_eq!(pair[0], pair[1]);
                pair[0] += 1;
                std::hint::black_box(&mut pair);
                pair[1] += 1;
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(count);
            }
            count();
        });
        assert_eq!(*lock.lock(), [rounds * threads as u64; 2]);
    }

    #[test]
    fn one_thread_at_a_time() {
        let (times, rounds) = if cfg!(miri) { (3, 20) } else { (200, 500) };
        hammer(1, 2 * rounds);
        for _ in 0..times {
            hammer(3, rounds);
        }
    }

    #[test]
    fn a_lock_whose_owner_has_gone_works_on() {
        let lock = std::thread::spawn(|| Biased::new(7)).join().unwrap();
        *lock.lock() += 1;
        assert_eq!(*lock.lock(), 8);
    }

    #[test]
    fn a_thread_that_holds_it_unwinds() {
        let again = |lock: &Biased<()>| {
            let _held = lock.lock();
            let again = catch_unwind(AssertUnwindSafe(|| drop(lock.lock())));
            assert!(again.is_err_and(|payload| payload.is::<Reentered>()));
        };
        let lock = Biased::new(());
        again(&lock);
        std::thread::scope(|scope| scope.spawn(|| again(&lock)).join()).unwrap();
        again(&lock);
        drop(lock.lock());
    }
}
