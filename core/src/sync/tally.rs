//! What a process meets on its way, told where others read it: operations under way in each issue context, and how often one found no room, and a wait yielded or
//! slept. What needs none of these counts nothing.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::sync::label::Label;

/// Issue contexts of a process that are listed, each with a name; of others nothing is told.
pub const TALLIES: usize = 24;
/// Bytes of a name.
const NAME: usize = 16;

/// What an issue context tells.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Tally {
    /// When a long wait has looked last.
    pending: AtomicU32,
    /// 0: no issue context's.
    taken: AtomicU32,
    name: Label<{ NAME / 8 }>,
}

/// What a process tells of itself.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Ledger {
    retries: AtomicU64,
    yields: AtomicU64,
    sleeps: AtomicU64,
    each: [Tally; TALLIES],
}

/// What a process has met, as somebody else reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// How often an operation found no room, and was put off or refused.
    pub retries: u64,
    /// How often a wait left its core to others.
    pub yields: u64,
    /// How often a wait slept.
    pub sleeps: u64,
    /// Of what is there now.
    pub queues: Vec<QueueCounts>,
}

/// What one issue context tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// `queue 3`, `VCQ 0`, ...
    pub name: String,
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

    #[cfg(test)]
    const fn new() -> Self {
        Tally {
            pending: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            name: Label::empty(),
        }
    }

    fn empty(&self) {
        self.pending.store(0, Ordering::Relaxed);
        self.name.set("");
    }

    fn read(&self) -> QueueCounts {
        QueueCounts {
            name: self.name.get(),
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
            each: [const { Tally::new() }; TALLIES],
        }
    }

    fn empty(&self) {
        for word in [&self.retries, &self.yields, &self.sleeps] {
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
        Counts {
            queues: (self.each.iter().filter(taken)).map(Tally::read).collect(),
            retries: self.retries.load(Ordering::Relaxed),
            yields: self.yields.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
        }
    }
}

/// An issue context's entry.
#[derive(Debug)]
pub struct Account(&'static Tally);

impl Account {
    /// An entry under a name, of at most 16 bytes, as long as there is room for it.
    pub fn named(name: &str) -> Option<Self> {
        Account::listed_in(mine()?, name)
    }

    fn listed_in(ledger: &'static Ledger, name: &str) -> Option<Self> {
        let free = |tally: &&Tally| {
            let taken = tally
                .taken
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        let tally = ledger.each.iter().find(free)?;
        tally.empty();
        tally.name.set(name);
        Some(Account(tally))
    }

    /// Another name.
    pub fn rename(&self, name: &str) {
        self.0.name.set(name);
    }

    /// Where it is.
    pub fn tally(&self) -> &'static Tally {
        self.0
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_contexts_are_listed() {
        let ledger = Box::leak(Box::new(Ledger::new()));
        let named = |name: &str| Account::listed_in(ledger, name);
        let account = named("queue 3").expect("room");
        account.tally().set_pending(7);
        let queue = QueueCounts {
            name: "queue 3".into(),
            pending: 7,
        };
        assert_eq!(ledger.read().queues, [queue]);
        account.rename("what is longer than a name may be");
        assert_eq!(ledger.read().queues[0].name, "what is longer t");
        drop(account);
        assert_eq!(ledger.read().queues, []);
        // With more than can be listed.
        let many: Vec<_> = (0..TALLIES + 2).map(|_| named("one")).collect();
        assert_eq!(many.iter().flatten().count(), TALLIES);
        assert_eq!(ledger.read().queues.len(), TALLIES);
        ledger.empty();
        assert_eq!(ledger.read(), Counts::default());
    }
}
