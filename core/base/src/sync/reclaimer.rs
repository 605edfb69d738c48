//! Objects that are out of use, while calls of other threads may still read them. They are freed when these calls have ended.
//!
//! A call that holds a port's queues counts its begin and its end ([`ReaderEpoch`]), and so do the [calls] of threads, by plain stores. The reclaimer
//! pays for the order, by one `membarrier` for a whole batch. The counters then show the calls that may have seen an object of the batch. Later calls find
//! only the replacements. Without `membarrier`, objects are freed only with the whole list.

use std::sync::Arc;

use crate::calls;
use crate::on_pair;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, fence};

/// The weight of a batch that is worth a barrier.
const BATCH: usize = if cfg!(loom) { 1 } else { 64 };

/// A reader of objects that may be freed. It makes one call at a time.
pub trait EpochReader: Send + Sync {
    /// The number of the call in progress, if there is one.
    fn under_way(&self) -> Option<u64>;
}

on_pair! {
    /// Counts the calls that hold the queues of one port, or other calls that one thread makes at a time. Odd while a call is in progress. On separate lines.
    #[derive(Debug, Default)]
    pub struct ReaderEpoch(AtomicU64);
}

impl ReaderEpoch {
    /// Begins a call. Only one thread at a time may call.
    #[inline(always)]
    pub fn begin(&self) {
        self.step();
        fence::light();
    }

    /// Ends the call.
    #[inline(always)]
    pub fn end(&self) {
        self.step();
    }

    /// A release store: a thread that sees the new value also sees the effects of the calls before.
    #[inline(always)]
    fn step(&self) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(next, Ordering::Release);
    }
}

impl EpochReader for ReaderEpoch {
    fn under_way(&self) -> Option<u64> {
        let now = self.0.load(Ordering::Acquire);
        (now % 2 == 1).then_some(now)
    }
}

/// Objects that wait to be freed.
pub struct Reclaimer {
    possible: bool,
    state: Mutex<State>,
}

type Batch = Vec<Box<dyn Send>>;

#[derive(Default)]
struct State {
    /// The registered readers.
    all: Vec<Arc<dyn EpochReader>>,
    /// Calls of threads may read the objects, too.
    threads: bool,
    /// Retired since the last barrier.
    fresh: Batch,
    weight: usize,
    /// Retired before the last barrier.
    old: Batch,
    /// The calls that may read objects of `old`.
    readers: Vec<(Arc<dyn EpochReader>, u64)>,
}

impl Reclaimer {
    /// For objects that calls with [`Reclaimer::turns`] read.
    pub fn of_ports() -> Self {
        Reclaimer::new(false)
    }

    /// For objects that [calls](calls::Call) of threads read.
    pub fn of_threads() -> Self {
        Reclaimer::new(true)
    }

    fn new(threads: bool) -> Self {
        Reclaimer {
            possible: fence::register(),
            state: Mutex::new(State {
                threads,
                ..State::default()
            }),
        }
    }

    /// Adds the counter of a port.
    pub fn turns(&self) -> Arc<ReaderEpoch> {
        let turns = Arc::new(ReaderEpoch::default());
        self.read_by(turns.clone());
        turns
    }

    /// Adds a reader. It is removed when no other reference to it exists.
    pub(crate) fn read_by(&self, reader: Arc<dyn EpochReader>) {
        let mut state = self.state.lock();
        state.all.retain(|reader| Arc::strong_count(reader) > 1);
        state.all.push(reader);
    }

    /// Frees `what`, which later calls cannot find, after the calls in progress have ended. `weight`: its share of a batch.
    #[cold]
    pub fn retire(&self, what: Box<dyn Send>, weight: usize) {
        let mut state = self.state.lock();
        state.fresh.push(what);
        state.weight += weight;
        let unused = if self.possible {
            state.unused()
        } else {
            Batch::new()
        };
        drop(state);
        drop(unused);
    }
}

