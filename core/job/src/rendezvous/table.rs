//! Contents of the file: a header, a record for each place, and resource words for each group of places.
//!
//! Records have two sides. A writer fills the hidden side, and then shows it by a store of the version. So a writer may die at any instruction without damage
//! to the visible state, and readers do not wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::process::Process;
use unipgas_base::{Error, Result, descriptor};
use unipgas_engine::bundle::BUNDLE_LEN;

/// Maximum number of places of a job.
pub const MAX_PLACES: u32 = 65536;
/// Size of the properties that the first process gives to all later ones, in bytes.
pub const PROPERTIES_LEN: usize = 64;
/// Limit of the file's length in bytes. The file is sparse: only used parts take memory.
const MAX_LEN: usize = 1 << 32;

/// Properties of the file that the processes of a job must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of places, 1 to [`MAX_PLACES`].
    pub places: u32,
    /// Consecutive places in a group. The last group may have fewer.
    pub places_per_group: u32,
    /// Resource words of each group.
    pub words_per_group: u32,
    /// The first process writes them. Values of later processes are ignored.
    pub properties: [u8; PROPERTIES_LEN],
}

const MAGIC: u64 = u64::from_ne_bytes(*b"unipgasR");
const VERSION: u64 = 2;

// Words of the header.
const H_MAGIC: usize = 0;
const H_VERSION: usize = 1;
const H_PLACES: usize = 2;
const H_PER_GROUP: usize = 3;
const H_WORDS: usize = 4;
const H_PROPERTIES: usize = 8;
/// Places below this one have memory.
const H_PLACES_USED: usize = 16;
/// Groups below this one have memory.
const H_GROUPS_USED: usize = 17;
/// Number of detected deaths.
const H_DEATHS: usize = 18;
const HEADER_WORDS: usize = 512;

// Words of a record: the version, then two sides. The last word is the generation plus one of the last process with a detected death.
const RECORD_WORDS: usize = 80;
const SIDE_WORDS: usize = 5 + 2 * BUNDLE_WORDS;
const BUNDLE_WORDS: usize = BUNDLE_LEN / 8;
const R_NOTICED: usize = RECORD_WORDS - 1;
const _: () = assert!(2 * SIDE_WORDS < R_NOTICED);

/// The address of a process and the key of its directory.
pub(super) type Published = ([u8; BUNDLE_LEN], [u8; BUNDLE_LEN]);

/// State of a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Counts the processes that have taken the place.
    pub generation: u32,
    /// The process that has the place.
    pub holder: Option<Process>,
    /// Address and key that it has published.
    pub published: Option<Published>,
}

const TAKEN: u64 = 1 << 32;
const PUBLISHED: u64 = 1 << 33;

fn to_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(8)
        .map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap_or_default()))
}

fn to_bytes<const LEN: usize>(words: &[u64]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

impl Entry {
    fn encode(&self) -> [u64; SIDE_WORDS] {
        let mut words = [0; SIDE_WORDS];
        words[0] = u64::from(self.generation);
        if let Some(holder) = self.holder {
            words[0] |= TAKEN;
            words[1] = u64::from(holder.pid);
            words[2] = holder.start;
            words[3] = holder.image;
        }
        if let Some((address, key)) = &self.published {
            words[0] |= PUBLISHED;
            for (word, value) in words[5..]
                .iter_mut()
                .zip(to_words(address).chain(to_words(key)))
            {
                *word = value;
            }
        }
        words
    }

    fn decode(words: &[u64; SIDE_WORDS]) -> Self {
        Entry {
            generation: words[0] as u32,
            holder: (words[0] & TAKEN != 0).then_some(Process {
                pid: words[1] as u32,
                start: words[2],
                image: words[3],
            }),
            published: (words[0] & PUBLISHED != 0).then(|| {
                (
                    to_bytes(&words[5..5 + BUNDLE_WORDS]),
                    to_bytes(&words[5 + BUNDLE_WORDS..]),
                )
            }),
        }
    }
}

impl Layout {
    /// Number of groups.
    pub(crate) fn groups(&self) -> u32 {
        self.places.div_ceil(self.places_per_group)
    }

    fn words_at(&self) -> usize {
        (HEADER_WORDS + self.places as usize * RECORD_WORDS).next_multiple_of(512)
    }

    /// Length of the file in bytes. Errors: [`Error::InvalidArgument`] if it is out of bounds.
    pub(super) fn len(&self) -> Result<usize> {
        if !(1..=MAX_PLACES).contains(&self.places) || self.places_per_group == 0 {
            return Err(Error::InvalidArgument(format!(
                "a rendezvous has 1 to {MAX_PLACES} places in groups of at least one, not {} in groups of {}",
                self.places, self.places_per_group
            )));
        }
        (self.groups() as usize)
            .checked_mul(self.words_per_group as usize)
            .and_then(|words| words.checked_add(self.words_at())?.checked_mul(8))
            .filter(|&len| len <= MAX_LEN)
            .map(|len| len.next_multiple_of(4096))
            .ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "{} groups of {} resource words are more than a rendezvous holds",
                    self.groups(),
                    self.words_per_group
                ))
            })
    }
}

