//! What a process has done, counted where others read it: the operations and bytes of each issue context, and what was in their way. Counting is an addition in
//! a line that the posting thread has anyway; whoever wants to know reads it from the outside, at any time.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Issue contexts of a process that are listed, each with a name; of others nothing is told.
pub const TALLIES: usize = 24;
/// Bytes of a name.
const NAME: usize = 16;

/// What has been posted to an issue context.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Tally {
    /// By the thread that posts most, which alone changes these two.
    operations: AtomicU64,
    bytes: AtomicU64,
    operations_of_others: AtomicU64,
    bytes_of_others: AtomicU64,
    /// When a long wait has looked last.
    pending: AtomicU32,
    /// 0: no issue context's.
    taken: AtomicU32,
    name: [AtomicU64; NAME / 8],
}

/// What a process tells of itself.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Ledger {
    retries: AtomicU64,
    yields: AtomicU64,
    sleeps: AtomicU64,
    /// Of issue contexts that are no more.
    operations: AtomicU64,
    bytes: AtomicU64,
    each: [Tally; TALLIES],
}

/// What a process has done, as somebody else reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Operations on memory of peers, and messages.
    pub operations: u64,
    /// What those moved.
    pub bytes: u64,
    /// How often an operation found no room, and was put off or refused.
    pub retries: u64,
    /// How often a wait left its core to others.
    pub yields: u64,
    /// How often a wait slept.
    pub sleeps: u64,
    /// Of what is there now.
    pub queues: Vec<QueueCounts>,
}

/// What has been posted to one issue context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// `queue 3`, `VCQ 0`, ...
    pub name: String,
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
    /// Operations under way, as far as a long wait has looked.
    pub pending: u32,
}

/// Where it is told; null: nowhere.
static MINE: AtomicPtr<Ledger> = AtomicPtr::new(std::ptr::null_mut());

/// Has this process told here from now on.
pub(super) fn tell_at(ledger: &'static Ledger) {
    // Another process may have had it, and has died.
    ledger.empty();
    MINE.store(std::ptr::from_ref(ledger).cast_mut(), Ordering::Release);
}

fn mine() -> Option<&'static Ledger> {
    // SAFETY:
    // - null, or from a reference that lives as long as the process.
    unsafe { MINE.load(Ordering::Acquire).as_ref() }
}

/// An operation has found no room: it is put off, or refused.
#[cold]
pub fn retried() {
    if let Some(ledger) = mine() {
        ledger.retries.fetch_add(1, Ordering::Relaxed);
    }
}

/// A wait leaves its core to others.
pub(super) fn yielded() {
    if let Some(ledger) = mine() {
        ledger.yields.fetch_add(1, Ordering::Relaxed);
    }
}

