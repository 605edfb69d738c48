//! Time of the next liveness check of a thread that only issues operations. Memory accepts writes even after its owner has died, so operations do not show a
//! death.
//!
//! Operations are counted, since a check, and even a read of the clock, costs more than one operation. At the end of each count, the clock gives the number
//! of operations until the next check. Fast operations then cost one or two more instructions, and slow operations check each time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time between two checks. Waits check separately, and more often.
const LOOK: u64 = Duration::from_millis(50).as_nanos() as u64;
/// The longest count: the most operations before the next check if operations suddenly become slow.
pub const MOST: u32 = 256;

/// Counts operations until the next check. If several threads count together, some operations are not counted.
#[derive(Debug, Default)]
pub struct LivenessTimer {
    left: AtomicU32,
    given: AtomicU32,
    /// Operations since the last check (`since`), and the time of that check (`last`).
    since: AtomicU32,
    last: AtomicU64,
    /// Operations of all completed counts.
    over: AtomicU64,
}

impl LivenessTimer {
    /// Counts an operation. Returns whether a check is due.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed).wrapping_sub(1);
        self.left.store(left, Ordering::Relaxed);
        left.cast_signed() < 0 && self.is_due_now()
    }

    /// Subtracts an operation that was counted and not issued.
    #[cold]
    pub fn take_back(&self) {
        let left = self.left.load(Ordering::Relaxed).wrapping_add(1);
        self.left.store(left, Ordering::Relaxed);
    }

    #[cold]
    fn is_due_now(&self) -> bool {
        let (due, count) = self.end_count(now());
        self.left.store(count - 1, Ordering::Relaxed);
        due
    }

    /// Operations so far.
    pub fn so_far(&self) -> u64 {
        let left = self.left.load(Ordering::Relaxed).cast_signed();
        let given = self.given.load(Ordering::Relaxed).cast_signed();
        // An operation has ended when the next operation is counted. Before the first count there are none.
        let of_this = given.saturating_sub(1).saturating_sub(left).max(0);
        self.over.load(Ordering::Relaxed) + u64::from(of_this.unsigned_abs())
    }

    /// Length of the current count.
    pub fn given(&self) -> u32 {
        self.given.load(Ordering::Relaxed)
    }

    /// Ends a count at the time `now`, in nanoseconds. Returns whether a check is due, and the length of the next count.
    pub fn end_count(&self, now: u64) -> (bool, u32) {
        let given = self.given.load(Ordering::Relaxed).max(1);
        let since = self.since.load(Ordering::Relaxed).saturating_add(given);
        let passed = now.saturating_sub(self.last.load(Ordering::Relaxed));
        let due = passed >= LOOK;
        let over = self.over.load(Ordering::Relaxed);
        self.over.store(over + u64::from(given), Ordering::Relaxed);
        if due && !cfg!(loom) {
            crate::issue_totals::look();
        }
        let count = match due {
            true => (u64::from(since) * LOOK / passed).clamp(1, MOST.into()) as u32,
            false => (given * 2).min(MOST),
        };
        if due {
            self.last.store(now, Ordering::Relaxed);
        }
        self.since
            .store(if due { 0 } else { since }, Ordering::Relaxed);
        self.given.store(count, Ordering::Relaxed);
        (due, count)
    }
}

/// Nanoseconds since the first call, plus one second, so that the first count checks.
pub fn now() -> u64 {
    const FIRST: u64 = 1_000_000_000;
    if cfg!(loom) {
        // Each execution of a model must take the same path.
        return FIRST;
    }
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    FIRST + start.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of the first checks, for operations that take `each` nanoseconds.
    fn looks(pace: &LivenessTimer, from: u64, each: u64, operations: u64) -> Vec<u64> {
        let mut now = from;
        let mut looks = Vec::new();
        for _ in 0..operations {
            now += each;
            let left = pace.left.load(Ordering::Relaxed).wrapping_sub(1);
            pace.left.store(left, Ordering::Relaxed);
            if left.cast_signed() < 0 {
                let (due, count) = pace.end_count(now);
                pace.left.store(count - 1, Ordering::Relaxed);
                if due {
                    looks.push(now);
                }
            }
        }
        looks
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and arithmetic alone")]
    fn slow_operations_look_each_time_and_quick_ones_seldom() {
        let second = 1_000_000_000;
        for each in [100 * second, second, LOOK] {
            let slow = looks(&LivenessTimer::default(), second, each, 20);
            assert_eq!(slow.len(), 20, "operations of {each} ns");
        }
        for each in [8, 1000, 100_000, 10_000_000] {
            let quick = looks(&LivenessTimer::default(), second, each, 40 * LOOK / each);
            let most = LOOK + LOOK / 2 + u64::from(MOST) * each.min(1000);
            let gaps: Vec<_> = quick.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(gaps.len() >= 20, "operations of {each} ns: {gaps:?}");
            assert!(
                gaps.iter().all(|gap| (LOOK..=most).contains(gap)),
                "operations of {each} ns: {gaps:?}"
            );
        }
    }

    #[test]
    fn operations_are_counted() {
        let pace = LivenessTimer::default();
        for done in 0..2000 {
            assert_eq!(pace.so_far(), done);
            pace.is_due();
            if done % 7 == 0 {
                pace.take_back();
                pace.is_due();
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and arithmetic alone")]
    fn who_becomes_slow_looks_soon() {
        let pace = LivenessTimer::default();
        let (second, ms) = (1_000_000_000, 1_000_000);
        looks(&pace, second, 10, 100_000_000 / 10);
        let looked = looks(&pace, 10 * second, 5 * ms, 400);
        assert!(looked[0] <= 10 * second + u64::from(MOST) * 5 * ms);
        assert!(
            looked
                .windows(2)
                .skip(1)
                .all(|two| two[1] - two[0] <= 100 * ms)
        );
    }
}
