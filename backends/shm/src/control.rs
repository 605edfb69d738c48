//! The control block at the beginning of every pool. Peers read it, and ring its bells, without help of the owner.

use std::mem::size_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::descriptor::{field_in, stat_of};
use unipgas_core::transport::LONGEST_MESSAGE;
use unipgas_core::{Error, Result, Rights, on_line, on_pair};

/// "unipgas" and the version of the layout. A process refuses a pool with another value.
pub const MAGIC: u64 = u64::from_le_bytes(*b"unipgas5");
/// Regions that a process can have registered at a time.
pub const SLOTS: usize = 16_384;
/// Maximum number of open requests to a process's agent.
pub const REQUESTS: usize = 64;
/// Marks a request that is a message.
pub const MESSAGE: u64 = 1 << 32;

/// Life of the process that owns the pool.
pub const ALIVE: u32 = 1;
/// The process has finalized.
pub const LEFT: u32 = 2;

/// The block at offset 0 of a pool. All bytes are zero until its initialisation.
#[repr(C)]
pub struct Control {
    /// [`MAGIC`], stored last when the owner initialises the block.
    pub magic: AtomicU64,
    /// Bytes of the pool file, which peers map whole.
    pub window: AtomicU64,
    /// Start time of the process in clock ticks after boot: tells it from a later one with the same pid.
    pub start_time: AtomicU64,
    /// Process id.
    pub pid: AtomicU32,
    /// [`ALIVE`] or [`LEFT`].
    pub state: AtomicU32,
    /// The file of adopted memory (offset = address in the owner), a descriptor number of the owner.
    pub mirror_fd: AtomicU32,
    /// Slots at and above this index have never been used.
    pub slots_used: AtomicU32,
    /// The bell of this process's waiting threads.
    pub bell: Bell,
    /// The bell of this process's agent.
    pub agent_bell: Bell,
    /// Number of requests to the agent; it wraps.
    pub asked: AtomicU32,
    /// Inode of the pipe that wakes the progress thread. 0: no pipe.
    pub alarm_inode: AtomicU64,
    /// Write end of the pipe, a descriptor number of the owner.
    pub alarm_fd: AtomicU32,
    /// For elements of this process's regions that no CPU changes atomically.
    pub locks: ElementLocks,
    /// Requests to the agent.
    pub requests: [AgentRequest; REQUESTS],
    /// Payloads of requests that are messages.
    pub messages: [ActiveMessage; REQUESTS],
    /// The registered regions.
    pub slots: [Slot; SLOTS],
}

on_line! {
    /// One registered region. It fills a cache line, because peers read `generation` at every access.
    #[repr(C)]
    pub struct Slot {
        /// Odd while the region is registered.
        pub generation: AtomicU32,
        /// [`Rights`] in the low bits, the [`RegionKind`] above them, then whether messages are handled.
        pub flags: AtomicU32,
        /// Offset in the pool file.
        pub offset: AtomicU64,
        /// Length in bytes.
        pub len: AtomicU64,
        /// Address in the owner.
        pub address: AtomicU64,
    }
}

/// How peers reach a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RegionKind {
    /// An extent of the pool.
    Pool = 0,
    /// Adopted user memory: the mirror file at the offset that is its address.
    Mirror = 1,
    /// Private user memory: copies by the kernel, atomics by the owner's agent.
    Private = 2,
}

const KIND_SHIFT: u32 = 8;
const HANDLED: u32 = 1 << 16;

/// Content of a slot.
#[derive(Debug, Clone, Copy)]
pub struct SlotEntry {
    /// The way to the region.
    pub kind: RegionKind,
    /// Rights of peers.
    pub rights: Rights,
    /// Offset in the pool file ([`RegionKind::Pool`]).
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Address in the owner.
    pub address: u64,
}

