//! The inbox of an endpoint: a bounded ring of remote notices in shared memory, filled by many processes and emptied by
//! one.
//!
//! A producer may be killed between any two instructions. It claims the position at the tail by one compare-exchange that
//! also records who it is; whoever finds a claimed position at the tail moves the tail on, so that a dead claimant stops no
//! other producer; and the consumer passes over a claimed position once its claimant is known to be dead. Peers are trusted
//! to keep to the protocol for delivery, but not for memory safety: whatever they write, nothing outside of the ring is
//! touched, and no call goes on for ever.
//!
//! Position `p` of the endless sequence of records is slot `p % capacity` in lap `p / capacity + 1`. Claims are apart from
//! slots: the consumer polls the slot at the head, whose line would go over once more if a claim became visible there. So a
//! slot is written by producers alone and at once: its record, then its lap. That the record before it has been taken is seen
//! at the head.

#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;

use crate::cache::OwnLine;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::{Error, Result, prefetch, process};

/// A notice of a remote completion. What the fields mean is the business of those who send and receive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Record {
    /// Who sent it; opaque here.
    pub source: u64,
    /// What kind of notice it is.
    pub kind: u32,
    /// Length in bytes of the data that the notice is about.
    pub len: u32,
    /// Immediate data.
    pub value: u64,
    /// Where the data is, as an offset in bytes.
    pub offset: u64,
}

const PRODUCER_BITS: u32 = 24;
const LAP_MASK: u64 = u64::MAX >> PRODUCER_BITS;

/// The greatest number that can name a producer; every Linux process id is below it.
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

/// Whether lap `a` comes after `b`; they wrap.
#[inline(always)]
const fn is_after(a: u64, b: u64) -> bool {
    let ahead = a.wrapping_sub(b) & LAP_MASK;
    ahead != 0 && ahead <= LAP_MASK / 2
}

/// The one the ring was made by; "unipgas" and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"unipgas\x02");

#[repr(C)]
struct Header {
    magic: AtomicU64,
    capacity: AtomicU64,
    /// Next position to be claimed, or one that has been claimed already.
    tail: OwnLine<AtomicU64>,
    /// Next position to be taken; written by the consumer for one that comes after it.
    head: OwnLine<AtomicU64>,
}

/// Where lines are longer, neighbours share one: an inbox has many slots, of which few are in use.
#[repr(C, align(64))]
struct Slot {
    /// That of the record.
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

    /// How many records the inbox holds.
    pub fn capacity(self) -> usize {
        self.capacity
    }

    /// Where the slots begin: after header and claims.
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
/// [`Error::InvalidArgument`] if [`InboxLayout::new`] refuses the capacity, [`Error::Misaligned`] if `ptr` is not a
/// multiple of [`InboxLayout::ALIGN`]; nothing has been written then.
///
/// # Safety
/// `ptr` is valid for writes of [`InboxLayout::size`] bytes, and nobody else uses them until this returns.
pub unsafe fn initialise(ptr: *mut u8, capacity: usize) -> Result<()> {
    let layout = InboxLayout::new(capacity)?;
    if !ptr.addr().is_multiple_of(InboxLayout::ALIGN) {
        return Err(Error::Misaligned(InboxLayout::ALIGN));
    }
    // SAFETY:
    // - the caller gives `layout.size()` bytes, which are a header, `capacity` claims and as many slots, to this function alone;
    // - `ptr` is aligned, and so are claims and slots where the layout puts them.
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

/// [`initialise`] for memory that is all zeroes: the slots are not touched, so that a large inbox takes no memory until it is used.
///
/// # Errors
/// As for [`initialise`].
///
/// # Safety
/// As for [`initialise`], and the memory is all zeroes.
#[cfg(not(loom))]
pub unsafe fn initialise_zeroed(ptr: *mut u8, capacity: usize) -> Result<()> {
    InboxLayout::new(capacity)?;
    if !ptr.addr().is_multiple_of(InboxLayout::ALIGN) {
        return Err(Error::Misaligned(InboxLayout::ALIGN));
    }
    // SAFETY:
    // - the caller's word; zeroes are slots that nobody has claimed or written.
    unsafe { write_header(ptr, capacity) };
    Ok(())
}

/// # Safety
/// As for [`initialise`].
unsafe fn write_header(ptr: *mut u8, capacity: usize) {
    // SAFETY:
    // - the caller's word: aligned, and room for a header.
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

/// The ring as both sides see it. The capacity is read once, checked, and from then on nobody else's.
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
        // - `ptr` is aligned and has room for a header, which was just tested;
        // - it stays mapped, and every bit pattern is an atomic integer, so that a reference is sound.
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
        // - the memory is `layout.size()` bytes at least, so that claims and slots begin inside of it.
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
        // - `attach` has tested size and alignment, and its caller keeps the memory mapped;
        // - the header is atomics only, so that writes of others are no harm to the reference.
        unsafe { &*self.header }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        // SAFETY:
        // - the index is masked by our own copy of the capacity, for which `attach` has tested the size;
        // - a slot is an atomic and a cell, so that writes of others are no harm to the reference.
        unsafe { &*self.slots.add((position & self.mask) as usize) }
    }

    #[inline(always)]
    fn claim(&self, position: u64) -> &AtomicU64 {
        // SAFETY:
        // - as for slots.
        unsafe { &*self.claims.add((position & self.mask) as usize) }
    }

    /// From 1, so that nothing that is zero belongs to it.
    #[inline(always)]
    fn lap(&self, position: u64) -> u64 {
        (position >> self.lap_shift).wrapping_add(1) & LAP_MASK
    }
}

/// One producer's access to an inbox. Threads of the process may share it.
pub struct InboxWriter {
    ring: Ring,
    producer: u32,
    /// The head as it was seen last: at least up to there, records have been taken.
    taken: AtomicU64,
}

// SAFETY:
// - the pointers are to shared memory that stays mapped wherever the writer is; only atomics, and the record of a slot that
//   this very call has claimed, are accessed through them.
unsafe impl Send for InboxWriter {}
// SAFETY:
// - as above; calls in several threads are several producers to the protocol.
unsafe impl Sync for InboxWriter {}

impl InboxWriter {
    /// [`Self::attach_as`] with the id of this process as the producer's number. Costs a few loads.
    ///
    /// # Errors
    /// As for [`Self::attach_as`].
    ///
    /// # Safety
    /// As for [`Self::attach_as`].
    #[inline]
    pub unsafe fn attach(ptr: *mut u8, len: usize) -> Result<Self> {
        // SAFETY:
        // - the caller's promise.
        unsafe { Self::attach_as(ptr, len, process::id()) }
    }

