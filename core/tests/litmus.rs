//! Litmus tests of the memory orderings that the engine relies on. Two threads play processes and run the engine's functions. In each round
//! both begin at about the same random time, and a forbidden outcome must never occur.
//!
//! x86-64 and emulators on it reorder little: a failed round there means that the engine is wrong on all machines. For other processors,
//! comments in the code derive the orderings, and loom models explore the executions that C11 allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use unipgas_core::bell::{Bell, barriers_available};
use unipgas_core::biased::Biased;
use unipgas_core::inbox::{InboxLayout, InboxReader, InboxWriter, Record, initialise};
use unipgas_core::lines::{last_word, rest_of_line};
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::steps::Steps;
use unipgas_core::{
    Endpoint, Engine, Flags, Local, Notice, Outcome, Region, Remote, RemoteRegion, Rights,
};

const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };
const LEN: usize = 8192;
/// Offset of the word that announces other data.
const TOLD: usize = 4096;

/// A barrier at which two threads begin each round.
#[derive(Default)]
struct Meeting([AtomicU64; 2]);

impl Meeting {
    fn begin(&self, me: usize, round: u64, random: &mut u64) {
        self.0[me].store(round, Ordering::SeqCst);
        let mut looks = 0;
        while self.0[1 - me].load(Ordering::SeqCst) < round {
            looks += 1;
            if looks % 64 == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        for _ in 0..*random % 48 {
            std::hint::spin_loop();
        }
    }
}

/// Runs both sides of all rounds. When one side begins a round, the other may still be at the end of the round before.
fn race(first: impl Fn(u64) + Sync, second: impl Fn(u64) + Sync) {
    let meeting = Meeting::default();
    let play = |me: usize, side: &(dyn Fn(u64) + Sync)| {
        let mut random = 0x9e37_79b9_7f4a_7c15 + me as u64;
        for round in 1..=ROUNDS {
            meeting.begin(me, round, &mut random);
            side(round);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(0, &first));
        play(1, &second);
    });
}

/// Two processes: one accesses the memory of the other.
struct Pair {
    /// The endpoint of the accessing process.
    endpoint: Endpoint,
    there: RemoteRegion,
    _actor: Arc<Engine>,
    /// The accessed region, of the owner.
    memory: Region,
    _owner: Arc<Engine>,
}

impl Pair {
    fn new() -> Self {
        let net = Arc::new(LoopbackNet::default());
        let engine = || Arc::new(Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap());
        let (actor, owner) = (engine(), engine());
        let memory = owner.allocate(LEN, Rights::FULL).unwrap();
        let connection = actor.connect(&owner.address().unwrap()).unwrap();
        Pair {
            endpoint: actor.endpoint(u32::MAX).unwrap(),
            there: connection.import(&memory.key()).unwrap(),
            _actor: actor,
            memory,
            _owner: owner,
        }
    }

    fn at(&self, offset: usize) -> Remote<'_> {
        let region = &self.there;
        Remote { region, offset }
    }

    fn notice(&self, round: u64) -> Notice<'_> {
        Notice {
            slot: self.at(TOLD),
            value: round as u32,
        }
    }

    fn put(&self, offset: usize, words: &[u64], flags: Flags) {
        // SAFETY:
        // - the words are locals, and the operation ends within the call (asserted below).
        let put = unsafe {
            let len = size_of_val(words);
            self.endpoint
                .put(local(words), self.at(offset), len, flags, 0)
        };
        assert_eq!(put, Ok(Outcome::Complete));
    }

    /// The words at `offset` in the owner's region.
    fn words(&self, offset: usize, len: usize) -> &[AtomicU64] {
        assert!(offset + len <= LEN && offset.is_multiple_of(8));
        // SAFETY:
        // - aligned words of the region, which lives as long as self.
        unsafe {
            std::slice::from_raw_parts(self.memory.base().add(offset).cast(), len.div_ceil(8))
        }
    }

    fn told(&self) -> u64 {
        self.memory
            .word(TOLD)
            .unwrap()
            .load(Ordering::Acquire)
            .into()
    }
}

fn local(words: &[u64]) -> Local {
    Local::unregistered(words.as_ptr().cast_mut().cast())
}

/// Checks that a reader of a round's number also reads the data written before it.
fn assert_since(words: &[AtomicU64], round: u64, shape: &str) {
    let old = words
        .iter()
        .position(|word| word.load(Ordering::Relaxed) < round);
    assert_eq!(old, None, "{shape}: a word is older than round {round}");
}

/// A shape of message passing. `write`: the writer's actions in a round; it stores the round's number to all words of `data`. `read`: the reader's
/// actions; it returns a number, and the words of `data` must then have this number at least.
struct Shape {
    name: &'static str,
    write: fn(&Pair, u64),
    read: fn(&Pair) -> u64,
    data: (usize, usize),
}