impl Slot {
    /// Publishes an entry; the slot must be free. Gives the generation that peers must find.
    pub fn open(&self, entry: SlotEntry) -> u32 {
        // A reader that began before the close, and sees one of these stores, finds the generation changed.
        fence(Ordering::Release);
        self.flags.store(
            entry.rights.bits() | (entry.kind as u32) << KIND_SHIFT,
            Ordering::Relaxed,
        );
        self.offset.store(entry.offset, Ordering::Relaxed);
        self.len.store(entry.len, Ordering::Relaxed);
        self.address.store(entry.address, Ordering::Relaxed);
        let live = (self.generation.load(Ordering::Relaxed) | 1).wrapping_add(
            // A live slot, which callers must not open, still gets a new odd number.
            2 * (self.generation.load(Ordering::Relaxed) & 1),
        );
        self.generation.store(live, Ordering::Release);
        live
    }

    /// A handler takes messages from now on. Only for the owner of the live slot.
    pub fn handle(&self) {
        self.flags.fetch_or(HANDLED, Ordering::AcqRel);
    }

    /// Whether a handler takes messages.
    pub fn is_handled(&self) -> bool {
        self.flags.load(Ordering::Acquire) & HANDLED != 0
    }

    /// Ends the registration if it still has `generation`.
    pub fn close(&self, generation: u32) {
        let _ = self.generation.compare_exchange(
            generation,
            generation.wrapping_add(1),
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        // The new generation is visible before later stores of the owner.
        fence(Ordering::Release);
    }

    /// Reads the entry of `generation`. Errors: [`Error::StaleRegion`].
    pub fn read(&self, generation: u32) -> Result<SlotEntry> {
        let before = self.generation.load(Ordering::Acquire);
        let flags = self.flags.load(Ordering::Relaxed);
        let entry = SlotEntry {
            kind: match (flags & !HANDLED) >> KIND_SHIFT {
                0 => RegionKind::Pool,
                1 => RegionKind::Mirror,
                2 => RegionKind::Private,
                _ => return Err(Error::StaleRegion),
            },
            rights: Rights::from_bits_truncate(flags & ((1 << KIND_SHIFT) - 1)),
            offset: self.offset.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            address: self.address.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let after = self.generation.load(Ordering::Relaxed);
        if before != generation || after != generation || generation & 1 == 0 {
            return Err(Error::StaleRegion);
        }
        Ok(entry)
    }
}

on_pair! {
    /// A request to the agent: an atomic operation on memory that only its owner can reach, or an active message.
    #[repr(C)]
    pub struct AgentRequest {
        /// 0 free; a pid: being written by that process; [`POSTED`]; [`TAKEN`]; [`DONE`]: the answer is there.
        pub state: AtomicU32,
        /// Pid of the waiting process, or a mark that it does not take the answer.
        pub requester: AtomicU32,
        /// Slot of the region.
        pub slot: AtomicU32,
        /// Generation of the region.
        pub generation: AtomicU32,
        /// Offset of the element.
        pub offset: AtomicU64,
        /// Operation and type, as their indices; or [`MESSAGE`] and a length in bytes.
        pub what: AtomicU64,
        /// The operand, up to 32 bytes; in the answer the previous value.
        pub operand: [AtomicU64; 4],
        /// The comparand, up to 32 bytes.
        pub compare: [AtomicU64; 4],
        /// 0 success, 1 stale, 2 unsupported, 3 misaligned, 4 out of bounds or denied, 5 locked for too long, 6 refused: the operand says how.
        pub status: AtomicU32,
    }
}

on_pair! {
    /// The active message of a request.
    #[repr(C)]
    pub struct ActiveMessage([AtomicU64; LONGEST_MESSAGE / 8]);
}

impl ActiveMessage {
    /// Writes at most [`LONGEST_MESSAGE`] bytes.
    pub fn write(&self, bytes: &[u8]) {
        for (to, from) in self.0.iter().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..from.len()].copy_from_slice(from);
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// The first `len` bytes, at most [`LONGEST_MESSAGE`].
    pub fn read(&self, len: usize) -> Vec<u8> {
        let words = self.0.iter().take(len.div_ceil(8));
        let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        bytes.take(len).collect()
    }
}

// The layout that `MAGIC` names.
#[cfg(target_arch = "x86_64")]
const _: () = {
    use std::mem::offset_of;
    assert!(
        size_of::<Slot>() == 64
            && size_of::<AgentRequest>() == 128
            && size_of::<ActiveMessage>() == LONGEST_MESSAGE.next_multiple_of(128)
    );
    assert!(
        offset_of!(Control, bell) == 128
            && offset_of!(Control, agent_bell) == 256
            && offset_of!(Control, asked) == 384
    );
    assert!(offset_of!(Control, locks) == 448 && offset_of!(Control, requests) == 768);
};

/// A request is complete and waits for the agent. Above every possible pid.
pub const POSTED: u32 = 0x8000_0001;
/// The agent has answered.
pub const DONE: u32 = 0x8000_0002;
/// A thread carries it out.
pub const TAKEN: u32 = 0x8000_0003;

/// Bytes at the beginning of a pool that are not for regions.
pub const CONTROL_LEN: usize = size_of::<Control>().next_multiple_of(4096);

/// Start time of `pid` in clock ticks after boot (field 22 of its stat file). Errors: [`Error::PeerDead`]; [`Error::Os`] where /proc
/// does not tell.
pub fn start_time(pid: u32) -> Result<u64> {
    field_in(&stat_of(pid)?, 22).ok_or(Error::PeerDead)
}

/// Whether a process still runs: neither gone nor on its way (then it has no memory any more). Yes where /proc does not tell.
pub fn is_running(pid: u32, start_time: u64) -> bool {
    match stat_of(pid) {
        Ok(stat) => field_in(&stat, 22) == Some(start_time) && field_in(&stat, 23) != Some(0),
        Err(error) => error != Error::PeerDead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of};
    use unipgas_core::cache::{LINE, PAIR};

    #[test]
    fn layout_keeps_hot_words_apart() {
        assert_eq!(size_of::<Slot>(), LINE);
        assert_eq!(size_of::<Bell>() % PAIR, 0);
        assert_eq!(align_of::<Control>() % PAIR, 0);
        assert_eq!(offset_of!(Control, bell) % PAIR, 0);
        assert!(size_of::<AgentRequest>() <= PAIR);
    }

    /// The owner closes and opens the slot during a read: the reader gets one entry or none, never parts of two.
    #[test]
    fn an_entry_is_that_of_its_generation() {
        // SAFETY:
        // - all-zero bytes are valid for a struct of atomics.
        let slot: Slot = unsafe { std::mem::zeroed() };
        let shown = AtomicU32::new(0);
        const ROUNDS: u64 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let generation = slot.open(SlotEntry {
                        kind: RegionKind::Pool,
                        rights: Rights::READ,
                        offset: round,
                        len: round,
                        address: round,
                    });
                    shown.store(generation, Ordering::Release);
                    if round < ROUNDS {
                        slot.close(generation);
                    }
                }
            });
            let mut last = 0;
            while last < ROUNDS {
                let generation = shown.load(Ordering::Acquire);
                if let Ok(entry) = slot.read(generation) {
                    // The first one is 1, and each closing and opening adds 2.
                    last = u64::from(generation).div_ceil(2);
                    assert_eq!((entry.offset, entry.len, entry.address), (last, last, last));
                }
            }
        });
    }

    #[test]
    fn a_closed_slot_is_stale_and_opens_with_a_new_generation() {
        // SAFETY:
        // - all-zero bytes are valid for a struct of atomics.
        let slot: Slot = unsafe { std::mem::zeroed() };
        let entry = SlotEntry {
            kind: RegionKind::Mirror,
            rights: Rights::READ,
            offset: 4096,
            len: 10,
            address: 77,
        };
        let first = slot.open(entry);
        assert_eq!(first & 1, 1);
        let read = slot.read(first).unwrap();
        assert_eq!(
            (read.len, read.address, read.kind),
            (10, 77, RegionKind::Mirror)
        );
        slot.close(first);
        assert!(matches!(slot.read(first), Err(Error::StaleRegion)));
        let second = slot.open(entry);
        assert_ne!(first, second);
        assert!(slot.read(first).is_err() && slot.read(second).is_ok());
        slot.close(first);
        assert!(slot.read(second).is_ok(), "an old close hit a new region");
    }
}
