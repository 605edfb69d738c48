//! Cost of an operation: work requests, doorbells and signaled completions.

use std::sync::atomic::Ordering;

use unipgas_core::transport::Transport;
use unipgas_core::{Flags, Rights};

use crate::device::{count, requests};
use crate::node::{Node, PeerLink, until};
use crate::process::{alone, alone_as, test_of};

const MANY: u64 = 4096;

struct Cost {
    requests: u64,
    doorbells: u64,
    told: u64,
}

/// Number of operations that a sender posts ahead of their visibility. With more, it would wait for the device and need more completions.
const SPELL: u64 = 8;

/// Cost of `MANY` operations, until all are complete. `seen` waits until the last one is visible.
fn cost(node: &Node, mut post: impl FnMut(u32), mut seen: impl FnMut(u32)) -> Cost {
    assert_eq!(node.settle(), []);
    let counts = || (requests(), count("doorbells"), count("wr.signaled"));
    let before = counts();
    for nth in 1..=MANY {
        post(nth as u32);
        if nth.is_multiple_of(SPELL) {
            seen(nth as u32);
        }
    }
    assert_eq!(node.settle(), []);
    let after = counts();
    Cost {
        requests: after.0 - before.0,
        doorbells: after.1 - before.1,
        told: after.2 - before.2,
    }
}

/// Credits of a receiver. Both ends are in this process, so the counters include the messages about credits: at most one for each half.
const PROMISED: u64 = 32;
/// Number of unsignaled writes that one signaled write confirms.
const GATHERED: u64 = 32;

/// `asked`: signaled writes that confirm unsignaled ones.
fn check(what: &str, cost: &Cost, (each, notices): (u64, u64), asked: u64, told: u64) {
    let Cost {
        requests,
        doorbells,
        told: signalled,
    } = *cost;
    println!("{what}: {requests} requests, {doorbells} doorbells, {signalled} told, of {MANY}");
    let said = notices.div_ceil(PROMISED / 2) + 2;
    // One more confirms the last writes.
    let more = said + asked + 1;
    for (counted, each) in [(requests, each), (doorbells, 1)] {
        let least = MANY * each;
        assert!(
            (least..=least + more).contains(&counted),
            "{what}: {counted}"
        );
    }
    assert!(signalled <= told, "{what}: {signalled}");
}

/// One operation in 16, and the last one.
const FEW: u64 = MANY / 16 + 1;

fn two(body: impl FnOnce(&Node, &PeerLink, &Node)) {
    alone_as(test_of(&body), "", &[], || {
        let (here, there) = (Node::open(), Node::open());
        let link = here.know(&there);
        body(&here, &link, &there);
    });
}

#[test]
fn a_put_with_notice_is_two_requests_and_a_doorbell() {
    two(|here, link, there| {
        // The first notice creates a lane.
        while !here.tell_quickly(link, 8, 0, 1) {}
        there.await_notice(0, 1);
        let quick = cost(
            here,
            |nth| {
                while !here.tell_quickly(link, 8, 0, nth + 1) {
                    here.transport.progress();
                }
            },
            |nth| there.await_notice(0, nth + 1),
        );
        // Messages about credits are unsignaled writes, too.
        let of_room = MANY / (PROMISED / 2) / 32 + 1;
        check("put_unsignaled", &quick, (2, MANY), 0, FEW + of_room);
        let flags = Flags::GATHERED | Flags::ORDERED;
        let gathered = cost(
            here,
            |nth| {
                here.insist(|| here.tell(link, 8, 64, nth, flags)).unwrap();
            },
            |nth| there.await_notice(64, nth),
        );
        // A notice that had to wait for credits needs a confirmation, too.
        let asked = 2 * MANY / GATHERED;
        // Writes without credits, because their message is late, are signaled one by one.
        check("put_notify", &gathered, (2, MANY), asked, MANY);
    });
}