const DATA: [u64; 128] = [0; 128];

/// Some shapes send their words inline, others copy them by memmove.
const SHAPES: &[Shape] = &[
    Shape {
        name: "a put with its notice",
        write: |pair, round| {
            let words = [round; 5];
            // SAFETY:
            // - the words are locals, and the operation ends within the call (asserted below).
            let put = unsafe {
                let (src, dst, notice) = (local(&words), pair.at(0), pair.notice(round));
                pair.endpoint.fast_path().put_notify(src, dst, 40, notice)
            };
            assert!(put);
        },
        read: Pair::told,
        data: (0, 40),
    },
    Shape {
        name: "a long put, and a notice behind it",
        write: |pair, round| {
            pair.put(0, &DATA.map(|_| round), Flags::empty());
            assert!(pair.endpoint.fast_path().notify(pair.notice(round)));
        },
        read: Pair::told,
        data: (0, size_of_val(&DATA)),
    },
    Shape {
        name: "a put, and an ordered one behind it",
        write: |pair, round| {
            pair.put(0, &[round; 6], Flags::empty());
            pair.put(2048, &[round; 6], Flags::ORDERED);
        },
        // Any word of the second put may arrive first.
        read: |pair| {
            let words = pair.words(2048, 48).iter();
            let last = words.map(|word| word.load(Ordering::Relaxed)).max();
            fence(Ordering::Acquire);
            last.unwrap()
        },
        data: (0, 48),
    },
    Shape {
        name: "a put, and one in order on the fast path",
        write: |pair, round| {
            let words = [round; 6];
            let fast = pair.endpoint.fast_path();
            // SAFETY:
            // - the words are locals, and the operations end within the calls (asserted below).
            let put = unsafe {
                fast.put(local(&words), pair.at(0), 48)
                    && fast.put_in_order(local(&words), pair.at(2048), 48)
            };
            assert!(put);
        },
        read: |pair| {
            let words = pair.words(2048, 48).iter();
            let last = words.map(|word| word.load(Ordering::Relaxed)).max();
            fence(Ordering::Acquire);
            last.unwrap()
        },
        data: (0, 48),
    },
    Shape {
        name: "a put, and an addition behind it",
        write: |pair, round| {
            pair.put(0, &[round; 6], Flags::empty());
            let word = pair.endpoint.fast_path().value(pair.at(TOLD)).unwrap();
            word.fetch_add(1, Ordering::AcqRel);
        },
        read: |pair| pair.words(TOLD, 8)[0].load(Ordering::Acquire),
        data: (0, 48),
    },
    Shape {
        name: "a line that ends last",
        write: |pair, round| {
            let fast = pair.endpoint.fast_path();
            assert!(fast.put_line(&[round; 8], pair.at(0)));
        },
        read: |pair| pair.words(56, 8)[0].load(Ordering::Acquire),
        data: (0, 64),
    },
];

#[test]
fn whoever_sees_what_comes_last_has_what_came_before() {
    for shape in SHAPES {
        let pair = Pair::new();
        race(
            |round| (shape.write)(&pair, round),
            |round| {
                // The last look sees this round or the round before.
                for _ in 0..20 {
                    let seen = (shape.read)(&pair);
                    assert!(seen <= round);
                    let (offset, len) = shape.data;
                    assert_since(pair.words(offset, len), seen, shape.name);
                    if seen == round {
                        break;
                    }
                    std::hint::spin_loop();
                }
            },
        );
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "a race by design: a poller reads a line during its copy"
)]
fn whoever_sees_the_end_of_a_line_has_the_line() {
    for len in [16, 120, 128, 1000] {
        for offset in [0, 200] {
            let pair = Pair::new();
            race(
                |round| pair.put(offset, &vec![round; len / 8], Flags::LINES),
                |_| {
                    let mut at = offset;
                    while at < offset + len {
                        let end = (offset + len).min(at + rest_of_line(at));
                        let words = pair.words(at, end - at);
                        assert_eq!(last_word(at, end - at), 8);
                        let seen = words[words.len() - 1].load(Ordering::Acquire);
                        assert_since(words, seen, "a line");
                        at = end;
                    }
                },
            );
        }
    }
}

