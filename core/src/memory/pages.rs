//! Memory of whole pages, for a network's device alone: with what else is on a page of registered memory, the child of a fork may lose it (ibv_fork_init(3), uTofu guide
//! §6.1.4.1).

use std::ptr::null_mut;

use crate::{Error, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Zeroed, until it is dropped.
pub struct Pages {
    base: *mut u8,
    len: usize,
}

// SAFETY:
// - who has it owns the memory.
unsafe impl Send for Pages {}
// SAFETY:
// - as for Send: it only tells where it is.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `len` bytes. Errors: [`Error::Exhausted`].
    pub fn new(len: usize) -> Result<Self> {
        // SAFETY:
        // - a new mapping, placed by the kernel.
        let mapped = unsafe {
            let (rights, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            mmap_anonymous(null_mut(), len, rights, private)
        };
        let base = mapped.map_err(|_| Error::Exhausted(format!("memory for {len} bytes")))?;
        let base = base.cast();
        Ok(Pages { base, len })
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY:
        // - mapped by `new`, and nobody else's.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}