#[test]
fn a_put_is_one_and_one() {
    two(|here, link, there| {
        let write = |nth: u32, len, flags| {
            here.word(0).store(nth.into(), Ordering::Relaxed);
            here.insist(|| here.put(link, 0, 8, len, flags)).unwrap();
        };
        let seen = |nth: u32| {
            until(&here.transport, || {
                there.word(8).load(Ordering::Acquire) == u64::from(nth)
            });
        };
        let flags = Flags::INLINE | Flags::GATHERED;
        // No more operations than the queue has places for.
        let seen_and_ended = |nth| {
            seen(nth);
            if u64::from(nth).is_multiple_of(GATHERED) {
                assert_eq!(here.settle(), []);
            }
        };
        let gathered = cost(here, |nth| write(nth, 8, flags), seen_and_ended);
        let asked = 2 * MANY / GATHERED;
        check("put, gathered", &gathered, (1, 0), asked, FEW + asked);
        // Each of these writes is signaled.
        let one_by_one = cost(
            here,
            |nth| write(nth, 4096, Flags::empty()),
            |_| {
                assert_eq!(here.settle(), []);
            },
        );
        check("put", &one_by_one, (1, 0), 0, MANY);
    });
}

#[test]
fn a_get_is_one_and_one() {
    two(|here, link, _| {
        let get = |_| {
            here.insist(|| here.get(link, 8, 64, 8)).unwrap();
        };
        let gets = cost(here, get, |_| assert_eq!(here.settle(), []));
        check("get", &gets, (1, 0), 0, MANY);
    });
}

/// Applies to devices with atomics that are atomic with respect to the CPU, and to devices that must be the only executor.
#[test]
fn an_atomic_operation_is_one_and_one() {
    let words = Rights::FULL | Rights::WORDS;
    for (atomics, rights, by_device) in [
        ("atomics=glob", Rights::FULL, true),
        ("atomics=hca", words | Rights::DEVICE, true),
        ("atomics=hca", words, false),
        ("atomics=none", words, false),
    ] {
        alone(atomics, || {
            let (here, there) = (Node::open(), Node::with(rights));
            let link = here.know(&there);
            let before = count("wr.fetch_add");
            let add = |_| {
                here.insist(|| here.add(&link, 64, 8, 1)).unwrap();
            };
            let adds = cost(&here, add, |_| assert_eq!(here.settle(), []));
            assert_eq!(there.word(64).load(Ordering::Acquire), MANY);
            assert_eq!(here.word(8).load(Ordering::Acquire), MANY - 1);
            let carried_out = count("wr.fetch_add") - before;
            assert_eq!(carried_out, if by_device { MANY } else { 0 });
            if by_device {
                check("add", &adds, (1, 0), 0, MANY);
            }
        });
    }
}

#[test]
fn memory_for_records_is_not_registered() {
    alone("", || {
        let transport = crate::node::open();
        for (rights, registered) in [(Rights::FULL, 1), (Rights::FULL | Rights::RECORDS, 0)] {
            let before = count("mr");
            let memory = transport.allocate(1 << 16, rights).unwrap();
            assert_eq!(count("mr") - before, registered, "{rights:?}");
            drop(memory);
        }
    });
}

#[test]
fn the_end_of_all_costs_one() {
    two(|here, link, there| {
        while !here.tell_quickly(link, 8, 0, 1) {}
        assert_eq!(here.settle(), []);
        for nth in 2..10 {
            let before = requests();
            assert!(here.tell_quickly(link, 8, 0, nth));
            assert_eq!(here.settle(), []);
            there.await_notice(0, nth);
            // The receiver may send credits.
            assert!(
                (2..=2 + 2).contains(&(requests() - before)),
                "{}",
                requests() - before
            );
        }
        let flags = Flags::INLINE | Flags::GATHERED;
        for count in [1, 2, 8] {
            let before = requests();
            for _ in 0..count {
                here.put(link, 0, 8, 8, flags).unwrap();
            }
            assert_eq!(here.settle(), []);
            assert!(requests() - before <= count + 1);
        }
    });
}

/// Checks that most rounds are exact. Messages about credits, and the thread that sends delayed writes, change the same counters.
fn mostly(mut exact: impl FnMut(u64) -> bool) {
    let times = (0..100).filter(|&round| exact(round)).count();
    assert!(times >= 50, "{times} of 100 times");
}

#[test]
fn what_is_held_leaves_by_one_doorbell() {
    two(|here, link, there| {
        const TOGETHER: u64 = 16;
        let flags = Flags::INLINE | Flags::GATHERED;
        mostly(|round| {
            let before = (count("doorbells"), requests());
            here.channel.begin_batch(&link.region);
            for nth in 0..TOGETHER as usize {
                here.word(8 * nth)
                    .store(round + nth as u64, Ordering::Relaxed);
                here.insist(|| here.put(link, 8 * nth, 8 * nth, 8, flags))
                    .unwrap();
            }
            let held = count("doorbells") == before.0;
            here.channel.end_batch(&link.region, false);
            let asked = (count("doorbells"), requests());
            let together = asked == (before.0 + 1, before.1 + TOGETHER);
            assert_eq!(here.settle(), []);
            for nth in 0..TOGETHER as usize {
                let there = there.word(8 * nth).load(Ordering::Acquire);
                assert_eq!(there, round + nth as u64);
            }
            held && together
        });
    });
}

