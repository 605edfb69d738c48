//! The end of operations: each ends exactly once, with the right result, in polling and in non-polling processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Rig, eventually, flags_if, import, read};
use unipgas_chaos::{Chaos, ChaosConfig};
use unipgas_core::inbox::{self, InboxLayout, Record};
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::op::{Completion, Flags, Inbox, Outcome};
use unipgas_core::transport::{Life, Transport};
use unipgas_core::{Deadline, Engine, Error, Rights};

fn pending_always(seed: u64) -> ChaosConfig {
    ChaosConfig {
        at_once_percent: 0,
        ..ChaosConfig::seeded(seed)
    }
}

#[test]
fn every_operation_ends_exactly_once_whoever_polls() {
    const THREADS: usize = 4;
    const OPS: usize = 1500;
    for layers in [1, 2] {
        let rig = Rig::new(ChaosConfig::seeded(5), layers, 1 << 16);
        let reports: Vec<_> = (0..THREADS * OPS).map(|_| AtomicU32::new(0)).collect();
        let expected: Vec<_> = (0..THREADS * OPS).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (rig, reports, expected) = (&rig, &reports, &expected);
                let count = |c: Completion| {
                    assert_eq!(c.result, Ok(()));
                    reports[c.context as usize].fetch_add(1, Ordering::Relaxed);
                };
                scope.spawn(move || {
                    for i in 0..OPS {
                        let context = thread * OPS + i;
                        let place = context * 8;
                        let flags = flags_if(i % 7 == 0, Flags::ORDERED);
                        let outcome = rig.put(place % 4096, place, 8, flags, context as u64);
                        if outcome.unwrap() == Outcome::Pending {
                            expected[context].store(1, Ordering::Relaxed);
                        }
                        if i % 3 == 0 {
                            rig.endpoint.poll(&mut { count });
                        }
                    }
                    eventually("the operations end", || {
                        rig.endpoint.poll(&mut { count });
                        rig.endpoint.pending() == 0
                    });
                });
            }
        });
        let total: u32 = expected.iter().map(|e| e.load(Ordering::Relaxed)).sum();
        assert!(total > 0 && (total as usize) < THREADS * OPS, "{total}");
        for (context, (seen, wanted)) in reports.iter().zip(&expected).enumerate() {
            let (seen, wanted) = (seen.load(Ordering::Relaxed), wanted.load(Ordering::Relaxed));
            assert_eq!(seen, wanted, "operation {context}, {layers} layers");
        }
    }
}

#[test]
fn many_threads_add_up() {
    let rig = Rig::new(ChaosConfig::seeded(9), 2, 4096);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    rig.endpoint.fetch_add(&rig.issuer, rig.at(0), 1).unwrap();
                }
            });
        }
    });
    assert_eq!(rig.bytes(0, 8), 300u64.to_ne_bytes());
}

#[test]
fn a_region_that_goes_meanwhile_ends_the_operation_with_an_error() {
    let mut late = 0;
    for seed in 0..50 {
        let mut rig = Rig::new(pending_always(seed), 1 + seed as usize % 2, 4096);
        assert_eq!(rig.put(0, 0, 64, Flags::empty(), 77), Ok(Outcome::Pending));
        drop(rig.target.take());
        let ended = rig.drain();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].context, 77);
        // The progress thread may have been faster than the owner.
        match &ended[0].result {
            Err(Error::StaleRegion) => late += 1,
            other => assert_eq!(other, &Ok(())),
        }
        let refused = rig.put(0, 0, 64, Flags::empty(), 78);
        assert_eq!(refused, Err(Error::StaleRegion));
        assert_eq!(rig.endpoint.pending(), 0);
    }
    assert!(late > 0);
}

#[test]
fn drain_reports_failures_that_come_later() {
    let found = (0..50).any(|seed| {
        let mut rig = Rig::new(pending_always(seed), 1, 4096);
        rig.endpoint.claim(1).unwrap();
        rig.put(0, 0, 64, Flags::empty(), 0).unwrap();
        drop(rig.target.take());
        let result = rig
            .endpoint
            .drain(&rig.issuer, Deadline::Never, &mut || Ok(()));
        result == Err(Error::StaleRegion)
    });
    assert!(found);
}

#[test]
fn operations_go_on_while_nobody_polls() {
    let rig = Rig::new(pending_always(3), 1, 4096);
    rig.fill(0, &[9; 512]);
    for i in 0..20 {
        let flags = flags_if(i % 2 == 0, Flags::ORDERED);
        rig.put(0, i * 64, 64, flags, 0).unwrap();
    }
    rig.notify(2048, 1, Flags::ORDERED, 0).unwrap();
    eventually("the notice arrives", || rig.word(2048) == 1);
    assert_eq!(rig.bytes(0, 64 * 20), [9; 64 * 20]);
    assert_eq!(rig.endpoint.pending(), 21, "carried out, but not reported");
    assert_eq!(rig.drain().len(), 21);
}

