//! Memory that all ranks of a host map, with any network between them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::world::World;
use unipgas_base::{Deadline, Error, Result, descriptor};

/// The file behind shared memory. The other ranks open it through /proc.
pub struct HostFile(OwnedFd);

/// A mapping of the file. Drop unmaps it.
pub struct HostMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY:
// - shared memory, which its user accesses as such from any thread.
unsafe impl Send for HostMemory {}
// SAFETY:
// - as for Send.
unsafe impl Sync for HostMemory {}

/// Addresses at which mappings below 4 GiB are tried, and the distance between two tries.
const LOW: std::ops::Range<usize> = 0x1000_0000..0xf000_0000;
const STEP: usize = 16 << 20;

impl World {
    /// Whether all ranks are on the host of this one.
    pub fn is_on_one_host(&self) -> bool {
        let bootstrap = self.job().bootstrap();
        (0..self.size()).all(|rank| bootstrap.shares_host(rank))
    }

    /// Publishes `len` zeroed bytes under a name of at most 20 bytes. Call it before [`World::meet`]. Errors: [`Error::Os`], [`Error::Exhausted`].
    pub fn offer_host_memory(&self, name: &str, len: usize) -> Result<HostFile> {
        let file = descriptor::memory(name, MemfdFlags::empty());
        let file = file.map_err(|error| Error::os("memfd_create", error))?;
        descriptor::set_len(&file, len as u64, "shared memory")?;
        let inode = rustix::fs::fstat(&file).map_err(|error| Error::os("fstat", error))?;
        let words = [
            u64::from(std::process::id()),
            file.as_raw_fd() as u64,
            inode.st_ino,
        ];
        self.job()
            .publish(name, self.life_cycle, bytemuck::bytes_of(&words))?;
        Ok(HostFile(file))
    }

    /// Maps the `len` bytes that a rank of this host offers; `low`: below 4 GiB. Errors: [`Error::Os`]; [`Error::Exhausted`]: there is no room below 4 GiB.
    pub fn host_memory(&self, rank: u32, name: &str, len: usize, low: bool) -> Result<HostMemory> {
        let bytes = self
            .job()
            .fetch(rank, name, self.life_cycle, Deadline::Now)?;
        let mut words = [0u64; 3];
        let told = bytemuck::bytes_of_mut(&mut words);
        if bytes.len() != told.len() {
            return Err(Error::StaleRegion);
        }
        told.copy_from_slice(&bytes);
        let [pid, number, inode] = words;
        let path = format!("/proc/{pid}/fd/{number}");
        let file = descriptor::open(&path, OFlags::RDWR, Mode::empty())
            .map_err(|error| Error::os(&path, error))?;
        let stat = rustix::fs::fstat(&file).map_err(|error| Error::os("fstat", error))?;
        if stat.st_ino != inode || stat.st_size as u64 != len as u64 {
            return Err(Error::StaleRegion);
        }
        let map = |at: usize, flags| {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            let at = std::ptr::without_provenance_mut(at);
            // SAFETY:
            // - a new mapping, which replaces none.
            unsafe { mmap(at, len, rights, MapFlags::SHARED | flags, &file, 0) }
        };
        let base = match low {
            false => map(0, MapFlags::empty()).map_err(|error| Error::os("mmap", error))?,
            true => LOW
                .step_by(STEP)
                .find_map(|at| map(at, MapFlags::FIXED_NOREPLACE).ok())
                .ok_or_else(|| Error::Exhausted("addresses below 4 GiB".into()))?,
        };
        let base = NonNull::new(base.cast()).ok_or(Error::StaleRegion)?;
        Ok(HostMemory { base, len })
    }
}

impl HostMemory {
    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY:
        // - mapped by `host_memory`, and no borrow is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl std::fmt::Debug for HostFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HostFile").field(&self.0).finish()
    }
}
