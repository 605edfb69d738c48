//! Locks for two kinds of memory:
//! - elements that no CPU changes atomically: wider than 16 bytes, or with C's alignment where the CPU needs more;
//! - memory where operations use plain loads and stores under locks instead of CPU atomics.
//!
//! All processes that map the memory use the same lock. The owner shares the locks with them, and the element's offset in its page
//! selects one: all mappings of a page agree on that offset.

use std::time::{Duration, Instant};

use crate::process;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::yield_now;
use crate::{Error, Result, on_line};

const LOCKS: usize = if cfg!(loom) { 2 } else { 64 };
/// Mappings of the same memory agree on addresses modulo this.
const PAGE: usize = 4096;
/// Attempts to take a lock between two checks that its holder is alive.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 1024 };
/// Timeout for a live holder, such as a process that a debugger has stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stretches of memory. Each maps to one lock; several stretches share a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// Length of a stretch: a power of two that divides a page.
    pub(super) bytes: usize,
    /// Distance of the locks of adjacent stretches, in locks. A distance of 17 keeps them in different cache lines.
    step: usize,
}

/// For memory where some elements need a lock and the others do not.
pub(super) const ELEMENT: Stretch = Stretch { bytes: 16, step: 1 };
/// For memory where each access to an element takes its lock.
pub(super) const STRIPE: Stretch = Stretch {
    bytes: 256,
    step: 17,
};

impl Stretch {
    /// Number of the lock for `address`.
    #[inline(always)]
    fn index(self, address: usize) -> usize {
        address % PAGE / self.bytes * self.step % LOCKS
    }
}

on_line! {
    /// One process's locks. All-zero bytes are free locks. A lock holds the process id of its holder. If the holder is killed, another
    /// process takes the lock over; the element may then be half written.
    #[repr(C)]
    #[derive(Debug)]
    pub struct ElementLocks([AtomicU32; LOCKS]);
}

/// A lock held by this thread. Dropping it releases the lock.
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

    /// For the model: runs `work` under the locks of `len` bytes at `address`, as an operation does.
    #[cfg(loom)]
    pub fn with<R>(&self, address: usize, len: usize, work: impl FnOnce() -> R) -> Result<R> {
        let _held = self.hold_both(address, len, ELEMENT)?;
        Ok(work())
    }

    /// For the model: takes the lock of `address` as process `pid`, runs `work`, and keeps the lock as a killed process does.
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

    /// Takes the lock of the stretch that contains `address`. Errors: [`Error::Timeout`] if a live holder does not release it.
    #[inline(always)]
    pub(super) fn hold(&self, address: usize, stretch: Stretch) -> Result<Held<'_>> {
        self.take(stretch.index(address))
    }

    /// Takes the locks of `len` bytes at `address`. The bytes must end in their first stretch or in the next one.
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
        // The lower lock always comes first, which prevents deadlock.
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

    /// At a page border the order of the two locks is reversed.
    #[test]
    fn an_element_across_a_border_excludes_both_sides_without_a_deadlock() {
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
}
