//! An inbox with memory that a peer has overwritten.

use super::{InboxLayout, InboxReader, InboxWriter, Record, initialise};
use crate::fenced::Fenced;

const PLACES: usize = 8;

fn size() -> usize {
    InboxLayout::new(PLACES).expect("a power of two").size()
}

/// The whole memory of an inbox. `bytes` may be shorter.
pub(crate) fn inbox(bytes: &[u8]) {
    let mut memory = Fenced::new(size());
    memory.fill(bytes);
    let (base, len) = (memory.base(), memory.len());
    let record = Record {
        value: 1,
        ..Record::default()
    };
    // SAFETY:
    // - valid memory of this thread, which outlives reader and writer.
    let (reader, writer) = unsafe {
        (
            InboxReader::attach(base, len),
            InboxWriter::attach_as(base, len, 5),
        )
    };
    if let (Ok(mut reader), Ok(writer)) = (reader, writer) {
        for _ in 0..4 {
            assert!(reader.len() <= PLACES || reader.capacity() != PLACES);
            let taken = std::iter::from_fn(|| reader.take());
            assert!(
                taken.count() <= reader.capacity(),
                "more than there are places"
            );
            reader.pass_over(|producer| producer % 2 == 1);
            for _ in 0..=PLACES {
                let _ = writer.push(record);
            }
            let _ = writer.push_or(&writer, record);
            writer.prefetch();
        }
    }
    memory.check();
}

/// An empty inbox, an inbox with records, and an inbox with a taken record.
pub(crate) fn inboxes() -> Vec<Vec<u8>> {
    let mut memory = Fenced::new(size());
    let (base, len) = (memory.base(), memory.len());
    let read = || {
        // SAFETY:
        // - the memory has `len` bytes.
        unsafe { std::slice::from_raw_parts(base, len) }.to_vec()
    };
    // SAFETY:
    // - valid memory of this thread, which outlives reader and writer.
    let (mut reader, writer) = unsafe {
        initialise(base, PLACES).expect("aligned");
        let reader = InboxReader::attach(base, len).expect("an inbox");
        let writer = InboxWriter::attach_as(base, len, 5).expect("an inbox");
        (reader, writer)
    };
    let mut all = vec![read()];
    for _ in 0..3 {
        writer.push(Record::default()).expect("room");
    }
    all.push(read());
    reader.take().expect("three are there");
    all.push(read());
    all
}