/// Gets of one process read in order: after a get of the announcement, the next get reads the data.
#[test]
#[cfg_attr(miri, ignore = "a race by design: gets look while the owner writes")]
fn gets_see_what_is_there_in_their_order() {
    let pair = Pair::new();
    race(
        |_| {
            let (mut told, mut data) = ([0u64], [0u64; 6]);
            let fast = pair.endpoint.fast_path();
            // SAFETY:
            // - the words are locals, and the operations end within the calls (asserted below).
            let got = unsafe {
                fast.get(local_mut(&mut told), pair.at(TOLD), 8)
                    && fast.get(local_mut(&mut data), pair.at(0), 48)
            };
            assert!(
                got && data.iter().all(|word| *word >= told[0]),
                "{told:?} {data:?}"
            );
        },
        |round| {
            for word in pair.words(0, 48) {
                word.store(round, Ordering::Relaxed);
            }
            pair.words(TOLD, 8)[0].store(round, Ordering::Release);
        },
    );
}

fn local_mut(words: &mut [u64]) -> Local {
    Local::unregistered(words.as_mut_ptr().cast())
}

/// Store buffering: the ringing thread sees the sleeper, or the sleeper sees the data of the ring.
#[test]
fn nobody_sleeps_through_a_ring() {
    if let Err(missing) = barriers_available() {
        eprintln!("left out: {missing}");
        return;
    }
    let (bell, flag, over) = (Bell::default(), AtomicU64::new(0), AtomicU64::new(0));
    race(
        |round| {
            flag.store(round, Ordering::Release);
            bell.ring_if_heard();
            over.store(round, Ordering::Release);
        },
        |round| {
            let listening = bell.listen();
            let seen = flag.load(Ordering::Acquire) == round;
            while over.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
            assert!(seen || listening.sleep(Duration::ZERO), "round {round}");
        },
    );
}

/// Store buffering: the owner of a lock sees that the lock is shared, or the other thread sees the owner inside.
#[test]
fn one_is_inside_a_lock_that_becomes_shared() {
    let inside = AtomicBool::new(false);
    let work = |lock: &Biased<()>| {
        let _guard = lock.lock();
        assert!(!inside.swap(true, Ordering::Relaxed), "two are inside");
        inside.store(false, Ordering::Relaxed);
    };
    for round in 0..ROUNDS / 20 {
        let lock = Biased::new(());
        let begin = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.store(1, Ordering::Release);
                for _ in 0..round % 7 {
                    std::hint::spin_loop();
                }
                work(&lock);
            });
            while begin.load(Ordering::Acquire) == 0 {
                work(&lock);
            }
            (0..20).for_each(|_| work(&lock));
        });
    }
}

/// Store buffering: one thread posts a command, another allows it; exactly one of both starts it.
#[test]
fn a_command_is_started_once_by_one_of_both() {
    let steps = Steps::new();
    let started = AtomicU64::new(0);
    let run = |me| {
        steps.run(
            me,
            |_| false,
            |_| {
                started.fetch_add(1, Ordering::Relaxed);
                std::ops::ControlFlow::Continue(())
            },
        );
    };
    let ended = Meeting::default();
    let both = |me: usize, round: u64| {
        // The next round begins after both threads have read the counter.
        ended.begin(me, 2 * round, &mut 1);
        assert_eq!(started.load(Ordering::Relaxed), round);
        ended.begin(me, 2 * round + 1, &mut 1);
    };
    race(
        |round| {
            steps.post();
            run(1);
            both(0, round);
        },
        |round| {
            steps.allow(1);
            run(2);
            both(1, round);
        },
    );
}

/// On a ring that is full most of the time, records arrive complete, once and in order, after the data written before them.
#[test]
fn a_record_comes_with_what_was_written_before_it() {
    let pair = Pair::new();
    let len = InboxLayout::new(2).unwrap().size();
    let base = pair.memory.base();
    assert!(len <= TOLD);
    let data = AtomicU64::new(0);
    // SAFETY:
    // - zeroed memory of the region, page-aligned and long enough, which stays; there is one reader.
    let (writer, reader) = unsafe {
        initialise(base, 2).unwrap();
        (
            InboxWriter::attach_as(base, len, 1).unwrap(),
            InboxReader::attach(base, len).unwrap(),
        )
    };
    let state = parking_lot::Mutex::new((reader, 0));
    let lost = AtomicU64::new(0);
    race(
        |round| {
            data.store(round, Ordering::Relaxed);
            let record = Record {
                source: round,
                kind: round as u32,
                len: round as u32,
                value: !round,
                offset: round,
            };
            if writer.push(record).is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        },
        |round| {
            let (reader, last) = &mut *state.lock();
            if round % 3 == 0 {
                return;
            }
            while let Some(record) = reader.take() {
                let number = record.source;
                assert!(number > *last && data.load(Ordering::Relaxed) >= number);
                assert_eq!((record.value, record.offset), (!number, number));
                assert_eq!((record.kind, record.len), (number as u32, number as u32));
                *last = number;
            }
        },
    );
    assert!(lost.load(Ordering::Relaxed) < ROUNDS);
}
