//! The biased lock under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test biased_loom`.
//!
//! The owner's cheap half of the fence and the other thread's `membarrier` together order like `SeqCst` fences, which stand for them here.
#![cfg(loom)]

mod loom_kit;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_kit::{beside, model};
use unipgas_base::biased::Biased;

type Lock = Biased<UnsafeCell<u64>>;

/// The model fails if another thread accesses the value.
fn count(lock: &Lock) {
    let value = lock.lock();
    // SAFETY:
    // - a pointer of the cell, which checks that it is the only one.
    value.with_mut(|value| unsafe { *value += 1 });
}

fn counted(lock: &Lock) -> u64 {
    // SAFETY:
    // - as above.
    lock.lock().with(|value| unsafe { *value })
}

/// The owner takes the lock several times while each other thread takes it once.
fn meet(preemptions: usize, owner: u64, others: u64) {
    model(preemptions, move || {
        let lock = Arc::new(Lock::new(UnsafeCell::new(0)));
        let threads: Vec<_> = (0..others).map(|_| beside(&lock, count)).collect();
        for _ in 0..owner {
            count(&lock);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(counted(&lock), owner + others);
    });
}

#[test]
fn another_thread_comes_while_the_owner_is_inside_or_about_to_be() {
    meet(4, 2, 1);
}

#[test]
fn two_come_at_once() {
    meet(3, 1, 2);
}

/// A thread that takes the lock after the owner's last use sees the owner's last writes.
#[test]
fn the_next_thread_sees_the_last_writes_of_the_owner() {
    model(4, || {
        let lock = Arc::new(Lock::new(UnsafeCell::new(0)));
        count(&lock);
        let other = beside(&lock, move |lock| {
            count(&lock);
            counted(&lock)
        });
        count(&lock);
        assert!(matches!(other.join().unwrap(), 2 | 3));
        assert_eq!(counted(&lock), 3);
    });
}