/// The mapped file.
#[derive(Debug)]
pub(super) struct Table {
    base: NonNull<u64>,
    len: usize,
    pub layout: Layout,
}

// SAFETY:
// - the mapping lives until Drop and is not tied to a thread;
// - all accesses to its memory are atomic.
unsafe impl Send for Table {}
// SAFETY:
// - all methods take `&self`, and access the shared memory by atomics only.
unsafe impl Sync for Table {}

/// Allocates memory for a part of the file. Otherwise a store to a full file system ends in SIGBUS.
fn allocate(fd: BorrowedFd<'_>, from_word: usize, words: usize) -> Result<()> {
    let (from, len) = (from_word as u64 * 8, words as u64 * 8);
    match rustix::fs::fallocate(fd, FallocateFlags::empty(), from, len) {
        // Some file systems of /tmp do not support it.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        Err(rustix::io::Errno::NOSPC) => Err(Error::Exhausted(
            "memory in the file system of the rendezvous file (/dev/shm): remove files there"
                .into(),
        )),
        Err(error) => Err(Error::os(
            "cannot extend the rendezvous file (fallocate)",
            error,
        )),
    }
}

impl Table {
    fn map(file: impl AsFd, len: usize, layout: Layout) -> Result<Self> {
        // SAFETY:
        // - a new mapping at an address of the kernel's choice replaces no other mapping.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                0,
            )
        }
        .map_err(|e| Error::os("cannot map the rendezvous file (mmap)", e))?;
        let base = NonNull::new(base.cast()).ok_or(Error::Os("mmap gave null".into()))?;
        Ok(Table { base, len, layout })
    }

    /// Creates the table in an empty file that no other process uses.
    pub(crate) fn make(file: impl AsFd, layout: &Layout) -> Result<Self> {
        let len = layout.len()?;
        descriptor::set_len(&file, len as u64, "the rendezvous file")?;
        allocate(file.as_fd(), 0, HEADER_WORDS)?;
        let table = Self::map(file, len, *layout)?;
        for (index, value) in [
            (H_VERSION, VERSION),
            (H_PLACES, layout.places.into()),
            (H_PER_GROUP, layout.places_per_group.into()),
            (H_WORDS, layout.words_per_group.into()),
        ] {
            table.word(index).store(value, Ordering::Relaxed);
        }
        for (at, value) in to_words(&layout.properties).enumerate() {
            table
                .word(H_PROPERTIES + at)
                .store(value, Ordering::Relaxed);
        }
        // Stored last: a file without it belongs to a process that died here.
        table.word(H_MAGIC).store(MAGIC, Ordering::Release);
        Ok(table)
    }

    /// Maps the table of other processes. The properties come from the file; the other fields must equal `layout`.
    pub(crate) fn find(file: impl AsFd, layout: &Layout) -> Result<Self> {
        let len = layout.len()?;
        let damaged = || Error::InvalidArgument("its file is damaged: end them".into());
        let mut header = [0u8; 8 * (H_PROPERTIES + 8)];
        let got = rustix::io::pread(&file, &mut header, 0)
            .map_err(|e| Error::os("cannot read the rendezvous file", e))?;
        let word = |index: usize| {
            u64::from_ne_bytes(
                header[8 * index..8 * index + 8]
                    .try_into()
                    .unwrap_or_default(),
            )
        };
        if got != header.len() || word(H_MAGIC) != MAGIC {
            return Err(damaged());
        }
        if word(H_VERSION) != VERSION {
            return Err(Error::InvalidArgument(
                "they use another version of this library: use one for all".into(),
            ));
        }
        let theirs = (word(H_PLACES), word(H_PER_GROUP), word(H_WORDS));
        let ours = (
            layout.places.into(),
            layout.places_per_group.into(),
            layout.words_per_group.into(),
        );
        if theirs != ours {
            return Err(Error::InvalidArgument(format!(
                "they have {} places, {} to a group of {} words, this process wants {}, {} and {}",
                theirs.0, theirs.1, theirs.2, ours.0, ours.1, ours.2
            )));
        }
        let stat = rustix::fs::fstat(&file)
            .map_err(|e| Error::os("cannot measure the rendezvous file", e))?;
        if u64::try_from(stat.st_size) != Ok(len as u64) {
            return Err(damaged());
        }
        let words: Vec<u64> = (0..8).map(|at| word(H_PROPERTIES + at)).collect();
        let layout = Layout {
            properties: to_bytes(&words),
            ..*layout
        };
        Self::map(file, len, layout)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len / 8);
        // SAFETY:
        // - in bounds, as just checked, and page-aligned; the mapping lives as long as `self`;
        // - all processes access it by atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index)) }
    }

    /// Places from this number on were never in use.
    pub(crate) fn places_used(&self) -> u32 {
        let used = self.word(H_PLACES_USED).load(Ordering::Acquire);
        u32::try_from(used)
            .unwrap_or(u32::MAX)
            .min(self.layout.places)
    }

    /// Allocates memory for the places up to `place`. The caller holds the lock.
    pub(crate) fn use_place(&self, fd: BorrowedFd<'_>, place: u32) -> Result<()> {
        let used = self.places_used();
        if place >= used {
            let from = HEADER_WORDS + used as usize * RECORD_WORDS;
            allocate(fd, from, (place + 1 - used) as usize * RECORD_WORDS)?;
            self.word(H_PLACES_USED)
                .store(u64::from(place) + 1, Ordering::Release);
        }
        Ok(())
    }

    fn groups_used(&self) -> u32 {
        let used = self.word(H_GROUPS_USED).load(Ordering::Acquire);
        u32::try_from(used)
            .unwrap_or(u32::MAX)
            .min(self.layout.groups())
    }

    /// Allocates memory for the groups up to `group`. The caller holds the lock.
    pub(crate) fn use_group(&self, fd: BorrowedFd<'_>, group: u32) -> Result<()> {
        let used = self.groups_used();
        let each = self.layout.words_per_group as usize;
        if group >= used && each > 0 {
            let from = self.layout.words_at() + used as usize * each;
            allocate(fd, from, (group + 1 - used) as usize * each)?;
            self.word(H_GROUPS_USED)
                .store(u64::from(group) + 1, Ordering::Release);
        }
        Ok(())
    }

    /// The last shown state of a place. `None`: it was never in use. Plain loads, repeated if the state changes meanwhile.
    pub(crate) fn entry(&self, place: u32) -> Option<Entry> {
        if place >= self.places_used() {
            return None;
        }
        let record = HEADER_WORDS + place as usize * RECORD_WORDS;
        let mut version = self.word(record).load(Ordering::Acquire);
        loop {
            let side = record + 1 + (version as usize & 1) * SIDE_WORDS;
            let words = std::array::from_fn(|at| self.word(side + at).load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let now = self.word(record).load(Ordering::Relaxed);
            if now == version {
                return Some(Entry::decode(&words));
            }
            version = self.word(record).load(Ordering::Acquire);
        }
    }

    /// Shows a new state. The caller holds the lock, and the place is in use.
    pub(crate) fn show(&self, place: u32, entry: &Entry) {
        let record = HEADER_WORDS + place as usize * RECORD_WORDS;
        let version = self.word(record).load(Ordering::Relaxed);
        let next = version.wrapping_add(1);
        // Readers that began when this side was visible must find a changed version if they see any of these stores.
        fence(Ordering::Release);
        let side = record + 1 + (next as usize & 1) * SIDE_WORDS;
        for (at, word) in entry.encode().into_iter().enumerate() {
            self.word(side + at).store(word, Ordering::Relaxed);
        }
        self.word(record).store(next, Ordering::Release);
    }

    /// Counts the death of the process with this generation at `place`. A repeated call has no effect.
    pub(crate) fn mourn(&self, place: u32, generation: u32) {
        if place >= self.places_used() {
            return;
        }
        let mourned = self.word(HEADER_WORDS + place as usize * RECORD_WORDS + R_NOTICED);
        let mark = u64::from(generation) + 1;
        if mourned.swap(mark, Ordering::AcqRel) != mark {
            self.word(H_DEATHS).fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Number of counted deaths.
    pub(crate) fn deaths(&self) -> u64 {
        self.word(H_DEATHS).load(Ordering::Acquire)
    }

    fn resource(&self, group: u32, index: u32) -> &AtomicU64 {
        let each = self.layout.words_per_group as usize;
        self.word(self.layout.words_at() + group as usize * each + index as usize)
    }

    /// Place and generation that claimed a resource. `None`: it was never claimed, or was released.
    pub(crate) fn claimed(&self, group: u32, index: u32) -> Option<(u32, u32)> {
        if group >= self.groups_used() {
            return None;
        }
        let word = self.resource(group, index).load(Ordering::Acquire);
        let place = (word as u32).checked_sub(1)?;
        (place < self.layout.places).then_some((place, (word >> 32) as u32))
    }

    /// Stores the owner of a resource. The caller holds the lock, and the group is in use.
    pub(crate) fn claim(&self, group: u32, index: u32, owner: Option<(u32, u32)>) {
        let word = owner.map_or(0, |(place, generation)| {
            u64::from(generation) << 32 | (u64::from(place) + 1)
        });
        self.resource(group, index).store(word, Ordering::Release);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY:
        // - made by `mmap` with this length. No borrow of its words outlives `self`.
        // The result is ignored: unmapping an existing mapping cannot fail.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
