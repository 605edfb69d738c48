//! Counters of a process, in memory that other processes read: operations and bytes of each issue context, operations in progress, operations that found no
//! room, yields and sleeps of waits. Fast paths do not write them: their counts are published from time to time ([`issue_totals`]).

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::sync::label::Label;
use crate::sync::polls;
use crate::{exit, issue_totals, process, tell, variables};

/// The most issue contexts of a process that are listed by name. The others are counted together.
pub(crate) const TALLIES: usize = 24;
/// Bytes of a name.
const NAME: usize = 16;

/// Counters of an issue context.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct QueueCounters {
    operations: AtomicU64,
    bytes: AtomicU64,
    pending: AtomicU32,
    /// 0: the entry is free.
    taken: AtomicU32,
    name: Label<{ NAME / 8 }>,
}

/// Counters of a process.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ProcessCounters {
    retries: AtomicU64,
    yields: AtomicU64,
    sleeps: AtomicU64,
    /// Waits that yielded their core: number, and total time in nanoseconds.
    waits: [AtomicU64; 2],
    /// Operations and bytes of issue contexts that have ended, or had other names.
    ended: [AtomicU64; 2],
    /// Operations and bytes of issue contexts without an entry in `each`.
    others: [AtomicU64; 2],
    each: [QueueCounters; TALLIES],
}

/// Counters of a process, as a reader gets them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterValues {
    /// Operations on memory of peers, and messages, posted until the last publication.
    pub operations: u64,
    /// Bytes of these operations.
    pub bytes: u64,
    /// Operations that found no room, and were postponed or refused.
    pub retries: u64,
    /// Number of yields in waits.
    pub yields: u64,
    /// Number of sleeps in waits.
    pub sleeps: u64,
    /// Waits that yielded their core: calls that wait, or sequences of polls without a result.
    #[serde(default)]
    pub waits: u64,
    /// Total time of these waits, in nanoseconds.
    #[serde(default)]
    pub waited: u64,
    /// The issue contexts that exist now.
    pub queues: Vec<QueueCounts>,
}

/// Counters of one issue context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// `queue 3`, `VCQ 0`, ...
    pub name: String,
    /// Operations posted.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Operations in progress, as of the last look by a long wait.
    pub pending: u32,
}

/// The counters of this process. Null: none.
static MINE: AtomicPtr<ProcessCounters> = AtomicPtr::new(std::ptr::null_mut());

