//! All accesses of one process to memory of another one. Two threads play the processes. Each then reads its own memory by plain loads, as
//! programs do: Miri finds a read that no synchronisation precedes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use unipgas_base::issue_totals::{IssueTotals, Issues};
use unipgas_base::{AtomicOp, AtomicType, Deadline, Rights};
use unipgas_engine::loopback::{Loopback, LoopbackNet};
use unipgas_engine::op::AtomicRequest;
use unipgas_engine::{
    Address, Endpoint, Engine, Flags, Local, Notice, NotificationArray, Outcome, Region, RegionKey,
    Remote, RemoteRegion,
};

const LEN: usize = 4096;
const ROUNDS: u32 = if cfg!(miri) { 8 } else { 1000 };

/// One of two: its memory, and the other one's.
struct Side {
    endpoint: Endpoint,
    data: Region,
    notes: NotificationArray,
    their_data: RemoteRegion,
    their_notes: RemoteRegion,
    engine: Arc<Engine>,
}

type Card = (Address, RegionKey, RegionKey);

/// Runs `first` and `second` in a thread each.
fn two(first: impl FnOnce(&Side) + Send, second: impl FnOnce(&Side) + Send) {
    let net = Arc::new(LoopbackNet::default());
    let cards: [Mutex<Option<Card>>; 2] = Default::default();
    let barrier = std::sync::Barrier::new(2);
    let (net, cards, barrier) = (&net, &cards, &barrier);
    let run = |me: usize, body: Box<dyn FnOnce(&Side) + Send + '_>| {
        let engine = Arc::new(Engine::new(vec![Arc::new(Loopback::join(net))]).unwrap());
        let data = engine.allocate(LEN, Rights::FULL).unwrap();
        let notes = engine.allocate(LEN, Rights::FULL).unwrap();
        let notes = NotificationArray::new(notes, 8).unwrap();
        let card = (engine.address().unwrap(), data.key(), notes.key());
        *cards[me].lock() = Some(card);
        barrier.wait();
        let (address, data_key, notes_key) = cards[1 - me].lock().unwrap();
        let connection = engine.connect(&address).unwrap();
        let side = Side {
            endpoint: engine.endpoint(1 << 20).unwrap(),
            their_data: connection.import(&data_key).unwrap(),
            their_notes: connection.import(&notes_key).unwrap(),
            data,
            notes,
            engine,
        };
        body(&side);
        barrier.wait();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(0, Box::new(first)));
        scope.spawn(|| run(1, Box::new(second)));
    });
}

impl Side {
    fn there(&self, offset: usize) -> Remote<'_> {
        let region = &self.their_data;
        Remote { region, offset }
    }

    fn notice(&self, index: usize) -> Notice<'_> {
        let region = &self.their_notes;
        Notice {
            slot: region.at(4 * index),
            value: 1,
        }
    }

    fn wait(&self, index: usize) {
        let late = Deadline::after(std::time::Duration::from_secs(600));
        let found = self
            .notes
            .wait_some(&self.engine, index, 1, late, &mut || Ok(()), || ());
        assert_eq!(found, Ok(index));
        assert_eq!(self.notes.take(index), Ok(1));
    }

    /// This process's memory, which no other thread accesses now.
    #[expect(clippy::mut_from_ref, reason = "programs use memory by its address")]
    fn own(&self) -> &mut [u8] {
        // SAFETY:
        // - the region's bytes; each test excludes concurrent accesses.
        unsafe { std::slice::from_raw_parts_mut(self.data.base(), LEN) }
    }
}

fn local(bytes: &mut [u8]) -> Local {
    Local::unregistered(bytes.as_mut_ptr())
}

/// How data and a notice behind it leave: both at once or one by one, by the slow or the fast path.
fn send(side: &Side, way: u32, bytes: &mut [u8]) {
    let (src, dst, len, notice) = (local(bytes), side.there(64), bytes.len(), side.notice(0));
    let endpoint = &side.endpoint;
    let fast = endpoint.fast_path();
    // SAFETY (all below):
    // - the bytes are there during the calls, which are over when they return.
    match way {
        0 => {
            // SAFETY:
            // - see above.
            let put = unsafe { endpoint.put_notify(src, dst, len, notice, Flags::empty(), 0) };
            assert_eq!(put, Ok(Outcome::Complete));
        }
        1 => {
            // SAFETY:
            // - see above.
            let put = unsafe { endpoint.put(src, dst, len, Flags::LINES, 0) };
            assert_eq!(put, Ok(Outcome::Complete));
            let told = endpoint.notify(notice, Flags::ORDERED, 0);
            assert_eq!(told, Ok(Outcome::Complete));
        }
        2 => {
            // SAFETY:
            // - see above.
            assert!(unsafe { fast.put_notify(src, dst, len, notice) });
        }
        _ => {
            // SAFETY:
            // - see above.
            assert!(unsafe { fast.put(src, dst, len) } && fast.notify(notice));
        }
    }
}