#[test]
fn a_parked_waiter_is_woken_by_the_progress_thread() {
    let rig = Rig::new(pending_always(3), 1, 4096);
    let bell = rig.issuer.transport().bell();
    // Longer than any operation takes.
    let slice = Duration::from_secs(300);
    for _ in 0..10 {
        let listens = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let listening = bell.listen();
                listens.wait();
                let start = Instant::now();
                listening.sleep(slice);
                assert!(start.elapsed() < slice);
            });
            listens.wait();
            rig.put(0, 0, 64, Flags::empty(), 0).unwrap();
        });
        assert_eq!(rig.drain().len(), 1);
    }
}

#[test]
fn dropping_and_leaving_carry_out_what_is_pending() {
    for seed in 0..50 {
        let net = Arc::new(LoopbackNet::default());
        let config = ChaosConfig {
            // Far beyond what the progress thread would do in the meantime.
            max_delay_polls: 1_000_000,
            ..pending_always(seed)
        };
        let chaos: Arc<dyn Transport> =
            Arc::new(Chaos::wrap(Arc::new(Loopback::join(&net)), config));
        let issuer = Engine::new(vec![chaos.clone()]).unwrap();
        let owner = Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap();
        let target = owner.allocate(4096, Rights::FULL).unwrap();
        let remote = import(&issuer, &owner, &target);
        let endpoint = issuer.endpoint(10).unwrap();
        let source = [7u8; 100];
        let src = unipgas_core::Local {
            ptr: source.as_ptr().cast_mut(),
            desc: 0,
        };
        for i in 0..10 {
            let dst = remote.at(i * 100);
            // SAFETY:
            // - the source lives until the endpoint is gone, and is only read.
            unsafe { endpoint.put(src, dst, 100, Flags::empty(), 0) }.unwrap();
        }
        if seed % 2 == 0 {
            issuer.leave();
            assert_eq!(read(&target, 0, 1000), [7; 1000], "left, seed {seed}");
            assert!(
                !peer_alive(&owner, &issuer),
                "the backend below has left, too"
            );
        } else {
            drop(endpoint);
            assert_eq!(read(&target, 0, 1000), [7; 1000], "dropped, seed {seed}");
        }
    }
}

fn peer_alive(seen_by: &Engine, who: &Engine) -> bool {
    seen_by.connect(&who.address().unwrap()).unwrap().life() == Life::Alive
}

/// Also if the backend below completes later.
#[test]
fn the_owner_of_a_full_inbox_is_told() {
    for layers in 1..=2 {
        let len = InboxLayout::new(4).unwrap().size();
        let rig = Rig::new(pending_always(3), layers, len);
        let words = rig.owner.allocate(4096, Rights::FULL).unwrap();
        let word = words.word(0).unwrap();
        let remote = rig.import(&words);
        // SAFETY:
        // - the region is long enough, and new.
        unsafe { inbox::initialise(rig.target.as_ref().unwrap().base(), 4) }.unwrap();
        let deliver = |value| {
            let inbox = Inbox {
                first: &rig.remote,
                second: None,
                overflow: Some(remote.at(0)),
            };
            let record = Record {
                value,
                ..Record::default()
            };
            let (flags, context) = (Flags::empty(), value);
            rig.endpoint.deliver(inbox, record, flags, context).unwrap();
        };
        (0..4).for_each(deliver);
        assert!(rig.drain().iter().all(|ended| ended.result.is_ok()));
        assert_eq!(word.load(Ordering::Acquire), 0);
        deliver(4);
        assert_eq!(rig.drain()[0].result, Err(Error::InboxFull));
        assert_eq!(word.load(Ordering::Acquire), 1);
    }
}

#[test]
fn what_is_wrapped_shines_through() {
    let net = Arc::new(LoopbackNet::default());
    let inner = Arc::new(Loopback::join(&net));
    let chaos = Chaos::wrap(inner.clone(), ChaosConfig::seeded(1));
    assert_eq!(chaos.tag(), inner.tag());
    assert_eq!(chaos.address(), inner.address());
    assert!(std::ptr::eq(chaos.bell(), inner.bell()));
    assert!(chaos.capabilities().asynchronous && !inner.capabilities().asynchronous);
    assert!(chaos.capabilities().registers_user_memory);
}
