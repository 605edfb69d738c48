//! The inbox with threads for producers, and with garbage for contents.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use unipgas_base::Error;
use unipgas_base::cache::LINE;
use unipgas_engine::inbox::{
    InboxLayout, InboxReader, InboxWriter, MAX_PRODUCER, Record, initialise,
};

/// Memory of an inbox, with untouched bytes on both sides.
struct Memory {
    base: *mut u8,
    layout: Layout,
    len: usize,
}

const MARGIN: usize = 256;
const UNTOUCHED: u8 = 0x3C;

// SAFETY:
// - the bytes are accessed through the inbox's types, or by one thread alone.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len + 2 * MARGIN, InboxLayout::ALIGN).unwrap();
        // SAFETY:
        // - the size is not zero; the margins are inside.
        let base = unsafe {
            let base = alloc_zeroed(layout);
            base.write_bytes(UNTOUCHED, MARGIN);
            base.add(MARGIN + len).write_bytes(UNTOUCHED, MARGIN);
            base
        };
        Self { base, layout, len }
    }

    fn inbox(capacity: usize) -> Self {
        let memory = Self::new(InboxLayout::new(capacity).unwrap().size());
        // SAFETY:
        // - the memory is as long as the layout says, and no other code uses it.
        unsafe { initialise(memory.at(), capacity).unwrap() };
        memory
    }

    fn at(&self) -> *mut u8 {
        self.base.wrapping_add(MARGIN)
    }

    fn writer(&self, producer: u32) -> InboxWriter {
        // SAFETY:
        // - the memory outlives the threads of each test.
        unsafe { InboxWriter::attach_as(self.at(), self.len, producer).unwrap() }
    }

    fn reader(&self) -> InboxReader {
        // SAFETY:
        // - as above; each test makes one reader at a time.
        unsafe { InboxReader::attach(self.at(), self.len).unwrap() }
    }

    /// Writes a word, as a garbled peer might.
    fn scribble(&self, offset: usize, word: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY:
        // - inside of the memory and aligned; the inbox's own accesses of state and header are atomic as well.
        unsafe { AtomicU64::from_ptr(self.at().add(offset).cast()).store(word, Ordering::Relaxed) }
    }

    fn assert_margins(&self) {
        // SAFETY:
        // - the margins are inside of the allocation and no code writes them.
        let margins = unsafe {
            [
                std::slice::from_raw_parts(self.base, MARGIN),
                std::slice::from_raw_parts(self.at().add(self.len), MARGIN),
            ]
        };
        assert!(
            margins.concat().iter().all(|&byte| byte == UNTOUCHED),
            "wrote outside of the inbox"
        );
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY:
        // - allocated with this layout, and freed once.
        unsafe { dealloc(self.base, self.layout) }
    }
}

fn record(source: u64, value: u64) -> Record {
    Record {
        source,
        kind: 7,
        len: !(value as u32),
        value,
        offset: value.rotate_left(32) ^ source,
    }
}

#[test]
fn records_come_out_as_they_went_in_until_full() {
    for capacity in [2usize, 4, 64] {
        let memory = Memory::inbox(capacity);
        let (writer, mut reader) = (memory.writer(1), memory.reader());
        for lap in 0..5 {
            assert!(!reader.has_work());
            assert_eq!(reader.take(), None);
            for n in 0..capacity as u64 {
                writer.push(record(lap, n)).unwrap();
            }
            assert_eq!(writer.push(record(lap, 99)), Err(Error::InboxFull));
            assert!(reader.has_work());
            for n in 0..capacity as u64 {
                assert_eq!(reader.take(), Some(record(lap, n)));
            }
        }
        assert_eq!((reader.take(), reader.lost()), (None, 0));
        memory.assert_margins();
    }
}

#[test]
fn a_new_reader_goes_on_where_the_old_one_stopped() {
    let memory = Memory::inbox(4);
    let writer = memory.writer(1);
    for n in 0..4 {
        writer.push(record(0, n)).unwrap();
    }
    let mut reader = memory.reader();
    assert_eq!(
        (reader.take(), reader.take()),
        (Some(record(0, 0)), Some(record(0, 1)))
    );
    // The first reader is not used any more.
    let mut reader = memory.reader();
    assert_eq!(reader.take(), Some(record(0, 2)));
}