    /// Attaches to the inbox at `ptr` as `producer`, the number that the consumer's `is_dead` will be asked about.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no inbox, if it does not fit in `len` bytes, or if `producer` is above
    /// [`MAX_PRODUCER`]; [`Error::Misaligned`] if `ptr` is not a multiple of [`InboxLayout::ALIGN`].
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `len` bytes for as long as the writer exists, and within
    /// this process the inbox's bytes are accessed through the types of this module only.
    #[inline]
    pub unsafe fn attach_as(ptr: *mut u8, len: usize, producer: u32) -> Result<Self> {
        if producer > MAX_PRODUCER {
            return Err(Error::InvalidArgument(format!(
                "producer {producer}: must not exceed {MAX_PRODUCER}"
            )));
        }
        // SAFETY:
        // - the caller's promise.
        let ring = unsafe { Ring::attach(ptr, len)? };
        Ok(Self {
            ring,
            producer,
            taken: AtomicU64::new(0),
        })
    }

    /// How many records the inbox holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Delivers a record to this inbox, or to `second` what this one has no room for. What is in that one is never overtaken: until it has
    /// been emptied, all goes there. False: neither has room.
    #[inline(always)]
    pub fn push_or(&self, second: &InboxWriter, record: Record) -> bool {
        second.is_drained() && self.try_push(record) || second.try_push(record)
    }

    /// Asks for the line that the next record will go to, so that it comes while other stores are under way.
    #[inline(always)]
    pub fn prefetch(&self) {
        let position = self.ring.header().tail.0.load(Relaxed);
        prefetch::for_store(std::ptr::from_ref(self.ring.slot(position)).cast());
    }

    /// Whether everything that this thread has delivered here has been taken. Two loads of lines that change only while records
    /// come and go.
    #[inline(always)]
    pub fn is_drained(&self) -> bool {
        let header = self.ring.header();
        header.tail.0.load(Relaxed) == header.head.0.load(Acquire)
    }

    /// Whether the record of the lap before `position` has been taken, so that its slot may be written.
    #[inline(always)]
    fn has_room(&self, position: u64) -> bool {
        // A position that has been taken meanwhile is below the head: its claim will tell.
        let within = |head: u64| position.wrapping_sub(head) as i64 <= self.ring.mask as i64;
        // Acquire, both: our write to the record comes after the consumer's reading of the one before.
        within(self.taken.load(Acquire)) || {
            let head = self.ring.header().head.0.load(Acquire);
            self.taken.store(head, Release);
            within(head)
        }
    }

    /// Delivers a record. The records of one thread arrive in the order of its calls, after everything that it wrote
    /// before has become visible to the consumer. Does not wait.
    ///
    /// # Errors
    /// [`Error::InboxFull`]: nothing was delivered; try again when the consumer has had time.
    #[inline]
    pub fn push(&self, record: Record) -> Result<()> {
        match self.try_push(record) {
            true => Ok(()),
            false => Err(Error::InboxFull),
        }
    }

