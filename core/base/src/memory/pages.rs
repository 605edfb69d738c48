//! Memory of whole pages, for a network's device alone. After a fork the child may lose the pages of registered memory, and with them
//! all other data there (ibv_fork_init(3), uTofu guide §6.1.4.1).

use std::ptr::null_mut;

use crate::{Error, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Zeroed memory. Drop unmaps it.
pub struct Pages {
    base: *mut u8,
    len: usize,
}

// SAFETY:
// - the value owns the memory.
unsafe impl Send for Pages {}
// SAFETY:
// - as for Send; a shared reference gives only the address.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, rounded up to pages. Errors: [`Error::Exhausted`] if the kernel has no memory.
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
        // - `new` mapped the memory, and this value is its only owner.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}