#[test]
fn what_is_no_inbox_is_refused() {
    let is_invalid = |error| matches!(error, Some(Error::InvalidArgument(_)));
    for capacity in [0, 1, 3, InboxLayout::MAX_CAPACITY * 2, usize::MAX] {
        assert!(is_invalid(InboxLayout::new(capacity).err()), "{capacity}");
    }
    let memory = Memory::inbox(8);
    // SAFETY:
    // - every length is that of the memory at most.
    let attach = |at: *mut u8, len: usize| unsafe {
        let writer = InboxWriter::attach(at, len).err();
        assert_eq!(writer, InboxReader::attach(at, len).err());
        writer
    };
    assert_eq!(attach(memory.at(), memory.len), None);
    assert_eq!(
        attach(memory.at().wrapping_add(8), memory.len - 8),
        Some(Error::Misaligned(InboxLayout::ALIGN))
    );
    for short in [0, 63, memory.len - 1] {
        assert!(is_invalid(attach(memory.at(), short)), "{short}");
    }
    // SAFETY:
    // - the address is refused before anything is written to it.
    let refused = unsafe { initialise(memory.at().wrapping_add(32), 2) };
    assert_eq!(refused, Err(Error::Misaligned(InboxLayout::ALIGN)));
    // SAFETY:
    // - the memory outlives the attempt.
    let high = unsafe { InboxWriter::attach_as(memory.at(), memory.len, MAX_PRODUCER + 1) };
    assert!(is_invalid(high.err()));
    for capacity in [0, 1, 7, 16, 1 << 40, u64::MAX] {
        memory.scribble(8, capacity);
        assert!(is_invalid(attach(memory.at(), memory.len)), "{capacity}");
    }
    memory.scribble(8, 8);
    assert_eq!(attach(memory.at(), memory.len), None);
    memory.scribble(0, 0);
    assert!(is_invalid(attach(memory.at(), memory.len)));
}

#[test]
fn every_record_of_every_thread_arrives_once_and_in_order() {
    const PRODUCERS: u64 = 4;
    const EACH: u64 = if cfg!(miri) { 60 } else { 40_000 };
    for capacity in [2, 8, 1024] {
        let memory = Memory::inbox(capacity);
        thread::scope(|scope| {
            for me in 0..PRODUCERS {
                let writer = memory.writer(me as u32 + 1);
                scope.spawn(move || {
                    for n in 0..EACH {
                        while let Err(error) = writer.push(record(me, n)) {
                            assert_eq!(error, Error::InboxFull);
                            thread::yield_now();
                        }
                    }
                });
            }
            let mut reader = memory.reader();
            let mut next = [0; PRODUCERS as usize];
            while next.iter().sum::<u64>() < PRODUCERS * EACH {
                match reader.take() {
                    Some(got) => {
                        let expected = &mut next[got.source as usize];
                        assert_eq!(got, record(got.source, *expected));
                        *expected += 1;
                    }
                    None => thread::yield_now(),
                }
            }
            assert_eq!((reader.take(), reader.lost()), (None, 0));
        });
        memory.assert_margins();
    }
}

/// Offsets of the layout, as a peer would know them: header of three lines, a word for each claim, slots of 64 bytes each.
const TAIL: usize = LINE;
const CLAIMS: usize = 3 * LINE;

const fn slots(capacity: usize) -> usize {
    (CLAIMS + 8 * capacity).next_multiple_of(64)
}

/// Laps count from 1.
fn claimed(lap: u64, producer: u64) -> u64 {
    lap << 24 | producer
}

#[test]
fn a_position_whose_claimant_died_is_passed_over() {
    let memory = Memory::inbox(4);
    let (writer, mut reader) = (memory.writer(1), memory.reader());
    writer.push(record(0, 0)).unwrap();
    // Dead between the claim and moving the tail.
    memory.scribble(CLAIMS + 8, claimed(1, 77));
    writer.push(record(0, 1)).unwrap();
    assert_eq!(reader.take(), Some(record(0, 0)));
    let is = |dead: bool| {
        move |producer: u32| {
            assert_eq!(producer, 77);
            dead
        }
    };
    assert!(!reader.has_work() && !reader.is_empty());
    reader.pass_over(is(false));
    assert_eq!((reader.take(), reader.lost()), (None, 0));
    reader.pass_over(is(true));
    assert_eq!((reader.take(), reader.lost()), (Some(record(0, 1)), 1));
    for lap in 0..9 {
        writer.push(record(lap, 2)).unwrap();
        reader.pass_over(|_| true);
        assert_eq!(reader.take(), Some(record(lap, 2)));
    }
    reader.pass_over(|_| true);
    assert_eq!((reader.take(), reader.lost()), (None, 1));
}

