//! The inbox under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test inbox_loom`.
#![cfg(loom)]

use std::alloc::{Layout, alloc_zeroed};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use unipgas_core::Error;
use unipgas_core::inbox::{InboxLayout, InboxReader, InboxWriter, Record, initialise};

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

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

fn push(writer: &InboxWriter, record: Record) {
    while let Err(error) = writer.push(record) {
        assert_eq!(error, Error::InboxFull);
        thread::yield_now();
    }
}

/// Takes `count` records, which must be each source's in order.
fn take_all(reader: &mut InboxReader, count: usize) {
    let mut next = [0u64; 2];
    for _ in 0..count {
        let got = loop {
            match reader.take(|_| false) {
                Some(got) => break got,
                None => thread::yield_now(),
            }
        };
        let expected = &mut next[got.source as usize];
        assert_eq!(got, record(got.source, *expected));
        *expected += 1;
    }
    assert_eq!((reader.take(|_| false), reader.lost()), (None, 0));
}

#[test]
fn two_producers_lose_nothing_and_keep_their_order() {
    model(3, || {
        let inbox = Inbox::new(2);
        let producers = [0, 1].map(|me| {
            let inbox = inbox.clone();
            thread::spawn(move || {
                let writer = inbox.writer(me as u32);
                // Three records in all, so that the ring of two laps.
                for n in 0..2 - me {
                    push(&writer, record(me, n));
                }
            })
        });
        take_all(&mut inbox.reader(), 3);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

#[test]
fn a_full_ring_is_refused_and_then_reused() {
    model(3, || {
        let inbox = Inbox::new(2);
        let producer = {
            let inbox = inbox.clone();
            thread::spawn(move || {
                let writer = inbox.writer(1);
                for n in 0..3 {
                    push(&writer, record(0, n));
                }
            })
        };
        take_all(&mut inbox.reader(), 3);
        producer.join().unwrap();
    });
}

/// What the producer wrote before it pushed is visible to who takes the record.
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
        while reader.take(|_| false).is_none() {
            thread::yield_now();
        }
        assert_eq!(data.load(Ordering::Relaxed), 7);
        producer.join().unwrap();
    });
}
