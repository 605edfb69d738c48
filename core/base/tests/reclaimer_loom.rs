//! Freeing objects that calls of other threads may read, under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test reclaimer_loom`.
//!
//! The readers' cheap half of the fence and the `membarrier` of the thread that frees together order like `SeqCst` fences, which stand for them here.
#![cfg(loom)]

mod loom_kit;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom_kit::{beside, model};
use unipgas_base::calls::{Call, thread_ends};
use unipgas_base::reclaimer::Reclaimer;

/// Objects that a name leads to. The memory of freed ones stays, so that the model detects reads of them.
struct Things {
    reclaimer: Reclaimer,
    shown: AtomicUsize,
    there: Arc<There>,
}

struct There([UnsafeCell<bool>; 3]);

// SAFETY:
// - each write is exclusive; the model detects others.
unsafe impl Sync for There {}

struct Thing {
    there: Arc<There>,
    nth: usize,
}

impl Drop for Thing {
    fn drop(&mut self) {
        // SAFETY:
        // - a pointer of the cell, which checks that no other access is concurrent.
        self.there.0[self.nth].with_mut(|there| unsafe { *there = false });
    }
}

impl Things {
    fn new(reclaimer: Reclaimer) -> Arc<Self> {
        Arc::new(Things {
            reclaimer,
            shown: AtomicUsize::new(0),
            there: Arc::new(There(std::array::from_fn(|_| UnsafeCell::new(true)))),
        })
    }

    /// In a call, the object under the name exists.
    fn read(&self) {
        let nth = self.shown.load(Ordering::Acquire);
        // SAFETY:
        // - as above.
        let there = self.there.0[nth].with(|there| unsafe { *there });
        assert!(there, "read after it was freed");
    }

    /// Replaces the thing under the name, and frees the old one after its last reader. `weight`: 1 completes the batch, which starts a
    /// search for its readers; 0 only checks whether they have ended.
    fn replace(&self, next: usize, weight: usize) {
        self.shown.store(next, Ordering::Release);
        let old = Thing {
            there: self.there.clone(),
            nth: next - 1,
        };
        self.reclaimer.retire(Box::new(old), weight);
    }
}

/// Two things go while another thread makes calls. When the second one goes, the first one is freed, if no call can be reading it.
fn check(
    preemptions: usize,
    reclaimer: fn() -> Reclaimer,
    calls: impl Fn(&Things) + Copy + Sync + Send + 'static,
) {
    model(preemptions, move || {
        let things = Things::new(reclaimer());
        let reader = beside(&things, move |things| calls(&things));
        things.replace(1, 1);
        things.replace(2, 0);
        reader.join().unwrap();
    });
}

#[test]
fn what_calls_on_a_port_s_queues_read() {
    check(3, Reclaimer::of_ports, |things| {
        let turns = things.reclaimer.turns();
        for _ in 0..2 {
            turns.begin();
            things.read();
            turns.end();
        }
    });
}

/// A thread's first call makes it known, the second one begins a new count, the third one only counts.
#[test]
fn what_threads_read_in_calls() {
    check(3, Reclaimer::of_threads, |things| {
        for _ in 0..3 {
            let _call = Call::begin(|| {});
            things.read();
        }
    });
}

/// It is not known any more then.
#[test]
fn what_a_thread_reads_that_ends() {
    check(3, Reclaimer::of_threads, |things| {
        let call = Call::begin(|| {});
        things.read();
        drop(call);
        thread_ends();
    });
}
