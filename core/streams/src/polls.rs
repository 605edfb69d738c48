//! How often waiting threads drive a network. While they do it often, the progress thread leaves the network to them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use unipgas_base::{driver, liveness_timer};

/// This number of polls within [`TIME`] nanoseconds is many. A program that shares its core with the progress thread never reaches a higher number.
const MANY: u32 = 2;
const TIME: u64 = Duration::from_micros(200).as_nanos() as u64;

/// Counts polls. Concurrent polls of two threads may count as one.
#[derive(Default)]
pub(super) struct Polls {
    count: AtomicU32,
    /// Time of the last complete [`MANY`], in [nanoseconds](pace::now), and whether they were many.
    noted: AtomicU64,
    were_many: AtomicBool,
}

impl Polls {
    /// Counts a poll.
    #[inline]
    pub(crate) fn note(&self) {
        let count = self.count.load(Ordering::Relaxed).wrapping_add(1);
        self.count.store(count, Ordering::Relaxed);
        if count.is_multiple_of(MANY) {
            self.note_at(liveness_timer::now());
        }
    }

    /// A poll after many operations counts as many polls.
    pub(crate) fn note_many(&self) {
        self.noted.store(liveness_timer::now(), Ordering::Relaxed);
        self.were_many.store(true, Ordering::Relaxed);
    }

    #[inline(never)]
    fn note_at(&self, now: u64) {
        let before = self.noted.swap(now, Ordering::Relaxed);
        self.were_many
            .store(now.saturating_sub(before) < TIME, Ordering::Relaxed);
    }

    /// Whether there were many in the last [`TIME`].
    pub(crate) fn are_many(&self) -> bool {
        self.are_many_at(liveness_timer::now())
    }

    fn are_many_at(&self, now: u64) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        let over = now.saturating_sub(noted) >= TIME || driver::slept_since(noted);
        self.were_many.load(Ordering::Relaxed) && !over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_a_short_time_just_now_are_many() {
        let polls = Polls::default();
        assert!(!polls.are_many());
        polls.note_at(10 * TIME);
        assert!(!polls.are_many_at(10 * TIME));
        polls.note_at(11 * TIME - 1);
        assert!(polls.are_many_at(11 * TIME));
        assert!(!polls.are_many_at(12 * TIME));
        polls.note_at(13 * TIME);
        assert!(!polls.are_many_at(13 * TIME));
    }
}
