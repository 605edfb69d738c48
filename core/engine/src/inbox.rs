//! The inbox of an endpoint: a bounded ring of remote notices in shared memory. Many processes fill it, and one empties it.
//!
//! A producer may be killed between any two instructions. It claims the position at the tail by one compare-exchange, which also records its number. Each
//! producer that finds a claimed position at the tail advances the tail. A dead claimant therefore stops no other producer. The consumer skips a claimed
//! position once its claimant is known to be dead. Delivery relies on peers that follow the protocol; memory safety does not. If peers write arbitrary bytes,
//! calls still touch only the ring, and each call ends.
//!
//! Position `p` of the endless sequence of records is slot `p % capacity` in lap `p / capacity + 1`. Claims are separate from slots. The consumer polls the
//! slot at the head, and a claim in it would transfer its cache line once more. Only producers write a slot, and in one go: its record, then its lap. The
//! head shows that the consumer has taken the slot's previous record.

#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;

use crate::cache::OwnLine;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::{Error, Result, prefetch, process};

/// A notice of a remote completion. Sender and receiver define the meaning of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Record {
    /// The sender; opaque here.
    pub source: u64,
    /// Kind of the notice.
    pub kind: u32,
    /// Length in bytes of the data that the notice is about.
    pub len: u32,
    /// Immediate data.
    pub value: u64,
    /// Offset of the data in bytes.
    pub offset: u64,
}

const PRODUCER_BITS: u32 = 24;
const LAP_MASK: u64 = u64::MAX >> PRODUCER_BITS;

/// The greatest producer number. Linux process ids are below it.
pub const MAX_PRODUCER: u32 = (1 << PRODUCER_BITS) - 1;

/// The last producer of a slot: lap (40 bits, 0: none), number (24 bits).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim(u64);

impl Claim {
    #[inline(always)]
    const fn new(lap: u64, producer: u32) -> Self {
        Claim(lap << PRODUCER_BITS | producer as u64)
    }

    #[inline(always)]
    const fn lap(self) -> u64 {
        self.0 >> PRODUCER_BITS
    }

    #[inline(always)]
    const fn producer(self) -> u32 {
        self.0 as u32 & MAX_PRODUCER
    }
}

/// Whether lap `a` comes after `b`. Laps wrap.
#[inline(always)]
const fn is_after(a: u64, b: u64) -> bool {
    let ahead = a.wrapping_sub(b) & LAP_MASK;
    ahead != 0 && ahead <= LAP_MASK / 2
}

/// Marks an inbox: "unipgas" and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"unipgas\x02");

#[repr(C)]
struct Header {
    magic: AtomicU64,
    capacity: AtomicU64,
    /// Next position to claim. It may have been claimed already.
    tail: OwnLine<AtomicU64>,
    /// Next position to take. The consumer stores it for producers, and for a later consumer.
    head: OwnLine<AtomicU64>,
}

/// On processors with longer cache lines, neighbours share a line: an inbox has many slots, and few are in use.
#[repr(C, align(64))]
struct Slot {
    /// Lap of the record. 0: none.
    lap: AtomicU64,
    record: UnsafeCell<Record>,
}

#[cfg(not(loom))]
const _: () = assert!(
    size_of::<Slot>() == 64
        && size_of::<Header>() == 3 * crate::cache::LINE
        && size_of::<Record>() == 32
);

/// Size and alignment of the memory of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxLayout {
    capacity: usize,
}

impl InboxLayout {
    /// Alignment of the memory in bytes.
    pub const ALIGN: usize = align_of::<Header>();

    /// The most records that an inbox can hold.
    pub const MAX_CAPACITY: usize = 1 << 21;

    /// An inbox that holds `capacity` records: a power of two, from 2 to [`Self::MAX_CAPACITY`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any other capacity.
    pub fn new(capacity: usize) -> Result<Self> {
        if !capacity.is_power_of_two() || !(2..=Self::MAX_CAPACITY).contains(&capacity) {
            return Err(Error::InvalidArgument(format!(
                "inbox capacity {capacity}: must be a power of two from 2 to {}",
                Self::MAX_CAPACITY
            )));
        }
        Ok(Self { capacity })
    }