/// The process that owns the counters. A child of a fork does not.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Starts to count in `ledger`. `place`: rank and number of ranks. With `UNIPGAS_STATS`, the process writes its counters when it exits.
pub(super) fn tell_at(ledger: &'static ProcessCounters, place: (u32, u32)) {
    // A process that has died may have used it.
    ledger.empty();
    OWNER.store(process::id(), Ordering::Relaxed);
    MINE.store(std::ptr::from_ref(ledger).cast_mut(), Ordering::Release);
    static PLACE: OnceLock<(u32, u32)> = OnceLock::new();
    extern "C" fn at_exit() {
        if let (Some(ledger), Some(place)) = (mine(), PLACE.get()) {
            let polls = polls::take();
            exit::run(|| {
                drop(polls);
                issue_totals::look();
                leave(&ledger.read(), *place);
            });
        }
    }
    if matches!(variables::number("UNIPGAS_STATS"), Ok(Some(1..))) && PLACE.set(place).is_ok() {
        // SAFETY:
        // - the handler takes no argument, and uses only statics.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Writes the counters as a JSON record, or as a line on standard error.
fn leave(counts: &CounterValues, (rank, size): (u32, u32)) {
    let Ok(Some(path)) = variables::get("UNIPGAS_STATS_TO") else {
        return tell(&format!(
            "rank {rank}: operations {}, bytes {}, waits {}, waits us {}",
            counts.operations,
            counts.bytes,
            counts.waits,
            counts.waited / 1000
        ));
    };
    let record = json!({
        "interface": "unipgas",
        "rank": rank,
        "size": size,
        "calls": {
            "operations": counts.operations,
            "retries": counts.retries,
            "waits": counts.waits,
            "yields": counts.yields,
            "sleeps": counts.sleeps,
        },
        "bytes": { "bytes": counts.bytes },
        "nanoseconds": { "waits": counts.waited },
    });
    let file = OpenOptions::new().append(true).open(&path);
    let appended = file.and_then(|mut file| file.write_all(format!("{record}\n").as_bytes()));
    if let Err(error) = appended {
        tell(&format!(
            "the statistics cannot be written to {path}: {error}"
        ));
    }
}

fn mine() -> Option<&'static ProcessCounters> {
    // SAFETY:
    // - null, or from a reference that lives as long as the process.
    let ledger = unsafe { MINE.load(Ordering::Acquire).as_ref() };
    ledger.filter(|_| OWNER.load(Ordering::Relaxed) == process::id())
}

/// Whether this process publishes counters. Children of a fork do not.
pub(crate) fn is_told() -> bool {
    mine().is_some()
}

/// Counts an operation that found no room. It is postponed, or refused.
#[cold]
pub fn retried() {
    if let Some(ledger) = mine() {
        ledger.retries.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a yield of a wait.
pub(super) fn yielded() {
    if let Some(ledger) = mine() {
        ledger.yields.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a sleep of a wait.
pub(super) fn slept() {
    if let Some(ledger) = mine() {
        ledger.sleeps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a wait that has yielded its core.
#[cold]
pub(super) fn waited(span: Duration) {
    if let Some(ledger) = mine() {
        add(&ledger.waits, 1, span.as_nanos() as u64);
    }
}

fn add(to: &[AtomicU64; 2], many: u64, sum: u64) {
    to[0].fetch_add(many, Ordering::Relaxed);
    to[1].fetch_add(sum, Ordering::Relaxed);
}

/// Adds the counts of an issue context that has ended or gets another name.
pub(crate) fn ended(operations: u64, bytes: u64) {
    if let Some(ledger) = mine() {
        add(&ledger.ended, operations, bytes);
    }
}

/// Sets the counts of all issue contexts without an entry.
pub(crate) fn of_others(operations: u64, bytes: u64) {
    if let Some(ledger) = mine() {
        ledger.others[0].store(operations, Ordering::Relaxed);
        ledger.others[1].store(bytes, Ordering::Relaxed);
    }
}

impl QueueCounters {
    #[cfg(test)]
    const fn new() -> Self {
        QueueCounters {
            operations: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            pending: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            name: Label::empty(),
        }
    }

    fn tell(&self, operations: u64, bytes: u64) {
        self.operations.store(operations, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn empty(&self) {
        self.tell(0, 0);
        self.pending.store(0, Ordering::Relaxed);
        self.name.set("");
    }

    fn read(&self) -> QueueCounts {
        QueueCounts {
            name: self.name.get(),
            operations: self.operations.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            pending: self.pending.load(Ordering::Relaxed),
        }
    }
}

impl ProcessCounters {
    #[cfg(test)]
    pub(super) const fn new() -> Self {
        ProcessCounters {
            retries: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            waits: [const { AtomicU64::new(0) }; 2],
            ended: [const { AtomicU64::new(0) }; 2],
            others: [const { AtomicU64::new(0) }; 2],
            each: [const { QueueCounters::new() }; TALLIES],
        }
    }

    fn empty(&self) {
        let words = [&self.retries, &self.yields, &self.sleeps];
        let pairs = [&self.waits, &self.ended, &self.others];
        for word in (words.into_iter()).chain(pairs.into_iter().flatten()) {
            word.store(0, Ordering::Relaxed);
        }
        for tally in &self.each {
            tally.empty();
            tally.taken.store(0, Ordering::Relaxed);
        }
    }

    /// Reads the counters.
    pub fn read(&self) -> CounterValues {
        let taken = |tally: &&QueueCounters| tally.taken.load(Ordering::Acquire) != 0;
        let queues: Vec<_> = (self.each.iter().filter(taken))
            .map(QueueCounters::read)
            .collect();
        let sum = |which: usize, of: fn(&QueueCounts) -> u64| {
            let rest = [&self.ended, &self.others].map(|pair| pair[which].load(Ordering::Relaxed));
            queues.iter().map(of).chain(rest).fold(0, u64::wrapping_add)
        };
        CounterValues {
            operations: sum(0, |queue| queue.operations),
            bytes: sum(1, |queue| queue.bytes),
            retries: self.retries.load(Ordering::Relaxed),
            yields: self.yields.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            waits: self.waits[0].load(Ordering::Relaxed),
            waited: self.waits[1].load(Ordering::Relaxed),
            queues,
        }
    }
}

/// The entry of an issue context.
#[derive(Debug)]
pub struct Account(&'static QueueCounters);

impl Account {
    /// An entry with this name, which is cut after 16 bytes. `None`: no entry is free, or this process has no counters.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Account::listed_in(mine()?, name)
    }

    fn listed_in(ledger: &'static ProcessCounters, name: &str) -> Option<Self> {
        let free = |tally: &&QueueCounters| {
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

    /// Resets the entry, and gives it another name.
    pub(crate) fn rename(&self, name: &str) {
        self.0.empty();
        self.0.name.set(name);
    }

    /// Sets the number of posted operations, and their bytes.
    pub(crate) fn tell(&self, operations: u64, bytes: u64) {
        self.0.tell(operations, bytes);
    }

    /// Sets the number of operations in progress.
    pub(crate) fn tell_pending(&self, operations: usize) {
        let many = operations.try_into().unwrap_or(u32::MAX);
        self.0.pending.store(many, Ordering::Relaxed);
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
        static LEDGER: ProcessCounters = ProcessCounters::new();
        let ledger = &LEDGER;
        let named = |name: &str| Account::listed_in(ledger, name);
        let account = named("queue 3").expect("room");
        account.tell(402, 508);
        account.tell_pending(7);
        add(&ledger.ended, 5, 10);
        let read = ledger.read();
        let queue = QueueCounts {
            name: "queue 3".into(),
            operations: 402,
            bytes: 508,
            pending: 7,
        };
        assert_eq!(read.queues, [queue]);
        assert_eq!((read.operations, read.bytes), (407, 518));
        account.rename("longer than a name may be");
        assert_eq!(ledger.read().queues[0].name, "longer than a na");
        drop(account);
        assert_eq!(ledger.read().queues, []);
        // More contexts than can be listed.
        let many: Vec<_> = (0..TALLIES + 2).map(|_| named("one")).collect();
        assert_eq!(many.iter().flatten().count(), TALLIES);
        assert_eq!(ledger.read().queues.len(), TALLIES);
        ledger.empty();
        assert_eq!(ledger.read(), CounterValues::default());
    }
}
