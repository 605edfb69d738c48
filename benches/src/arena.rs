//! Memory shared by the processes of one measurement: a memfd that the launcher makes and every process maps.
//!
//! Layout: 64 KiB of control words, a text area for the results of rank 0, and one sparse area per rank for the bare measurements.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes between two words that must not share a cache line, or a pair of lines that the processor fetches together.
pub const LINE: usize = 128;
const TEXT: usize = 64 << 10;
const AREAS: usize = 2 << 20;
/// Bytes of one rank's area.
pub const AREA: usize = 160 << 20;

const ARRIVED: usize = 0;
const GENERATION: usize = LINE;
const TEXT_LEN: usize = 2 * LINE;
/// Offset of three control words: the time of the launch, the latest time at which a process entered main, and the latest end of an initialisation.
pub const STARTS: usize = 3 * LINE;
/// Offset of control words that measurements use freely.
pub const SCRATCH: usize = 4096;

/// The mapping.
pub(crate) struct Arena {
    base: *mut u8,
    len: usize,
    ranks: usize,
    fd: OwnedFd,
}

impl Arena {
    /// A new arena for `ranks` processes, all zero.
    pub fn create(ranks: u32) -> Result<Arena, String> {
        let fd = memfd_create("unipgas-bench", MemfdFlags::CLOEXEC)
            .map_err(|e| format!("memfd_create: {e}"))?;
        let ranks = ranks as usize;
        ftruncate(&fd, (AREAS + ranks * AREA) as u64).map_err(|e| format!("ftruncate: {e}"))?;
        Self::map(fd, ranks)
    }

    /// Maps the arena of the process `token` = "pid:fd".
    pub fn open(token: &str, ranks: u32) -> Result<Arena, String> {
        let (pid, fd) = token
            .split_once(':')
            .ok_or_else(|| format!("'{token}' is not PID:FD"))?;
        let path = format!("/proc/{pid}/fd/{fd}");
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| format!("{path}: {e}"))?;
        Self::map(file.into(), ranks as usize)
    }

    /// Argument for [`Arena::open`] in another process. It is valid while this arena exists.
    pub fn token(&self) -> String {
        format!("{}:{}", std::process::id(), self.fd.as_raw_fd())
    }

    fn map(fd: OwnedFd, ranks: usize) -> Result<Arena, String> {
        let len = AREAS + ranks * AREA;
        // SAFETY:
        // - a null hint lets the kernel choose free addresses, so no existing mapping is replaced
        // - `fd` is a memfd of at least `len` bytes
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }
        .map_err(|e| format!("mmap of {len} bytes: {e}"))?;
        Ok(Arena {
            base: base.cast(),
            len,
            ranks,
            fd,
        })
    }

    /// Address of `len` bytes at `offset`.
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "offset {offset} + {len} outside the arena"
        );
        // SAFETY:
        // - the assertion keeps the result inside the mapping
        unsafe { self.base.add(offset) }
    }

    /// Address of `len` bytes at `offset` of the area of `rank`.
    pub fn area(&self, rank: usize, offset: usize, len: usize) -> *mut u8 {
        assert!(
            rank < self.ranks && offset.checked_add(len).is_some_and(|end| end <= AREA),
            "outside the area"
        );
        self.at(AREAS + rank * AREA + offset, len)
    }

    /// The 64-bit word at `offset` of the area of `rank`.
    pub fn word(&self, rank: usize, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY:
        // - `area` checked that the 8 bytes are mapped while `self` exists
        // - mapping and offset are 8-byte aligned
        // - these words are used through atomics only
        unsafe { &*self.area(rank, offset, 8).cast() }
    }

    /// The 32-bit word at `offset` of the area of `rank`.
    pub fn word32(&self, rank: usize, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY:
        // - `area` checked that the 4 bytes are mapped while `self` exists
        // - mapping and offset are 4-byte aligned
        // - these words are used through atomics only
        unsafe { &*self.area(rank, offset, 4).cast() }
    }

    /// A 64-bit control word.
    pub fn control(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= TEXT);
        // SAFETY:
        // - `at` checked that the 8 bytes are mapped while `self` exists
        // - mapping and offset are 8-byte aligned
        // - these words are used through atomics only
        unsafe { &*self.at(offset, 8).cast() }
    }

    /// Waits until all ranks have arrived. It calls `relax` between polls.
    pub fn sync(&self, mut relax: impl FnMut()) {
        let (arrived, generation) = (self.control(ARRIVED), self.control(GENERATION));
        let mine = generation.load(Ordering::Acquire);
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.ranks as u64 {
            arrived.store(0, Ordering::Relaxed);
            generation.store(mine + 1, Ordering::Release);
        } else {
            while generation.load(Ordering::Acquire) == mine {
                relax();
            }
        }
    }

    /// Appends a line to the results. Only rank 0 calls it. A line that does not fit is dropped.
    pub fn say(&self, line: &str) {
        let len = self.control(TEXT_LEN);
        let old = len.load(Ordering::Relaxed) as usize;
        if TEXT + old + line.len() + 1 > AREAS {
            return;
        }
        let to = self.at(TEXT + old, line.len() + 1);
        // SAFETY:
        // - `at` checked that the bytes are mapped
        // - readers stop at the length, which is raised below
        unsafe {
            to.copy_from_nonoverlapping(line.as_ptr(), line.len());
            to.add(line.len()).write(b'\n');
        }
        len.store((old + line.len() + 1) as u64, Ordering::Release);
    }

    /// The results of rank 0 up to this point.
    pub fn text(&self) -> String {
        let len = (self.control(TEXT_LEN).load(Ordering::Acquire) as usize).min(AREAS - TEXT);
        // SAFETY:
        // - the bytes are mapped; below the length just read, each is written once
        let bytes = unsafe { std::slice::from_raw_parts(self.at(TEXT, len), len) };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY:
        // - `map` made the mapping with this length
        // - references into it borrow `self`, so none is left
        // An error is ignored: the mapping then stays until the process ends.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}
