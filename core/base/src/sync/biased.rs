//! A lock for values that one thread uses nearly always. That thread needs no locked instruction until another thread takes the lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::resume_unwind;

use crate::driver;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{RawMutex, fence, this_thread};

/// A value that threads use one at a time. The thread that made it is its owner. For the owner, a lock takes two stores and a load. The first other thread
/// makes it an ordinary lock for good.
///
/// The owner announces itself by a plain store, then tests whether the lock is shared. The other thread makes the lock shared, makes each thread of the
/// process execute a barrier (`membarrier`), then tests whether the owner is inside. So at least one of the two sees the other.
pub struct Biased<T> {
    owner: usize,
    inside: AtomicBool,
    shared: AtomicBool,
    others: RawMutex,
    /// The thread that holds the mutex. 0: none.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY:
// - `lock` permits one thread at a time to access the value.
unsafe impl<T: Send> Send for Biased<T> {}
// SAFETY:
// - as for Send.
unsafe impl<T: Send> Sync for Biased<T> {}

/// Access to the value. Its drop unlocks.
///
/// One pointer, so that it stays in a register: the processor would write and read a flag beside it in pieces of different widths.
pub struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    /// Not Send: the thread that locked must unlock.
    _here: PhantomData<*const ()>,
}

/// Panic payload of a call in a thread that already holds the same lock. The call unwinds to its entry, which returns an error.
#[derive(Debug)]
pub struct Reentered;

/// `resume_unwind` prints no message, since this is not a defect.
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

    /// Waits for the thread that holds the lock. If that is the calling thread, as in a signal handler, unwinds with [`Reentered`].
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
            // The child of a process that registered must register again.
            let fenced = fence::heavy() || fence::register() && fence::heavy();
            assert!(fenced, "could be registered when it was made");
        }
        if this_thread::number() != self.owner {
            // The owner leaves, and locks by the mutex the next time.
            while self.inside.load(Ordering::Acquire) {
                driver::give_way();
            }
        }
        self.guard()
    }

    /// # Safety
    /// The calling thread holds the mutex, and releases it.
    #[cold]
    unsafe fn unlock_shared(&self) {
        self.holder.store(0, Ordering::Relaxed);
        // SAFETY:
        // - contract of this call: the calling thread holds the mutex.
        unsafe { self.others.unlock() }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY:
        // - this guard is the only guard. Either the owner saw that the lock was not shared, or this thread holds the mutex and saw the owner outside.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY:
        // - as for `deref`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // The owner is either inside or holds the mutex. Other threads are never inside.
        if this_thread::number() == self.lock.owner && self.lock.inside.load(Ordering::Relaxed) {
            self.lock.inside.store(false, Ordering::Release);
        } else {
            // SAFETY:
            // - `lock_shared` took the mutex in this thread, and the guard cannot leave the thread.
            unsafe { self.lock.unlock_shared() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Several threads increment two words, which must always be equal.
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
