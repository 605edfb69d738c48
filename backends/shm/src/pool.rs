//! The pool: one sparse memfd per process that holds its control block and every region that the library allocates.
//!
//! Peers map the whole file once; a region is an extent of it. The file has no name in any file system. So a killed process leaves
//! nothing: the kernel frees the memory when the last process unmaps it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use unipgas_core::descriptor::{self, file_limit};
use unipgas_core::{Error, Result};

use crate::adopt::on_valgrind;
use crate::control::{CONTROL_LEN, Control};

/// Small pages.
pub const PAGE: usize = 4096;
/// Huge pages; extents from this size on are aligned to it.
pub const HUGE: usize = 2 << 20;
/// Address space that the windows of all peers together may take.
const ADDRESS_SPACE: usize = 64 << 40;

/// A shared mapping of a file, unmapped when dropped.
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY:
// - the mapping is memory shared with other processes; all processes access it through atomics or raw copies.
unsafe impl Send for Mapping {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` at `offset` (multiples of a page), readable and writable, at an address aligned to 2 MiB
    /// relative to the file.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self> {
        let lead = (offset as usize) % HUGE;
        let reserved = (len.checked_add(lead + HUGE))
            .ok_or_else(|| Error::Exhausted("address space for shared memory".into()))?;
        // SAFETY:
        // - a fresh reservation at an address of the kernel's choice; nothing else lives there.
        let place = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reserved,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| {
            Error::os(
                &format!(
                    "mmap of {} GiB of address space (is it limited by ulimit -v?)",
                    len >> 30
                ),
                e,
            )
        })? as usize;
        let base = place.next_multiple_of(HUGE) + lead;
        // SAFETY:
        // - replaces and trims parts of the reservation that this call just made; base + len lies inside it.
        let mapped = unsafe {
            let mapped = rustix::mm::mmap(
                base as *mut _,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED,
                file,
                offset,
            );
            let (kept_from, kept_to) = match mapped {
                Ok(_) => (base, base + len),
                Err(_) => (place, place),
            };
            if kept_from > place {
                let _ = rustix::mm::munmap(place as *mut _, kept_from - place);
            }
            if place + reserved > kept_to {
                let _ = rustix::mm::munmap(kept_to as *mut _, place + reserved - kept_to);
            }
            mapped
        };
        mapped.map_err(|e| Error::os("mmap of shared memory", e))?;
        let mapping = Mapping {
            base: base as *mut u8,
            len,
        };
        // Keeps the memory of other processes out of core files of this process.
        mapping.advise(0, len, Advice::LinuxDontDump);
        Ok(mapping)
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    fn advise(&self, offset: usize, len: usize, advice: Advice) {
        debug_assert!(offset + len <= self.len);
        // SAFETY:
        // - the range lies in our mapping; this advice never changes contents.
        let _ = unsafe { rustix::mm::madvise(self.base.add(offset).cast(), len, advice) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY:
        // - made by `new`; a holder of pointers into the mapping keeps the `Mapping` alive.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// A view of a pool of this process or of a peer.
pub struct PoolView {
    mapping: Mapping,
}

impl PoolView {
    /// Maps the pool in `file`, which is `window` bytes long.
    pub fn map(file: BorrowedFd<'_>, window: usize) -> Result<Self> {
        if window < CONTROL_LEN || !window.is_multiple_of(4 * HUGE) {
            return Err(Error::Unreachable("not a unipgas pool".into()));
        }
        let mapping = Mapping::new(file, 0, window)?;
        // Large extents live in the upper part, where a fault brings 2 MiB at a time.
        mapping.advise(window / 4, window - window / 4, Advice::LinuxHugepage);
        Ok(PoolView { mapping })
    }

    /// The control block.
    pub fn control(&self) -> &Control {
        // SAFETY:
        // - the mapping is at least CONTROL_LEN bytes (checked by `map`) and page-aligned; Control consists of atomics, valid for
        //   any bytes.
        unsafe { &*self.mapping.base().cast::<Control>() }
    }

    /// The address of `offset`, if `len` bytes there are inside the window.
    pub fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= self.mapping.bytes() as u64)
            .then(|| self.mapping.base().wrapping_add(offset as usize))
    }
}

/// This process's pool.
pub struct MemoryPool {
    file: OwnedFd,
    view: Arc<PoolView>,
    free: Mutex<FreeExtents>,
}

impl MemoryPool {
    /// Creates the pool for a process with about `peers` peers on this machine.
    pub fn create(peers: usize) -> Result<Self> {
        let file = descriptor::memory("unipgas-pool", MemfdFlags::empty())
            .map_err(|e| Error::os("memfd_create", e))?;
        let window = window_len(peers)?;
        rustix::fs::ftruncate(&file, window as u64).map_err(|e| Error::os("ftruncate", e))?;
        let view = PoolView::map(file.as_fd(), window)?;
        Ok(MemoryPool {
            file,
            view: Arc::new(view),
            free: Mutex::new(FreeExtents::new(window)),
        })
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The mapping of the pool in this process.
    pub fn view(&self) -> &PoolView {
        &self.view
    }

    /// The same mapping, as a reference to keep.
    pub fn view_shared(&self) -> Arc<PoolView> {
        self.view.clone()
    }

    /// Allocates `len` zeroed bytes. Returns their offset.
    pub fn take(&self, len: usize) -> Result<u64> {
        self.free.lock().take(len).ok_or_else(|| {
            Error::Exhausted(format!(
                "room in the pool for a region of {len} bytes (the pool has {} GiB)",
                self.view.mapping.bytes() >> 30
            ))
        })
    }

    /// Returns the memory to the system, and the extent to later regions.
    pub fn give_back(&self, offset: u64, len: usize) {
        let len = extent_len(len);
        // If the kernel refuses, the extent keeps old bytes and stays unused: they must not appear in a later region.
        if rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len as u64,
        )
        .is_ok()
        {
            self.free.lock().put(offset as usize, len);
        }
    }
}

/// Minimum size of a pool.
const LEAST: usize = 64 << 20;

/// Size of the window: twice the machine's memory, so that sparse regions have room. The windows of all peers together must fit into
/// `ADDRESS_SPACE`, and each window into this process's limits (peers probably have the same). Errors: [`Error::Exhausted`] if the limits are too low.
fn window_len(peers: usize) -> Result<usize> {
    let info = rustix::system::sysinfo();
    let memory = info.totalram as usize * info.mem_unit.max(1) as usize;
    let wish = (2 * memory).next_power_of_two().max(16 << 30);
    let share = (ADDRESS_SPACE / peers.max(1)).next_power_of_two() / 2;
    let wish = wish.min(share.max(1 << 30));
    let space = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let limits = [
        ("ulimit -f", file_limit(), 1),
        // The program keeps half of the limit.
        ("ulimit -v", space, 2 * (peers.max(1) + 1)),
    ];
    let mut window = if on_valgrind() {
        wish.min(1 << 30)
    } else {
        wish
    };
    for (name, limit, sharers) in limits {
        let Some(limit) = limit else { continue };
        let share = usize::try_from(limit).unwrap_or(usize::MAX) / sharers;
        if share < LEAST {
            return Err(Error::Exhausted(format!(
                "room for a pool of {} MiB: {name} allows {} MiB; raise it",
                LEAST >> 20,
                share >> 20
            )));
        }
        window = window.min(1 << share.ilog2());
    }
    Ok(window)
}

fn extent_len(len: usize) -> usize {
    len.max(1)
        .next_multiple_of(if len >= HUGE { HUGE } else { PAGE })
}

/// Free extents of the two areas (below a quarter: small pages; above: huge pages), by offset.
struct FreeExtents {
    border: usize,
    free: BTreeMap<usize, usize>,
}

impl FreeExtents {
    fn new(window: usize) -> Self {
        let border = window / 4;
        FreeExtents {
            border,
            free: BTreeMap::from([
                (CONTROL_LEN, border - CONTROL_LEN),
                (border, window - border),
            ]),
        }
    }

    fn take(&mut self, len: usize) -> Option<u64> {
        let len = (len <= isize::MAX as usize).then(|| extent_len(len))?;
        let from = if len >= HUGE { self.border } else { 0 };
        let (&offset, &room) = self
            .free
            .range(from..)
            .find(|(offset, room)| **room >= len && (len >= HUGE || **offset < self.border))?;
        self.free.remove(&offset);
        if room > len {
            self.free.insert(offset + len, room - len);
        }
        Some(offset as u64)
    }

    fn put(&mut self, mut offset: usize, mut len: usize) {
        if let Some((&before, &room)) = self.free.range(..offset).next_back()
            && before + room == offset
            && offset != self.border
        {
            self.free.remove(&before);
            offset = before;
            len += room;
        }
        if offset + len != self.border
            && let Some(room) = self.free.remove(&(offset + len))
        {
            len += room;
        }
        self.free.insert(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_come_back_whole() {
        let mut free = FreeExtents::new(1 << 30);
        let initial = free.free.clone();
        let taken: Vec<_> = [1, PAGE, PAGE + 1, HUGE, 3 * HUGE + 5, 10]
            .iter()
            .map(|len| (free.take(*len).unwrap() as usize, extent_len(*len)))
            .collect();
        for (i, (offset, len)) in taken.iter().enumerate() {
            assert_eq!(offset % if *len >= HUGE { HUGE } else { PAGE }, 0);
            for (other, other_len) in &taken[i + 1..] {
                assert!(offset + len <= *other || other + other_len <= *offset);
            }
        }
        for (offset, len) in taken.iter().rev() {
            free.put(*offset, *len);
        }
        assert_eq!(free.free, initial);
        assert!(free.take(2 << 30).is_none());
        assert!(free.take(usize::MAX).is_none());
    }

    #[test]
    fn freed_memory_reads_as_zero_when_taken_again() {
        let pool = MemoryPool::create(1).unwrap();
        let offset = pool.take(100).unwrap();
        let at = pool.view().at(offset, 100).unwrap();
        // SAFETY:
        // - 100 bytes that this test alone uses.
        unsafe { at.write_bytes(7, 100) };
        pool.give_back(offset, 100);
        assert_eq!(pool.take(100).unwrap(), offset);
        // SAFETY:
        // - as above.
        assert_eq!(unsafe { at.read() }, 0);
    }
}