    /// Number of records that the inbox can hold.
    pub fn capacity(self) -> usize {
        self.capacity
    }

    /// Offset of the slots, which follow header and claims.
    fn slots_at(self) -> usize {
        (size_of::<Header>() + self.capacity * size_of::<AtomicU64>())
            .next_multiple_of(align_of::<Slot>())
    }

    /// Bytes of memory that the inbox takes.
    pub fn size(self) -> usize {
        self.slots_at() + self.capacity * size_of::<Slot>()
    }
}

/// Makes an empty inbox of `capacity` records at `ptr`.
///
/// # Errors
/// [`Error::InvalidArgument`] if [`InboxLayout::new`] refuses the capacity, [`Error::Misaligned`] if `ptr` is not a multiple of [`InboxLayout::ALIGN`]. An
/// error leaves the memory unchanged.
///
/// # Safety
/// `ptr` is valid for writes of [`InboxLayout::size`] bytes. No other thread or process uses them until this call returns.
pub unsafe fn initialise(ptr: *mut u8, capacity: usize) -> Result<()> {
    let layout = InboxLayout::new(capacity)?;
    if !ptr.addr().is_multiple_of(InboxLayout::ALIGN) {
        return Err(Error::Misaligned(InboxLayout::ALIGN));
    }
    // SAFETY:
    // - contract of this call: `layout.size()` bytes, which hold a header, `capacity` claims and `capacity` slots, belong to this call alone.
    // - `ptr` is aligned. The layout aligns claims and slots.
    unsafe {
        let claims = ptr.add(size_of::<Header>()).cast::<AtomicU64>();
        let slots = ptr.add(layout.slots_at()).cast::<Slot>();
        for index in 0..layout.capacity {
            claims.add(index).write(AtomicU64::new(0));
            slots.add(index).write(Slot {
                lap: AtomicU64::new(0),
                record: UnsafeCell::new(Record::default()),
            });
        }
        write_header(ptr, capacity);
    }
    Ok(())
}

/// [`initialise`] for zeroed memory. It does not touch the slots, so unused slots of a large inbox take no memory.
///
/// # Errors
/// As for [`initialise`].
///
/// # Safety
/// As for [`initialise`], and all bytes are zero.
#[cfg(not(loom))]
pub unsafe fn initialise_zeroed(ptr: *mut u8, capacity: usize) -> Result<()> {
    InboxLayout::new(capacity)?;
    if !ptr.addr().is_multiple_of(InboxLayout::ALIGN) {
        return Err(Error::Misaligned(InboxLayout::ALIGN));
    }
    // SAFETY:
    // - contract of this call: the memory has room for a header and is zeroed. Its alignment was tested. Zeroed claims and slots are free.
    unsafe { write_header(ptr, capacity) };
    Ok(())
}

/// # Safety
/// As for [`initialise`].
unsafe fn write_header(ptr: *mut u8, capacity: usize) {
    // SAFETY:
    // - contract of `initialise`: room for a header. Both callers have tested the alignment.
    unsafe {
        ptr.cast::<Header>().write(Header {
            magic: AtomicU64::new(MAGIC),
            capacity: AtomicU64::new(capacity as u64),
            tail: OwnLine(AtomicU64::new(0)),
            head: OwnLine(AtomicU64::new(0)),
        });
    }
}

#[cold]
fn not_an_inbox(why: &str) -> Error {
    Error::InvalidArgument(format!("no inbox at this address: {why}"))
}

/// The ring as both sides use it. Peers can change the capacity in memory, so it is read and checked once and kept here.
#[derive(Clone, Copy)]
struct Ring {
    header: *const Header,
    claims: *const AtomicU64,
    slots: *const Slot,
    mask: u64,
    lap_shift: u32,
}

