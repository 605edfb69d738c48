//! Memory that the transport allocates.

use std::collections::HashMap;

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use unipgas_base::{Error, Result};

/// Allocated memory. It stays mapped as long as the transport lives. Returned blocks are reused.
#[derive(Default)]
pub(super) struct Heap(Mutex<Blocks>);

#[derive(Default)]
struct Blocks {
    free: HashMap<usize, Vec<usize>>,
    all: Vec<(usize, usize)>,
}

impl Heap {
    pub fn take(&self, len: usize) -> Result<*mut u8> {
        let none = || Error::Exhausted(format!("memory for {len} bytes"));
        let whole = len
            .checked_next_multiple_of(rustix::param::page_size())
            .ok_or_else(none)?;
        let mut blocks = self.0.lock();
        if let Some(block) = blocks.free.get_mut(&whole).and_then(Vec::pop) {
            let block = std::ptr::with_exposed_provenance_mut::<u8>(block);
            // SAFETY:
            // - a free block of this length, without a user.
            unsafe { block.write_bytes(0, whole) };
            return Ok(block);
        }
        // SAFETY:
        // - a new mapping, placed by the kernel.
        let block = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                whole,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|_| none())?;
        blocks.all.push((block.expose_provenance(), whole));
        Ok(block.cast())
    }

    pub(crate) fn give_back(&self, base: *mut u8, len: usize) {
        let whole = len.next_multiple_of(rustix::param::page_size());
        let mut blocks = self.0.lock();
        blocks
            .free
            .entry(whole)
            .or_default()
            .push(base.expose_provenance());
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for (block, len) in &self.0.get_mut().all {
            // SAFETY:
            // - mapped by `take`. The transport that owns the memory is dropped.
            let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(*block), *len) };
        }
    }
}
