//! The directory of a process: a region that lists other regions by number. Peers read it by one-sided gets.
//!
//! The owner need not answer, so peers can read the directory of a process that never calls the library. Each entry has a sequence number. It is even while no
//! write is in progress.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use parking_lot::Mutex;

use crate::Region;
use crate::bundle::{BUNDLE_LEN, RegionKey};
use crate::engine::Engine;
use crate::{Error, Result, Rights};

/// Number of region entries.
pub const REGION_IDS: usize = 256;
/// Maximum of groups that are formed, or being formed, at a time.
pub const GROUP_PLACES: usize = 256;

/// Two regions under a number: data, and their notification words.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct RegionEntry {
    sequence: u32,
    listed: u32,
    /// Key of the data.
    pub data: [u8; BUNDLE_LEN],
    /// Key of the notification words.
    pub notices: [u8; BUNDLE_LEN],
}

/// A member's arena for a group.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct GroupEntry {
    sequence: u32,
    listed: u32,
    /// Identifies the members, and the number of earlier groups of the same members.
    pub name: [u64; 2],
    /// Key of the arena.
    pub arena: [u8; BUNDLE_LEN],
}

impl GroupEntry {
    /// Whether the entry was ever listed, or is being written. `self` may be torn.
    pub fn was_used(&self) -> bool {
        (self.sequence, self.listed) != (0, 0)
    }

    /// Whether the entry may be the group of this name. `self` may be torn.
    pub fn may_be(&self, name: [u64; 2]) -> bool {
        self.name == name || !self.sequence.is_multiple_of(2)
    }
}

/// Offset of a region entry. All processes have the same offsets.
pub const fn region_entry(id: usize) -> usize {
    id * size_of::<RegionEntry>()
}
/// Offset of the group entries.
pub const GROUPS: usize = REGION_IDS * size_of::<RegionEntry>();
/// Reads of an entry during a write, after which its owner counts as dead.
const WRITING: usize = if cfg!(any(test, fuzzing)) {
    1000
} else {
    100_000
};
const BITS: usize = (GROUPS + GROUP_PLACES * size_of::<GroupEntry>()).next_multiple_of(64);

/// Offset of the word with the bit of rank `rank` for region `id`: set if the rank may see it.
pub fn visibility_word(id: usize, rank: usize, ranks: usize) -> usize {
    BITS + 8 * (id * ranks.div_ceil(64) + rank / 64)
}

/// Offset of the word with the incarnation of rank `rank` that the owner knows.
pub fn incarnation_word(rank: usize, ranks: usize) -> usize {
    BITS + 8 * REGION_IDS * ranks.div_ceil(64) + 4 * rank
}

fn directory_len(ranks: usize) -> usize {
    incarnation_word(ranks, ranks)
}

/// An entry as a peer reads it.
pub trait Listed: Pod {
    /// Whether the entry is listed.
    fn listed(&self) -> bool;
}

impl RegionEntry {
    /// An entry for two regions.
    pub fn new(data: &RegionKey, notices: &RegionKey) -> Self {
        RegionEntry {
            sequence: 0,
            listed: 1,
            data: *data.as_bytes(),
            notices: *notices.as_bytes(),
        }
    }
}

impl Listed for RegionEntry {
    fn listed(&self) -> bool {
        self.listed != 0
    }
}

impl Listed for GroupEntry {
    fn listed(&self) -> bool {
        self.listed != 0
    }
}

/// The directory of this process.
pub struct Directory {
    region: Region,
    ranks: usize,
    writing: Mutex<()>,
}

impl Directory {
    /// For a job of `ranks` processes.
    pub fn new(engine: &Engine, ranks: usize) -> Result<Self> {
        Ok(Directory {
            region: engine.allocate(directory_len(ranks), Rights::READ)?,
            ranks,
            writing: Mutex::new(()),
        })
    }

    /// The region of the directory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The key that peers import.
    pub fn key(&self) -> RegionKey {
        self.region.key()
    }

    /// Lists two regions under `id`. No rank may see them yet.
    pub fn list_region(&self, id: usize, data: &RegionKey, notices: &RegionKey) -> Result<()> {
        let entry = RegionEntry::new(data, notices);
        for word in 0..self.ranks.div_ceil(64) {
            self.bits(visibility_word(id, word * 64, self.ranks))?
                .store(0, Ordering::Release);
        }
        self.write(region_entry(id), &entry)
    }

