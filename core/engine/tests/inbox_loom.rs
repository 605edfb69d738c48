//! The inbox under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test inbox_loom`.
#![cfg(loom)]

#[path = "../../base/tests/loom_kit/mod.rs"]
mod loom_kit;

use std::alloc::{Layout, alloc_zeroed};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use loom_kit::{beside, model};
use unipgas_base::Error;
use unipgas_engine::inbox::{InboxLayout, InboxReader, InboxWriter, Record, initialise};

/// A fresh inbox in leaked memory (an execution of the model is short, and loom's objects must not outlive it by a free).
struct Inbox {
    at: *mut u8,
    len: usize,
}

// SAFETY:
// - the memory is accessed through the inbox's types only.
unsafe impl Send for Inbox {}
// SAFETY:
// - as above.
unsafe impl Sync for Inbox {}

impl Inbox {
    fn new(capacity: usize) -> Arc<Self> {
        let len = InboxLayout::new(capacity).unwrap().size();
        // SAFETY:
        // - the size is not zero; the memory has the size and alignment of the layout, and is never freed.
        let at = unsafe {
            let at = alloc_zeroed(Layout::from_size_align(len, InboxLayout::ALIGN).unwrap());
            initialise(at, capacity).unwrap();
            at
        };
        Arc::new(Self { at, len })
    }

    fn writer(&self, producer: u32) -> InboxWriter {
        // SAFETY:
        // - the memory is never freed.
        unsafe { InboxWriter::attach_as(self.at, self.len, producer).unwrap() }
    }

    fn reader(&self) -> InboxReader {
        // SAFETY:
        // - the memory is never freed; each model makes one reader.
        unsafe { InboxReader::attach(self.at, self.len).unwrap() }
    }
}

fn record(source: u64, value: u64) -> Record {
    Record {
        source,
        kind: 1,
        len: 2,
        value,
        offset: source << 8 | value,
    }
}

fn push(writer: &InboxWriter, record: Record) {
    while let Err(error) = writer.push(record) {
        assert_eq!(error, Error::InboxFull);
        thread::yield_now();
    }
}

/// Checks that the records are `sent[source]` of each source, in their order.
fn assert_arrived(arrived: &[Record], sent: [u64; 2]) {
    let mut next = [0; 2];
    for &got in arrived {
        let expected = &mut next[got.source as usize];
        assert_eq!(got, record(got.source, *expected));
        *expected += 1;
    }
    assert_eq!(next, sent);
}

/// Two producers make one attempt for each of their records on a ring that begins with `before` records in it, while
/// the consumer makes `takes` attempts; accepted records must arrive. No thread waits in a loop, which keeps the model finite.
fn attempts(preemptions: usize, before: u64, each: [u64; 2], takes: usize) {
    model(preemptions, move || {
        let inbox = Inbox::new(2);
        let mut sent = [before, 0];
        let first = inbox.writer(0);
        for n in 0..before {
            first.push(record(0, n)).unwrap();
        }
        let producers = [0, 1].map(|me| {
            let (inbox, mut next) = (inbox.clone(), sent[me]);
            thread::spawn(move || {
                let writer = inbox.writer(me as u32);
                for _ in 0..each[me] {
                    match writer.push(record(me as u64, next)) {
                        Ok(()) => next += 1,
                        Err(error) => assert_eq!(error, Error::InboxFull),
                    }
                }
                next
            })
        });
        let mut reader = inbox.reader();
        let mut arrived: Vec<_> = (0..takes).filter_map(|_| reader.take()).collect();
        for (producer, sent) in producers.into_iter().zip(&mut sent) {
            *sent = producer.join().unwrap();
        }
        while let Some(record) = reader.take() {
            arrived.push(record);
        }
        assert_arrived(&arrived, sent);
        assert_eq!((reader.has_work(), reader.lost()), (false, 0));
        // In each execution the ring is intact: it takes two records, and not a third.
        assert!(first.push(record(0, 0)).is_ok() && first.push(record(0, 1)).is_ok());
        assert_eq!(first.push(record(0, 2)), Err(Error::InboxFull));
    });
}

#[test]
fn two_producers_on_an_empty_ring() {
    attempts(3, 0, [1, 1], 2);
}

#[test]
fn two_producers_race_for_the_next_lap() {
    attempts(3, 2, [1, 1], 2);
}

#[test]
fn two_producers_go_round_the_ring() {
    attempts(2, 1, [2, 1], 3);
}

#[test]
fn a_producer_waits_for_room() {
    model(3, || {
        let inbox = Inbox::new(2);
        let producer = beside(&inbox, move |inbox| {
            let writer = inbox.writer(1);
            for n in 0..3 {
                push(&writer, record(0, n));
            }
        });
        let mut reader = inbox.reader();
        let mut arrived = Vec::new();
        while arrived.len() < 3 {
            match reader.take() {
                Some(record) => arrived.push(record),
                None => thread::yield_now(),
            }
        }
        assert_arrived(&arrived, [3, 0]);
        producer.join().unwrap();
    });
}

/// A producer that dies after its last record: finding it dead must not cost that record.
#[test]
fn the_last_record_of_a_dead_producer_arrives() {
    model(4, || {
        let inbox = Inbox::new(2);
        let dead = Arc::new(AtomicU32::new(0));
        let producer = {
            let (inbox, dead) = (inbox.clone(), dead.clone());
            thread::spawn(move || {
                inbox.writer(1).push(record(0, 0)).unwrap();
                dead.store(1, Ordering::Release);
            })
        };
        let mut reader = inbox.reader();
        let is_dead = |id| {
            assert_eq!(id, 1);
            dead.load(Ordering::Acquire) == 1
        };
        let got = loop {
            reader.pass_over(is_dead);
            if let Some(got) = reader.take() {
                break got;
            }
            assert_eq!(reader.lost(), 0);
            thread::yield_now();
        };
        assert_eq!(got, record(0, 0));
        producer.join().unwrap();
        assert_eq!(reader.lost(), 0);
    });
}

/// The producer's writes before a push are visible to the consumer that takes the record.
#[test]
fn a_record_publishes_what_came_before_it() {
    model(4, || {
        let inbox = Inbox::new(2);
        let data = Arc::new(AtomicU32::new(0));
        let producer = {
            let (inbox, data) = (inbox.clone(), data.clone());
            thread::spawn(move || {
                data.store(7, Ordering::Relaxed);
                push(&inbox.writer(1), record(0, 0));
            })
        };
        let mut reader = inbox.reader();
        while reader.take().is_none() {
            thread::yield_now();
        }
        assert_eq!(data.load(Ordering::Relaxed), 7);
        producer.join().unwrap();
    });
}
