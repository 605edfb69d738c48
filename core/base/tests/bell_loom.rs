//! Bells under the model checker: `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test bell_loom`.
//!
//! The notifiers' cheap half of the fence and the sleepers' `membarrier` together order like `SeqCst` fences, which stand for them here.
#![cfg(loom)]

mod loom_kit;

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom_kit::{beside, model};
use unipgas_base::bell::Bell;

struct Door {
    bell: Bell,
    flags: [AtomicU32; 2],
}

/// Notifiers set a flag each, and ring; sleepers look at one each. A sleeper that sees no flag after its announcement gets a ring.
fn meet(preemptions: usize, notifiers: usize, sleepers: usize) {
    model(preemptions, move || {
        let door = Arc::new(Door {
            bell: Bell::default(),
            flags: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        let threads: Vec<_> = (0..notifiers)
            .map(|nth| {
                beside(&door, move |door| {
                    door.flags[nth].store(1, Ordering::Release);
                    door.bell.ring_if_heard();
                })
            })
            .collect();
        let others: Vec<_> = (1..sleepers)
            .map(|_| beside(&door, |door| drop(door.bell.listen())))
            .collect();
        let listening = door.bell.listen();
        let seen = (0..notifiers).all(|nth| door.flags[nth].load(Ordering::Acquire) == 1);
        for thread in threads.into_iter().chain(others) {
            thread.join().unwrap();
        }
        let rung = listening.sleep(Duration::ZERO);
        assert!(seen || rung, "no notifier has rung");
        assert_eq!(door.bell.sleepers(), 0);
    });
}

#[test]
fn a_sleeper_is_seen_or_sees() {
    meet(4, 1, 1);
}

#[test]
fn each_of_two_notifiers_sees_the_sleeper_or_is_seen() {
    meet(3, 2, 1);
}

#[test]
fn another_sleeper_that_goes_takes_no_ring_along() {
    meet(3, 1, 2);
}