impl Ring {
    /// # Safety
    /// As for [`InboxWriter::attach_as`].
    #[inline]
    unsafe fn attach(ptr: *mut u8, len: usize) -> Result<Self> {
        if !ptr.addr().is_multiple_of(InboxLayout::ALIGN) {
            return Err(Error::Misaligned(InboxLayout::ALIGN));
        }
        if len < size_of::<Header>() {
            return Err(not_an_inbox("the memory is smaller than its header"));
        }
        let header = ptr.cast_const().cast::<Header>();
        // SAFETY:
        // - `ptr` is aligned and has room for a header (tested above).
        // - the memory stays mapped, and each bit pattern is a valid atomic integer, so a reference is sound.
        let (magic, capacity) = unsafe {
            (
                (*header).magic.load(Acquire),
                (*header).capacity.load(Relaxed),
            )
        };
        if magic != MAGIC {
            return Err(not_an_inbox("it does not begin with the magic number"));
        }
        let layout = usize::try_from(capacity)
            .ok()
            .and_then(|capacity| InboxLayout::new(capacity).ok())
            .ok_or_else(|| not_an_inbox("its capacity is not a power of two within the limits"))?;
        if layout.size() > len {
            return Err(not_an_inbox(
                "the memory is smaller than its capacity needs",
            ));
        }
        // SAFETY:
        // - the memory has at least `layout.size()` bytes, so claims and slots lie within it.
        let (claims, slots) = unsafe { (ptr.add(size_of::<Header>()), ptr.add(layout.slots_at())) };
        Ok(Self {
            header,
            claims: claims.cast_const().cast(),
            slots: slots.cast_const().cast(),
            mask: capacity - 1,
            lap_shift: capacity.trailing_zeros(),
        })
    }

    fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY:
        // - `attach` has tested size and alignment, and its caller keeps the memory mapped.
        // - the header consists of atomics, so the reference permits writes by peers.
        unsafe { &*self.header }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        // SAFETY:
        // - the mask comes from this process's copy of the capacity, for which `attach` has tested the size.
        // - a slot consists of an atomic and a cell, so the reference permits writes by peers.
        unsafe { &*self.slots.add((position & self.mask) as usize) }
    }

    #[inline(always)]
    fn claim(&self, position: u64) -> &AtomicU64 {
        // SAFETY:
        // - as for `slot`.
        unsafe { &*self.claims.add((position & self.mask) as usize) }
    }

    /// The lap of a position. Laps start at 1, so zeroed slots and claims belong to no lap.
    #[inline(always)]
    fn lap(&self, position: u64) -> u64 {
        (position >> self.lap_shift).wrapping_add(1) & LAP_MASK
    }
}

/// A producer's access to an inbox. Threads of the process may share it.
pub struct InboxWriter {
    ring: Ring,
    producer: u32,
    /// The last head that was read. The consumer has taken all records before it.
    taken: AtomicU64,
}

// SAFETY:
// - the pointers lead to shared memory that stays mapped as long as the writer exists. Calls access only atomics, and the record of a slot that they have
//   claimed themselves.
unsafe impl Send for InboxWriter {}
// SAFETY:
// - as for Send. Calls of several threads are several producers to the protocol.
unsafe impl Sync for InboxWriter {}

impl InboxWriter {
    /// [`Self::attach_as`] with the id of this process as producer number. It takes a few loads.
    ///
    /// # Errors
    /// As for [`Self::attach_as`].
    ///
    /// # Safety
    /// As for [`Self::attach_as`].
    #[inline]
    pub unsafe fn attach(ptr: *mut u8, len: usize) -> Result<Self> {
        // SAFETY:
        // - contract of this call, which is the contract of `attach_as`.
        unsafe { Self::attach_as(ptr, len, process::id()) }
    }

    /// Attaches to the inbox at `ptr` as `producer`. The consumer's `is_dead` gets this number.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no inbox, if it does not fit in `len` bytes, or if `producer` is above
    /// [`MAX_PRODUCER`]; [`Error::Misaligned`] if `ptr` is not a multiple of [`InboxLayout::ALIGN`].
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `len` bytes as long as the writer exists. Within this process, only the types of this module access the bytes
    /// of the inbox.
    #[inline]
    pub unsafe fn attach_as(ptr: *mut u8, len: usize, producer: u32) -> Result<Self> {
        if producer > MAX_PRODUCER {
            return Err(Error::InvalidArgument(format!(
                "producer {producer}: must not exceed {MAX_PRODUCER}"
            )));
        }
        // SAFETY:
        // - contract of this call.
        let ring = unsafe { Ring::attach(ptr, len)? };
        Ok(Self {
            ring,
            producer,
            taken: AtomicU64::new(0),
        })
    }