    /// Lets `rank` see the entry `id`.
    pub fn show_region(&self, id: usize, rank: usize) -> Result<()> {
        self.bits(visibility_word(id, rank, self.ranks))?
            .fetch_or(1 << (rank % 64), Ordering::AcqRel);
        Ok(())
    }

    /// The incarnation of `rank` that this process knows. `rank` must be below the number of ranks.
    pub fn incarnation(&self, rank: u32) -> Result<&AtomicU32> {
        self.region
            .word(incarnation_word(rank as usize, self.ranks))
    }

    /// Takes `id` off the list.
    pub fn unlist_region(&self, id: usize) -> Result<()> {
        self.write(region_entry(id), &RegionEntry::zeroed())
    }

    /// Lists an arena in the first free entry, and returns the number of the entry. Errors: [`Error::Exhausted`].
    pub fn list_group(&self, name: [u64; 2], arena: &RegionKey) -> Result<usize> {
        for place in 0..GROUP_PLACES {
            let at = GROUPS + place * size_of::<GroupEntry>();
            let taken = self.region.word(at + offset_of!(GroupEntry, listed))?;
            // Claims the entry before the write, so that two threads never take the same one.
            if taken
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                let entry = GroupEntry {
                    sequence: 0,
                    listed: 1,
                    name,
                    arena: *arena.as_bytes(),
                };
                self.write(at, &entry)?;
                return Ok(place);
            }
        }
        Err(Error::Exhausted(format!(
            "groups (a process can be in {GROUP_PLACES} at a time)"
        )))
    }

    /// Frees an entry.
    pub fn unlist_group(&self, place: usize) -> Result<()> {
        self.write(
            GROUPS + place * size_of::<GroupEntry>(),
            &GroupEntry::zeroed(),
        )
    }

    fn bits(&self, offset: usize) -> Result<&AtomicU64> {
        let local = self.region.local(offset, 8)?;
        // SAFETY:
        // - in bounds. The region is page-aligned, the offset a multiple of 8. It lives as long as self. All accesses are atomic.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }

    fn write<T: Pod>(&self, at: usize, entry: &T) -> Result<()> {
        write_listed(&self.region, &self.writing, at, entry)
    }
}

/// Writes an entry at offset `at` of `region`, under the lock of its writers. The first word of the entry is its sequence number.
pub fn write_listed<T: Pod>(
    region: &Region,
    writing: &Mutex<()>,
    at: usize,
    entry: &T,
) -> Result<()> {
    let bytes = bytemuck::bytes_of(entry);
    region.local(at, bytes.len())?;
    let _writing = writing.lock();
    let sequence = region.word(at)?;
    sequence.fetch_add(1, Ordering::AcqRel);
    for (word, value) in (at + 4..at + bytes.len())
        .step_by(4)
        .zip(bytes[4..].chunks_exact(4))
    {
        let value = u32::from_ne_bytes(value.try_into().expect("four bytes"));
        region.word(word)?.store(value, Ordering::Release);
    }
    sequence.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// Reads the entry at offset `at` of a peer's directory by `get(offset, buffer)`. `Ok(None)`: the entry is not listed.
pub fn read_listed<T: Listed>(
    at: usize,
    mut get: impl FnMut(usize, &mut [u8]) -> Result<()>,
) -> Result<Option<T>> {
    let mut entry = T::zeroed();
    let (mut before, mut after) = (0u32, 0u32);
    for _ in 0..WRITING {
        // A get may write its bytes in any order. So separate gets read the sequence number before and after.
        get(at, bytemuck::bytes_of_mut(&mut before))?;
        get(at, bytemuck::bytes_of_mut(&mut entry))?;
        get(at, bytemuck::bytes_of_mut(&mut after))?;
        if before == after && after.is_multiple_of(2) {
            return Ok(entry.listed().then_some(entry));
        }
        // The owner is writing. That takes a few dozen nanoseconds, unless the owner has just lost its core.
        std::thread::yield_now();
    }
    // The owner has died during a write.
    Err(Error::PeerDead)
}

const _: () = assert!(
    size_of::<RegionEntry>().is_multiple_of(8) && size_of::<GroupEntry>().is_multiple_of(8)
);
const _: () =
    assert!(offset_of!(RegionEntry, sequence) == 0 && offset_of!(GroupEntry, sequence) == 0);