    /// As [`push`](InboxWriter::push). False: there is no room.
    #[inline(always)]
    fn try_push(&self, record: Record) -> bool {
        let ring = &self.ring;
        let tail = &ring.header().tail.0;
        // Every turn but the last means that another producer got on. So many in one call can only come from a tail that
        // somebody has overwritten; the bound keeps us from following it for ever.
        for _ in 0..1024 + 64 * (ring.mask + 1) {
            let position = tail.load(Relaxed);
            let (lap, claim) = (ring.lap(position), ring.claim(position));
            let seen = Claim(claim.load(Relaxed));
            if seen.lap() == lap || is_after(seen.lap(), lap) {
                // Whoever did it may have died before moving the tail.
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
    // - only the claimant writes the record, and the consumer reads it only after the lap says so; volatile, as it is all the
    //   same in memory that garbled peers can write.
    slot.record.with_mut(|cell| unsafe {
        // Field by field: a record in memory would be loaded before it is stored.
        (&raw mut (*cell).source).write_volatile(record.source);
        (&raw mut (*cell).kind).write_volatile(record.kind);
        (&raw mut (*cell).len).write_volatile(record.len);
        (&raw mut (*cell).value).write_volatile(record.value);
        (&raw mut (*cell).offset).write_volatile(record.offset);
    });
    slot.lap.store(lap, Release);
}

/// The consumer's access to an inbox; there must be only one at a time.
pub struct InboxReader {
    ring: Ring,
    head: u64,
    lost: u64,
}

// SAFETY:
// - the pointers are to shared memory that stays mapped wherever the reader is; taking needs `&mut self`.
unsafe impl Send for InboxReader {}
// SAFETY:
// - what `&self` allows is to load atomics.
unsafe impl Sync for InboxReader {}

impl InboxReader {
    /// Attaches to the inbox at `ptr` to take records from where the reader before, if any, has stopped.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no inbox, or if it does not fit in `len` bytes; [`Error::Misaligned`] if
    /// `ptr` is not a multiple of [`InboxLayout::ALIGN`].
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `len` bytes for as long as the reader exists, within this process the
    /// inbox's bytes are accessed through the types of this module only, and no other reader of it exists anywhere.
    pub unsafe fn attach(ptr: *mut u8, len: usize) -> Result<Self> {
        // SAFETY:
        // - the caller's promise.
        let ring = unsafe { Ring::attach(ptr, len)? };
        let head = ring.header().head.0.load(Acquire);
        Ok(Self {
            ring,
            head,
            lost: 0,
        })
    }

    /// How many records the inbox holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// How many positions this reader has passed over: claimed by producers that died, or overwritten by garbled peers.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that have been claimed and not been taken, about.
    pub fn len(&self) -> usize {
        let tail = self.ring.header().tail.0.load(Relaxed);
        // A tail that its producer has not moved on yet may be behind.
        let ahead = tail.wrapping_sub(self.head) as i64;
        ahead.clamp(0, self.capacity() as i64) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Self::take`] has a record to give. One load.
    #[inline]
    pub fn has_work(&self) -> bool {
        let lap = &self.ring.slot(self.head).lap;
        lap.load(Acquire) == self.ring.lap(self.head)
    }

    /// Takes the next record, if there is one; everything that its producer wrote before is visible then. Does not wait.
    /// Records behind a position whose claimant is not done stay; if it has died, until [`Self::pass_over`].
    #[inline(always)]
    pub fn take(&mut self) -> Option<Record> {
        let slot = self.ring.slot(self.head);
        if slot.lap.load(Acquire) != self.ring.lap(self.head) {
            return None;
        }
        // SAFETY:
        // - the lap says that the record is written, and no producer writes it again before the head has moved on;
        // - were a garbled peer to do so nevertheless, a volatile read of plain integers gets some value.
        let record = slot.record.with(|cell| unsafe { cell.read_volatile() });
        self.go_on();
        Some(record)
    }

    /// Gives up positions that were claimed by producers which died before they wrote their records, so that
    /// [`Self::take`] gets at what comes behind them. To be called now and then while it finds nothing.
    ///
    /// `is_dead(producer)` must answer true only if no thread of the producer can run any more (a pidfd of the process polls
    /// readable).
    pub fn pass_over(&mut self, mut is_dead: impl FnMut(u32) -> bool) {
        // A ring full of garbage is passed over once.
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

    /// Gives the slot at the head to the producers of the next lap.
    #[inline(always)]
    fn go_on(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.ring.header().head.0.store(self.head, Release);
    }
}
