//! The lines of a mailbox's lane under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test lanes_loom`.
#![cfg(loom)]

mod loom_kit;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use loom_kit::{beside, model};
use unipgas_base::polled_line::{WORDS, end, publish, read};

/// Two lines, used in turn, and how many of them have been taken.
struct Lane {
    lines: [[AtomicU64; WORDS]; 2],
    credit: AtomicU32,
}

/// Messages, each a line filled with its number. The sender reuses taken lines, the receiver takes announced ones.
fn messages(preemptions: usize, number: u32) {
    model(preemptions, move || {
        let lane = Arc::new(Lane {
            lines: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            credit: AtomicU32::new(0),
        });
        let sender = beside(&lane, move |lane| {
            for nth in 1..=number {
                while nth > lane.credit.load(Ordering::Acquire) + 2 {
                    thread::yield_now();
                }
                publish(&lane.lines[nth as usize % 2], &[nth.into(); WORDS]);
            }
        });
        for nth in 1..=number {
            let line = &lane.lines[nth as usize % 2];
            let last = loop {
                match end(line) {
                    last if last == u64::from(nth) => break last,
                    _ => thread::yield_now(),
                }
            };
            assert_eq!(read(line, last), [u64::from(nth); WORDS]);
            lane.credit.store(nth, Ordering::Release);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_line_is_there_when_it_is_announced() {
    messages(3, 2);
}

#[test]
fn a_line_is_not_written_over_while_it_is_read() {
    messages(2, 4);
}