#[test]
fn a_record_finished_just_before_its_producer_died_is_delivered() {
    let memory = Memory::inbox(2);
    let mut reader = memory.reader();
    memory.scribble(CLAIMS, claimed(1, 5));
    let finishing = |_| {
        for (word, value) in bytemuck::cast::<Record, [u64; 4]>(record(5, 6))
            .into_iter()
            .enumerate()
        {
            memory.scribble(slots(2) + 8 + 8 * word, value);
        }
        memory.scribble(slots(2), 1);
        true
    };
    reader.pass_over(finishing);
    assert_eq!((reader.take(), reader.lost()), (Some(record(5, 6)), 0));
}

/// The writer has seen the head once, and asks again only when that shows no room.
#[test]
fn room_is_seen_as_it_comes() {
    let memory = Memory::inbox(2);
    let (writer, mut reader) = (memory.writer(1), memory.reader());
    for n in 0..100 {
        writer.push(record(0, n)).unwrap();
        writer.push(record(1, n)).unwrap();
        assert_eq!(writer.push(record(2, n)), Err(Error::InboxFull));
        assert_eq!(reader.take(), Some(record(0, n)));
        writer.push(record(3, n)).unwrap();
        assert_eq!(writer.push(record(2, n)), Err(Error::InboxFull));
        assert_eq!(
            (reader.take(), reader.take()),
            (Some(record(1, n)), Some(record(3, n)))
        );
        assert_eq!((reader.take(), reader.len()), (None, 0));
    }
}

#[test]
fn a_wild_tail_neither_hangs_nor_harms() {
    let memory = Memory::inbox(4);
    let (writer, mut reader) = (memory.writer(1), memory.reader());
    for tail in [1u64, 3, 4, 1 << 20, u64::MAX, u64::MAX - 7, 1 << 63] {
        memory.scribble(TAIL, tail);
        let _ = writer.push(record(0, 1));
        reader.pass_over(|_| true);
        while reader.take().is_some() {}
    }
    memory.assert_margins();
}

proptest! {
    /// For any bytes in the ring, no access leaves the ring, and all calls return. Once the peer is quiet and the tail is at the reader's
    /// position, records pass again.
    #[test]
    fn garbage_stays_inside_and_heals(
        words in prop::collection::vec((0usize..(slots(4) - TAIL + 4 * 64) / 8, prop_oneof![
            any::<u64>(),
            0u64..6,
            (0u64..6, 0u64..3).prop_map(|(lap, producer)| claimed(lap, producer)),
        ], any::<bool>()), 1..60),
    ) {
        let memory = Memory::inbox(4);
        let (writer, mut reader) = (memory.writer(1), memory.reader());
        let mut taken = 0;
        for (word, value, push) in words {
            memory.scribble(TAIL + 8 * word, value);
            if push {
                let _ = writer.push(record(3, value));
            }
            reader.pass_over(|producer| producer != 2);
            taken += reader.take().is_some() as usize;
        }
        for _ in 0..8 {
            reader.pass_over(|_| true);
            taken += reader.take().is_some() as usize;
        }
        prop_assert!(!reader.has_work(), "after {taken} records");
        memory.assert_margins();
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "a race on purpose: wild writes give one slot to two producers"
)]
fn scribbling_during_traffic_is_survived() {
    let memory = Memory::inbox(8);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (memory, done) = (&memory, &done);
        for me in 0..2 {
            let writer = memory.writer(me + 1);
            scope.spawn(move || {
                for n in 0..20_000 {
                    let _ = writer.push(record(me as u64, n));
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(move || {
            let mut random = 0x9E37_79B9_7F4A_7C15u64;
            while !done.load(Ordering::Relaxed) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Laps, claims and tail only: records are not atomic within one process, as they are between processes.
                let nth = (random >> 8 & 7) as usize;
                let offset = match random & 3 {
                    0 => TAIL,
                    1 => CLAIMS + 8 * nth,
                    _ => slots(8) + 64 * nth,
                };
                memory.scribble(offset, random >> (random >> 58));
                thread::yield_now();
            }
        });
        let mut reader = memory.reader();
        while !done.load(Ordering::Relaxed) {
            reader.pass_over(|_| true);
            reader.take();
        }
    });
    memory.assert_margins();
}