/// A wait sleeps.
pub(super) fn slept() {
    if let Some(ledger) = mine() {
        ledger.sleeps.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tally {
    /// A long wait has seen so many operations under way.
    pub fn set_pending(&self, operations: usize) {
        let many = operations.try_into().unwrap_or(u32::MAX);
        self.pending.store(many, Ordering::Relaxed);
    }

    const fn new() -> Self {
        Tally {
            operations: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            operations_of_others: AtomicU64::new(0),
            bytes_of_others: AtomicU64::new(0),
            pending: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            name: [const { AtomicU64::new(0) }; NAME / 8],
        }
    }

    fn empty(&self) {
        for word in [
            &self.operations,
            &self.bytes,
            &self.operations_of_others,
            &self.bytes_of_others,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.pending.store(0, Ordering::Relaxed);
        self.set_name("");
    }

    fn set_name(&self, name: &str) {
        let mut words = [0u64; NAME / 8];
        let bytes = bytemuck::bytes_of_mut(&mut words);
        let len = name.len().min(NAME);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        for (place, word) in self.name.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn name(&self) -> String {
        let words: [u64; NAME / 8] =
            std::array::from_fn(|at| self.name[at].load(Ordering::Relaxed));
        let name = bytemuck::bytes_of(&words);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        String::from_utf8_lossy(&name[..end]).into_owned()
    }

    fn read(&self) -> QueueCounts {
        let sum = |own: &AtomicU64, others: &AtomicU64| {
            (own.load(Ordering::Relaxed)).wrapping_add(others.load(Ordering::Relaxed))
        };
        QueueCounts {
            name: self.name(),
            operations: sum(&self.operations, &self.operations_of_others),
            bytes: sum(&self.bytes, &self.bytes_of_others),
            pending: self.pending.load(Ordering::Relaxed),
        }
    }
}

impl Ledger {
    #[cfg(test)]
    pub(super) const fn new() -> Self {
        Ledger {
            retries: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            each: [const { Tally::new() }; TALLIES],
        }
    }

    fn empty(&self) {
        for word in [
            &self.retries,
            &self.yields,
            &self.sleeps,
            &self.operations,
            &self.bytes,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for tally in &self.each {
            tally.empty();
            tally.taken.store(0, Ordering::Relaxed);
        }
    }

    /// What it tells.
    pub fn read(&self) -> Counts {
        let taken = |tally: &&Tally| tally.taken.load(Ordering::Acquire) != 0;
        let queues: Vec<_> = (self.each.iter().filter(taken)).map(Tally::read).collect();
        let sum = |before: &AtomicU64, of: fn(&QueueCounts) -> u64| {
            let before = before.load(Ordering::Relaxed);
            queues.iter().map(of).fold(before, u64::wrapping_add)
        };
        Counts {
            operations: sum(&self.operations, |queue| queue.operations),
            bytes: sum(&self.bytes, |queue| queue.bytes),
            retries: self.retries.load(Ordering::Relaxed),
            yields: self.yields.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            queues,
        }
    }
}

/// An issue context's place to count.
#[derive(Debug)]
pub struct Account {
    tally: NonNull<Tally>,
    /// Where others read it, as long as the process lives; else it belongs to this account.
    listed: Option<(&'static Tally, &'static Ledger)>,
}

// SAFETY:
// - a tally is made of atomics.
unsafe impl Send for Account {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Account {}

impl Account {
    /// One that nobody reads.
    pub fn unlisted() -> Self {
        Account {
            tally: NonNull::from(Box::leak(Box::new(Tally::new()))),
            listed: None,
        }
    }

    /// One that is listed under a name, of at most 16 bytes, as long as there is room for it.
    pub fn named(name: &str) -> Self {
        Account::listed_in(mine(), name)
    }

    fn listed_in(ledger: Option<&'static Ledger>, name: &str) -> Self {
        let free = |tally: &&Tally| {
            let taken = tally
                .taken
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        let found = ledger.and_then(|ledger| Some((ledger.each.iter().find(free)?, ledger)));
        let Some((tally, _)) = found else {
            return Account::unlisted();
        };
        tally.empty();
        tally.set_name(name);
        Account {
            tally: NonNull::from(tally),
            listed: found,
        }
    }

    /// Another name.
    pub fn rename(&self, name: &str) {
        self.tally().set_name(name);
    }

    #[inline(always)]
    fn tally(&self) -> &Tally {
        // SAFETY:
        // - a box's, which ends with the account, or what lives as long as the process.
        unsafe { self.tally.as_ref() }
    }

    /// An operation of the thread that alone calls this.
    #[inline(always)]
    pub fn count(&self, bytes: usize) {
        let tally = self.tally();
        let add = |to: &AtomicU64, more: u64| {
            let before = to.load(Ordering::Relaxed);
            to.store(before.wrapping_add(more), Ordering::Relaxed);
        };
        add(&tally.operations, 1);
        add(&tally.bytes, bytes as u64);
    }

    /// An operation of another thread.
    #[inline]
    pub fn count_of_others(&self, bytes: usize) {
        let tally = self.tally();
        tally.operations_of_others.fetch_add(1, Ordering::Relaxed);
        (tally.bytes_of_others).fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Where it is listed.
    pub fn listed(&self) -> Option<&'static Tally> {
        self.listed.map(|(tally, _)| tally)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let Some((tally, ledger)) = self.listed else {
            // SAFETY:
            // - from a box in `unlisted`, and freed here alone.
            return drop(unsafe { Box::from_raw(self.tally.as_ptr()) });
        };
        let done = tally.read();
        (ledger.operations).fetch_add(done.operations, Ordering::Relaxed);
        ledger.bytes.fetch_add(done.bytes, Ordering::Relaxed);
        tally.taken.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_read() {
        let ledger = Box::leak(Box::new(Ledger::new()));
        let named = |name: &str| Account::listed_in(Some(ledger), name);
        let account = named("queue 3");
        account.count(8);
        account.count(100);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| account.count_of_others(1)));
            }
        });
        let read = ledger.read();
        let queue = QueueCounts {
            name: "queue 3".into(),
            operations: 402,
            bytes: 508,
            pending: 0,
        };
        assert_eq!((read.operations, read.bytes), (402, 508), "{read:?}");
        assert_eq!(read.queues, [queue]);
        let unlisted = Account::unlisted();
        unlisted.count(7);
        account.rename("what is longer than a name may be");
        assert_eq!(ledger.read().queues[0].name, "what is longer t");
        drop((account, unlisted));
        // What is no more still counts.
        let read = ledger.read();
        assert_eq!((read.operations, read.bytes), (402, 508));
        assert_eq!(read.queues, []);
        // With more than can be listed.
        let many: Vec<_> = (0..TALLIES + 2).map(|_| named("one")).collect();
        many.iter().for_each(|account| account.count(1));
        assert_eq!(ledger.read().queues.len(), TALLIES);
        ledger.empty();
        assert_eq!(ledger.read(), Counts::default());
    }
}