#[test]
fn who_waits_waits_for_nothing_that_is_held() {
    two(|here, link, there| {
        for round in 1..100 {
            here.channel.begin_batch(&link.region);
            here.word(0).store(round, Ordering::Relaxed);
            let flags = Flags::INLINE | Flags::GATHERED;
            here.insist(|| here.put(link, 0, 0, 8, flags)).unwrap();
            assert_eq!(here.settle(), []);
            assert_eq!(there.word(0).load(Ordering::Acquire), round);
            here.channel.end_batch(&link.region, false);
        }
    });
}

/// Puts a word within a batch that announces more operations.
fn put_and_promise(here: &Node, link: &PeerLink, nth: usize, value: u64, flags: Flags) {
    here.word(8 * nth).store(value, Ordering::Relaxed);
    here.channel.begin_batch(&link.region);
    here.insist(|| here.put(link, 8 * nth, 8 * nth, 8, flags))
        .unwrap();
    here.channel.end_batch(&link.region, true);
}

#[test]
fn what_stays_leaves_with_what_comes_next() {
    two(|here, link, there| {
        const TOGETHER: usize = 16;
        for flags in [Flags::empty(), Flags::INLINE | Flags::GATHERED] {
            mostly(|round| {
                let before = (count("doorbells"), requests());
                let value = |nth: usize| round + nth as u64;
                for nth in 1..TOGETHER {
                    put_and_promise(here, link, nth, value(nth), flags);
                }
                let stayed = count("doorbells") == before.0;
                here.word(0).store(value(0), Ordering::Relaxed);
                here.insist(|| here.put(link, 0, 0, 8, flags)).unwrap();
                let after = (before.0 + 1, before.1 + TOGETHER as u64);
                let together = (count("doorbells"), requests()) == after;
                assert_eq!(here.settle(), []);
                for nth in 0..TOGETHER {
                    assert_eq!(there.word(8 * nth).load(Ordering::Acquire), value(nth));
                }
                stayed && together
            });
        }
    });
}

#[test]
fn what_stays_leaves_when_somebody_waits() {
    two(|here, link, there| {
        for round in 1..100 {
            put_and_promise(here, link, 0, round, Flags::empty());
            // A wait for any operation sends it.
            until(&here.transport, || {
                there.word(0).load(Ordering::Acquire) == round
            });
            put_and_promise(here, link, 1, round, Flags::empty());
            assert_eq!(here.settle(), []);
            assert_eq!(there.word(8).load(Ordering::Acquire), round);
            // No operation follows.
            put_and_promise(here, link, 2, round, Flags::empty());
            here.channel.begin_batch(&link.region);
            here.channel.end_batch(&link.region, false);
            while there.word(16).load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
            assert_eq!(here.settle(), []);
        }
    });
}

#[test]
fn more_than_are_kept_leave_at_once() {
    two(|here, link, _| {
        mostly(|round| {
            let before = (count("doorbells"), requests());
            for nth in 0..100 {
                put_and_promise(here, link, nth, round, Flags::empty());
            }
            let after = (count("doorbells"), requests());
            // Fewer than 32 stay.
            assert!(after.1 > before.1 + 68, "{before:?}, then {after:?}");
            assert_eq!(here.settle(), []);
            after == (before.0 + 3, before.1 + 96)
        });
    });
}

#[test]
fn what_stays_ends_with_its_peer() {
    alone("", || {
        let here = Node::open();
        for _ in 0..20 {
            let there = Node::open();
            let link = here.know(&there);
            here.works(&link);
            put_and_promise(&here, &link, 0, 1, Flags::empty());
            drop(there);
            // The put is complete, or has failed.
            here.settle();
            here.channel.begin_batch(&link.region);
            here.channel.end_batch(&link.region, true);
        }
        // It does not delay operations to other peers.
        let there = Node::open();
        let link = here.know(&there);
        here.works(&link);
    });
}