#[test]
fn whoever_has_seen_a_notice_has_the_data_before_it() {
    let lengths = [1, 8, 13, 64, 200, 1000];
    let turns = || (0..ROUNDS).flat_map(|round| lengths.map(|len| (round, len)));
    two(
        |side| {
            for (round, len) in turns() {
                let mut bytes = vec![round as u8; len];
                send(side, round % 4, &mut bytes);
                side.wait(1);
            }
        },
        |side| {
            for (round, len) in turns() {
                side.wait(0);
                assert!(side.own()[64..][..len].iter().all(|b| *b == round as u8));
                // The next one may come.
                side.own()[64..][..len].fill(!0);
                let told = side.endpoint.notify(side.notice(1), Flags::empty(), 0);
                assert_eq!(told, Ok(Outcome::Complete));
            }
        },
    );
}

#[test]
fn whoever_is_allowed_to_gets_what_was_stored_before() {
    two(
        |side| {
            for round in 0..ROUNDS {
                side.own()[..100].fill(round as u8);
                assert!(side.endpoint.fast_path().notify(side.notice(0)));
                side.wait(1);
            }
        },
        |side| {
            for round in 0..ROUNDS {
                side.wait(0);
                let mut bytes = [!0; 100];
                let (dst, src) = (local(&mut bytes), side.there(0));
                let got = match round % 2 {
                    // SAFETY:
                    // - the bytes are there during the call, which is over when it returns.
                    0 => unsafe { side.endpoint.fast_path().get(dst, src, 100) },
                    // SAFETY:
                    // - as above.
                    _ => unsafe {
                        let got = side.endpoint.get(dst, src, 100, Flags::empty(), 0);
                        got == Ok(Outcome::Complete)
                    },
                };
                assert!(got && bytes == [round as u8; 100]);
                assert!(side.endpoint.fast_path().notify(side.notice(1)));
            }
        },
    );
}

/// One adds to a word of the other one's by every way, which adds to it itself by the CPU's atomics.
#[test]
fn additions_of_both_are_counted() {
    let add = |side: &Side, fast: bool| {
        let (mut before, one) = (0u64, 1u64);
        let request = AtomicRequest {
            op: AtomicOp::Sum,
            ty: AtomicType::U64,
            count: 1,
            operand: (&raw const one).cast(),
            compare: std::ptr::null(),
            result: (&raw mut before).cast(),
        };
        // SAFETY:
        // - operand and result are there during the call, which is over when it returns.
        let done = unsafe {
            match fast {
                true => side.endpoint.fast_path().atomic(side.there(0), &request) == Some(Ok(())),
                false => {
                    let there = side.there(0);
                    let added = side.endpoint.atomic(there, &request, Flags::empty(), 0);
                    added == Ok(Outcome::Complete)
                }
            }
        };
        assert!(done);
        before
    };
    two(
        |side| {
            // SAFETY:
            // - the region's first word, which is aligned; all accesses are atomic.
            let word = unsafe { AtomicU64::from_ptr(side.data.base().cast()) };
            for _ in 0..ROUNDS {
                word.fetch_add(1, Ordering::Relaxed);
            }
            side.wait(0);
            let sum = side.own()[..8].try_into().unwrap();
            assert_eq!(u64::from_ne_bytes(sum), 2 * u64::from(ROUNDS));
        },
        |side| {
            for round in 0..ROUNDS {
                assert!(add(side, round % 2 == 0) >= u64::from(round));
            }
            assert!(side.endpoint.fast_path().notify(side.notice(0)));
        },
    );
}

/// As queues of GASPI post.
#[test]
fn postings_of_an_endpoint_s_owner_arrive() {
    two(
        |side| {
            side.endpoint.own();
            let mut bytes = [7; 8];
            for _ in 0..ROUNDS {
                while side
                    .endpoint
                    .post_fast()
                    .map(|posting| posting.end(false, 0))
                    .is_none()
                {
                    side.endpoint.is_look_due();
                }
                let posting = side.endpoint.post_fast().unwrap();
                let fast = posting.fast_path();
                // SAFETY:
                // - the bytes are there during the call, which is over when it returns.
                let done = unsafe { fast.put(local(&mut bytes), side.there(8), 8) };
                assert!(posting.end(done, 8));
            }
            assert_eq!(side.endpoint.posted(), ROUNDS);
            let (operations, bytes) = (ROUNDS.into(), 8 * u64::from(ROUNDS));
            assert_eq!(side.endpoint.issued(), IssueTotals { operations, bytes });
            assert!(side.endpoint.fast_path().notify(side.notice(0)));
        },
        |side| {
            side.wait(0);
            assert_eq!(side.own()[8..16], [7; 8]);
        },
    );
}