impl State {
    /// The objects that no call can read any more.
    fn unused(&mut self) -> Batch {
        self.readers
            .retain(|(reader, seen)| reader.under_way() == Some(*seen));
        if !self.readers.is_empty() {
            return Batch::new();
        }
        let unused = std::mem::take(&mut self.old);
        if self.weight >= BATCH && fence::heavy() {
            let threads = match self.threads {
                true => calls::threads(),
                false => Some(Vec::new()),
            };
            let Some(threads) = threads else {
                return unused;
            };
            self.old = std::mem::take(&mut self.fresh);
            self.weight = 0;
            let under_way =
                |reader: &Arc<dyn EpochReader>| Some((reader.clone(), reader.under_way()?));
            let all = self.all.iter().chain(&threads);
            self.readers = all.filter_map(under_way).collect();
        }
        unused
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

    use super::*;

    /// Counts its instances.
    struct Thing {
        there: &'static AtomicUsize,
        name: AtomicU64,
    }

    impl Thing {
        fn new(there: &'static AtomicUsize, name: u64) -> Self {
            there.fetch_add(1, Ordering::Relaxed);
            let name = AtomicU64::new(name);
            Thing { there, name }
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.name.store(0, Ordering::Relaxed);
            self.there.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_goes_while_a_call_goes_on_and_all_but_two_batches_after_it() {
        static THERE: AtomicUsize = AtomicUsize::new(0);
        let reclaimer = Reclaimer::of_ports();
        if !reclaimer.possible {
            return;
        }
        let (turns, others) = (reclaimer.turns(), reclaimer.turns());
        let retire = |many| {
            for _ in 0..many {
                others.begin();
                reclaimer.retire(Box::new(Thing::new(&THERE, 1)), 1);
                others.end();
            }
        };
        turns.begin();
        retire(10 * BATCH);
        assert_eq!(THERE.load(Ordering::Relaxed), 10 * BATCH);
        turns.end();
        turns.begin();
        retire(10 * BATCH);
        // The second call began before the barrier of all batches but the first.
        assert_eq!(THERE.load(Ordering::Relaxed), 19 * BATCH);
        turns.end();
        retire(10 * BATCH);
        assert!(THERE.load(Ordering::Relaxed) <= 2 * BATCH);
        drop(reclaimer);
        assert_eq!(THERE.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn readers_find_only_what_is_there() {
        static THERE: AtomicUsize = AtomicUsize::new(0);
        let reclaimer = Reclaimer::of_ports();
        let fresh = |name| Box::into_raw(Box::new(Thing::new(&THERE, name)));
        let shown = AtomicPtr::new(fresh(1));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let turns = reclaimer.turns();
                    while !done.load(Ordering::Relaxed) {
                        turns.begin();
                        // SAFETY:
                        // - made by Box::into_raw, and retired only after its replacement.
                        let thing = unsafe { &*shown.load(Ordering::Acquire) };
                        let name = thing.name.load(Ordering::Relaxed);
                        for _ in 0..20 {
                            std::thread::yield_now();
                            assert_ne!(name, 0);
                            assert_eq!(thing.name.load(Ordering::Relaxed), name);
                        }
                        turns.end();
                    }
                });
            }
            let turns = reclaimer.turns();
            let things = if cfg!(miri) { 300 } else { 20_000 };
            for name in 2..things {
                turns.begin();
                let old = shown.swap(fresh(name), Ordering::AcqRel);
                // SAFETY:
                // - made by Box::into_raw. The swap gave it to this thread alone.
                reclaimer.retire(unsafe { Box::from_raw(old) }, 1);
                turns.end();
                if name % 16 == 0 {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        // SAFETY:
        // - made by Box::into_raw. The other threads have ended.
        drop(unsafe { Box::from_raw(shown.into_inner()) });
        drop(reclaimer);
        assert_eq!(THERE.load(Ordering::Relaxed), 0);
    }
}
