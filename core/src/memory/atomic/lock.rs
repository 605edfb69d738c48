//! Locks for elements that no CPU changes atomically (wider than 16 bytes, or aligned as C asks for and less than the CPU does), and for
//! memory whose elements nobody changes by the CPU's atomics.
//!
//! All who can reach the memory find the same lock: it lies in memory that they share with its owner, and is chosen by the element's
//! offset in its page, which every mapping of the page agrees on.

use std::time::{Duration, Instant};

use crate::process;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::yield_now;
use crate::{Error, Result, on_line};

const LOCKS: usize = if cfg!(loom) { 2 } else { 64 };
/// The part of an address that every mapping agrees on.
const PAGE: usize = 4096;
/// Looks at a lock between two looks at its holder's life.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 1024 };
/// How long a living holder, stopped by a debugger perhaps, is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stretches of memory that have a lock each (and share it with others).
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// Their length; a power of two that divides a page.
    pub(super) bytes: usize,
    /// Places from one stretch's lock to the next one's: neighbours are not to share a cache line.
    step: usize,
}

/// For elements that need a lock among others that do not.
pub(super) const ELEMENT: Stretch = Stretch { bytes: 16, step: 1 };
/// For memory where every element is changed under its lock.
pub(super) const STRIPE: Stretch = Stretch {
    bytes: 256,
    step: 17,
};

impl Stretch {
    /// Which lock is that of `address`.
    #[inline(always)]
    fn index(self, address: usize) -> usize {
        address % PAGE / self.bytes * self.step % LOCKS
    }
}

on_line! {
    /// One process's locks. All-zero bytes are free locks. A lock holds the id of the process that has it, so that what a killed process
    /// has held can be taken over; the element that it worked on may then be half written.
    #[repr(C)]
    #[derive(Debug)]
    pub struct ElementLocks([AtomicU32; LOCKS]);
}

/// A lock that this thread has, until it is dropped.
pub(super) struct Held<'a>(&'a AtomicU32);

impl ElementLocks {
    /// Free locks.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        ElementLocks([const { AtomicU32::new(0) }; LOCKS])
    }

    /// Free locks.
    #[cfg(loom)]
    pub fn new() -> Self {
        ElementLocks(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    /// For the model: as an operation on `len` bytes at `address` does, works under their locks.
    #[cfg(loom)]
    pub fn with<R>(&self, address: usize, len: usize, work: impl FnOnce() -> R) -> Result<R> {
        let _held = self.hold_both(address, len, ELEMENT)?;
        Ok(work())
    }

    /// For the model: takes the lock of `address` as the process `pid`, which is killed then.
    #[cfg(loom)]
    pub fn take_and_die(&self, address: usize, pid: u32, work: impl FnOnce()) {
        let lock = &self.0[ELEMENT.index(address)];
        while lock
            .compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            yield_now();
        }
        work();
    }

    /// Takes the lock of the stretch that `address` is in. Errors: [`Error::Timeout`] if its holder lives and does not give it back.
    #[inline(always)]
    pub(super) fn hold(&self, address: usize, stretch: Stretch) -> Result<Held<'_>> {
        self.take(stretch.index(address))
    }

    /// Takes the locks of all that `len` bytes at `address` are in, which begin in one stretch and end there or in the next one.
    /// Errors: as for [`hold`](Self::hold).
    #[inline(always)]
    pub(super) fn hold_both(
        &self,
        address: usize,
        len: usize,
        stretch: Stretch,
    ) -> Result<(Held<'_>, Option<Held<'_>>)> {
        let (first, last) = (
            stretch.index(address),
            stretch.index(address.wrapping_add(len - 1)),
        );
        if first == last {
            return Ok((self.take(first)?, None));
        }
        // Everybody takes them in this order, so that nobody waits in a circle.
        let lower = self.take(first.min(last))?;
        Ok((lower, Some(self.take(first.max(last))?)))
    }

    #[inline(always)]
    fn take(&self, index: usize) -> Result<Held<'_>> {
        let lock = &self.0[index];
        let me = process::id();
        let free = lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            return Ok(Held(lock));
        }
        wait_for(lock, me)
    }
}

#[cold]
fn wait_for(lock: &AtomicU32, me: u32) -> Result<Held<'_>> {
    let free = |holder| lock.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed);
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if free(0).is_ok() {
                return Ok(Held(lock));
            }
            yield_now();
        }
        let holder = lock.load(Ordering::Relaxed);
        if holder != 0 && process::has_ended(holder) && free(holder).is_ok() {
            return Ok(Held(lock));
        }
        if start.elapsed() >= PATIENCE {
            return Err(Error::Timeout);
        }
    }
}

impl Default for ElementLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: usize = if cfg!(miri) { 60 } else { 2000 };

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn a_dead_holder_s_lock_is_taken_over() {
        let locks = ElementLocks::new();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        locks.0[3].store(child.id(), Ordering::Relaxed);
        drop(locks.hold(3 << 4, ELEMENT).unwrap());
        assert_eq!(locks.0[3].load(Ordering::Relaxed), 0);
    }

    /// The last stretch of a page and the first of the next one have locks in the other order.
    #[test]
    fn whoever_crosses_a_border_excludes_both_sides_and_nobody_waits_in_a_circle() {
        for stretch in [ELEMENT, STRIPE] {
            let locks = ElementLocks::new();
            let borders = [stretch.bytes, 3 * stretch.bytes, PAGE, PAGE + stretch.bytes];
            let busy = borders.map(|_| AtomicU32::new(0));
            std::thread::scope(|scope| {
                for thread in 0..6 {
                    let (locks, busy) = (&locks, &busy);
                    scope.spawn(move || {
                        for turn in 0..ROUNDS {
                            let nth = (turn + thread) % borders.len();
                            let (address, len) = match thread % 3 {
                                0 => (borders[nth] - 8, 8),
                                1 => (borders[nth], 8),
                                _ => (borders[nth] - 8, 16),
                            };
                            let _held = locks.hold_both(address, len, stretch).unwrap();
                            // One counter for each side of the border.
                            let sides = [0, 16].map(|shift| 1u32 << shift);
                            let mine = match thread % 3 {
                                0 => sides[0],
                                1 => sides[1],
                                _ => sides[0] | sides[1],
                            };
                            let before = busy[nth].fetch_add(mine, Ordering::Relaxed);
                            let met = [before & 0xffff, before >> 16];
                            assert!(mine & 1 == 0 || met[0] == 0);
                            assert!(mine >> 16 == 0 || met[1] == 0);
                            busy[nth].fetch_sub(mine, Ordering::Relaxed);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn one_thread_at_a_time() {
        let locks = ElementLocks::new();
        let mut count = 0u64;
        let at = std::ptr::from_mut(&mut count) as usize;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let _held = locks.hold(at, ELEMENT).unwrap();
                        // SAFETY:
                        // - the variable outlives the threads, and the lock lets one in at a time.
                        unsafe { *(at as *mut u64) += 1 };
                    }
                });
            }
        });
        assert_eq!(count, 4 * ROUNDS as u64);
    }
}