    /// Number of records that the inbox can hold.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Delivers a record to this inbox, or to `second` if this inbox is full. Records keep their order: until the consumer has emptied `second`, all records
    /// go there. False: neither has room.
    #[inline(always)]
    pub fn push_or(&self, second: &InboxWriter, record: Record) -> bool {
        second.is_drained() && self.try_push(record) || second.try_push(record)
    }

    /// Prefetches the line of the next record, to overlap the transfer with other stores.
    #[inline(always)]
    pub fn prefetch(&self) {
        let position = self.ring.header().tail.0.load(Relaxed);
        prefetch::for_store(std::ptr::from_ref(self.ring.slot(position)).cast());
    }

    /// Whether the consumer has taken all records that this thread has delivered here. It loads two lines, which change only while records come and go.
    #[inline(always)]
    pub(crate) fn is_drained(&self) -> bool {
        let header = self.ring.header();
        header.tail.0.load(Relaxed) == header.head.0.load(Acquire)
    }

    /// Whether the consumer has taken the slot's previous record, so that the slot of `position` is free.
    #[inline(always)]
    fn has_room(&self, position: u64) -> bool {
        // A position that was taken meanwhile is below the head. Its claim has changed then, so the caller's compare-exchange fails.
        let within = |head: u64| position.wrapping_sub(head) as i64 <= self.ring.mask as i64;
        // Acquire in both: the write of the record comes after the consumer's read of the previous record.
        within(self.taken.load(Acquire)) || {
            let head = self.ring.header().head.0.load(Acquire);
            self.taken.store(head, Release);
            within(head)
        }
    }

    /// Delivers a record. The records of one thread arrive in the order of its calls. Its earlier writes are visible to the consumer first. Does not wait.
    ///
    /// # Errors
    /// [`Error::InboxFull`]: the inbox is unchanged. Retry after the consumer has taken records.
    #[inline]
    pub fn push(&self, record: Record) -> Result<()> {
        match self.try_push(record) {
            true => Ok(()),
            false => Err(Error::InboxFull),
        }
    }

    /// As [`push`](InboxWriter::push). False: the inbox is full.
    #[inline(always)]
    fn try_push(&self, record: Record) -> bool {
        let ring = &self.ring;
        let tail = &ring.header().tail.0;
        // Each turn but the last means that another producer made progress. A call reaches the bound only if a peer has overwritten the tail.
        for _ in 0..1024 + 64 * (ring.mask + 1) {
            let position = tail.load(Relaxed);
            let (lap, claim) = (ring.lap(position), ring.claim(position));
            let seen = Claim(claim.load(Relaxed));
            if seen.lap() == lap || is_after(seen.lap(), lap) {
                // The claimant may have died before it advanced the tail.
                move_on(tail, position);
                continue;
            }
            if !self.has_room(position) {
                return false;
            }
            let own = Claim::new(lap, self.producer);
            if claim
                .compare_exchange(seen.0, own.0, Relaxed, Relaxed)
                .is_ok()
            {
                fill(ring.slot(position), lap, record);
                move_on(tail, position);
                return true;
            }
        }
        false
    }
}

#[inline(always)]
fn move_on(tail: &AtomicU64, position: u64) {
    let _ = tail.compare_exchange(position, position.wrapping_add(1), Relaxed, Relaxed);
}

/// Writes the record of a position that this call has claimed.
#[inline(always)]
fn fill(slot: &Slot, lap: u64, record: Record) {
    // SAFETY:
    // - only the claimant writes the record, and the consumer reads it only after the lap store.
    // - the stores are volatile, since faulty peers can write the same memory.
    slot.record.with_mut(|cell| unsafe {
        // Field by field: the compiler would load a whole record from memory before it stores it.
        (&raw mut (*cell).source).write_volatile(record.source);
        (&raw mut (*cell).kind).write_volatile(record.kind);
        (&raw mut (*cell).len).write_volatile(record.len);
        (&raw mut (*cell).value).write_volatile(record.value);
        (&raw mut (*cell).offset).write_volatile(record.offset);
    });
    slot.lap.store(lap, Release);
}

