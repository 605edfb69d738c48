//! The counters of triggered commands under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test steps_loom`.
#![cfg(loom)]

#[path = "../../base/tests/loom_kit/mod.rs"]
mod loom_kit;

use std::ops::ControlFlow;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom_kit::{beside, model};
use unipgas_port::steps::Steps;

/// Counters, and the number of starts of each command.
struct Port {
    steps: Steps,
    started: [AtomicU64; 4],
    order: AtomicU64,
}

impl Port {
    fn new() -> Arc<Port> {
        Arc::new(Port {
            steps: Steps::new(),
            started: std::array::from_fn(|_| AtomicU64::new(0)),
            order: AtomicU64::new(0),
        })
    }

    fn start(&self, number: u64) -> ControlFlow<()> {
        // Only one thread starts commands at a time. The increment is not atomic on purpose, so a second one is detected.
        let nth = self.order.load(Ordering::Relaxed);
        assert_eq!(nth, number, "out of order, or twice");
        self.order.store(nth + 1, Ordering::Relaxed);
        self.started[number as usize].fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    }

    fn run(&self, me: u64) -> bool {
        self.steps.run(me, |_| false, |number| self.start(number))
    }

    fn counts(&self) -> [u64; 4] {
        std::array::from_fn(|i| self.started[i].load(Ordering::Relaxed))
    }
}

#[test]
fn two_arrivals_start_everything_once() {
    model(3, || {
        let port = Port::new();
        port.steps.post();
        port.steps.post();
        let other = beside(&port, move |port| {
            port.steps.allow(1);
            port.run(2);
        });
        port.steps.allow(1);
        port.run(1);
        other.join().unwrap();
        assert_eq!(port.counts(), [1, 1, 0, 0]);
        assert_eq!(port.steps.ready(), None);
    });
}

#[test]
fn an_arrival_and_the_owner_who_posts() {
    // Allowed steps without a command start commands that are posted later, in either thread.
    model(3, || {
        let port = Port::new();
        let other = beside(&port, move |port| {
            port.steps.allow(3);
            port.run(2);
        });
        for _ in 0..2 {
            port.steps.post();
            port.run(1);
        }
        other.join().unwrap();
        assert_eq!(port.counts(), [1, 1, 0, 0]);
        port.steps.post();
        port.run(1);
        port.steps.post();
        port.run(1);
        assert_eq!(port.counts(), [1, 1, 1, 0]);
    });
}

#[test]
fn one_of_two_replaces_a_runner_that_was_killed() {
    // Process 9 ends during its first command. Then two others look.
    model(3, || {
        let port = Port::new();
        port.steps.post();
        port.steps.post();
        port.steps.allow(2);
        port.steps.run(9, |_| false, |_| ControlFlow::Break(()));
        assert_eq!(port.steps.ready(), Some(0));
        let look = |port: &Port, me: u64| {
            port.steps
                .run(me, |pid| pid == 9, |number| port.start(number))
        };
        let other = beside(&port, move |port| look(&port, 2));
        let replaced = [look(&port, 1), other.join().unwrap()];
        assert_eq!(replaced.iter().filter(|replaced| **replaced).count(), 1);
        assert_eq!(port.counts(), [1, 1, 0, 0]);
        assert_eq!(port.steps.ready(), None);
    });
}

#[test]
fn threads_of_one_process_keep_out_of_each_others_way() {
    model(3, || {
        let port = Port::new();
        port.steps.post();
        port.steps.post();
        let other = beside(&port, move |port| {
            port.steps.allow(1);
            port.run(1);
        });
        port.steps.allow(1);
        port.run(1);
        other.join().unwrap();
        assert_eq!(port.counts(), [1, 1, 0, 0]);
    });
}