/// The consumer's access to an inbox. At most one may exist at a time.
pub struct InboxReader {
    ring: Ring,
    head: u64,
    lost: u64,
}

// SAFETY:
// - the pointers lead to shared memory that stays mapped as long as the reader exists. To take records needs `&mut self`.
unsafe impl Send for InboxReader {}
// SAFETY:
// - `&self` permits loads of atomics only.
unsafe impl Sync for InboxReader {}

impl InboxReader {
    /// Attaches to the inbox at `ptr`. The reader starts after the last record that an earlier reader took.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no inbox, or if it does not fit in `len` bytes; [`Error::Misaligned`] if
    /// `ptr` is not a multiple of [`InboxLayout::ALIGN`].
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `len` bytes as long as the reader exists. Within this process, only the types of this module access the bytes
    /// of the inbox. No other reader of the inbox exists in any process.
    pub unsafe fn attach(ptr: *mut u8, len: usize) -> Result<Self> {
        // SAFETY:
        // - contract of this call.
        let ring = unsafe { Ring::attach(ptr, len)? };
        let head = ring.header().head.0.load(Acquire);
        Ok(Self {
            ring,
            head,
            lost: 0,
        })
    }

    /// Number of records that the inbox can hold.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Number of positions that this reader has skipped: their producers died, or faulty peers overwrote them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Approximate number of records that are claimed and not yet taken.
    pub fn len(&self) -> usize {
        let tail = self.ring.header().tail.0.load(Relaxed);
        // The tail may be behind: a producer may not have advanced it yet.
        let ahead = tail.wrapping_sub(self.head) as i64;
        ahead.clamp(0, self.capacity() as i64) as usize
    }

    /// Whether [`Self::len`] is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Self::take`] has a record to give. One load.
    #[inline]
    pub fn has_work(&self) -> bool {
        let lap = &self.ring.slot(self.head).lap;
        lap.load(Acquire) == self.ring.lap(self.head)
    }

    /// Takes the next record, if there is one. The earlier writes of its producer are visible then. Does not wait. Records behind a claimed position without
    /// a record stay. If the claimant has died, they stay until [`Self::pass_over`].
    #[inline(always)]
    pub fn take(&mut self) -> Option<Record> {
        let slot = self.ring.slot(self.head);
        if slot.lap.load(Acquire) != self.ring.lap(self.head) {
            return None;
        }
        // SAFETY:
        // - the lap shows that the record is written. Producers do not write it again before the head has moved on.
        // - a faulty peer may write it nevertheless. A volatile read of plain integers then returns some value.
        let record = slot.record.with(|cell| unsafe { cell.read_volatile() });
        self.go_on();
        Some(record)
    }

    /// Skips positions of claimants that died before they wrote their records, so that [`Self::take`] reaches the records behind them. Call it from time to
    /// time while `take` returns `None`.
    ///
    /// `is_dead(producer)` must return true only if no thread of the producer can run any more (a pidfd of the process polls readable).
    pub fn pass_over(&mut self, mut is_dead: impl FnMut(u32) -> bool) {
        // The bound ends the call if peers have filled the ring with garbage.
        for _ in 0..=self.ring.mask {
            if self.has_work() {
                return;
            }
            let lap = self.ring.lap(self.head);
            let claim = Claim(self.ring.claim(self.head).load(Relaxed));
            let over =
                is_after(claim.lap(), lap) || claim.lap() == lap && is_dead(claim.producer());
            // The claimant may have written the record before it died.
            if !over || self.has_work() {
                return;
            }
            self.lost += 1;
            self.go_on();
        }
    }

    /// Frees the slot at the head for the producers of the next lap.
    #[inline(always)]
    fn go_on(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.ring.header().head.0.store(self.head, Release);
    }
}
