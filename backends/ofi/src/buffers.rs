//! Buffers for sends and receives.

use std::ffi::c_void;
use std::ptr::null_mut;

use crossbeam::queue::ArrayQueue;
use unipgas_core::{Result, Rights};

use crate::fabric::{Fabric, OfiRegistration};

/// Bytes of a buffer: the longest message.
pub const MESSAGE: usize = 8 << 10;

/// Buffers for sends, or for receives.
pub(crate) struct Buffers {
    registration: Option<OfiRegistration>,
    memory: Box<[[u8; MESSAGE]]>,
    first: *mut [u8; MESSAGE],
    free: ArrayQueue<usize>,
}

// SAFETY:
// - a buffer belongs to the thread that has taken its number from `free`, or to the provider.
unsafe impl Send for Buffers {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// Allocates `count` buffers. If the provider needs registered operands, registers them under `key`, which no peer knows.
    pub fn new(count: usize, fabric: &Fabric, key: u64) -> Result<Self> {
        let mut memory = vec![[0; MESSAGE]; count].into_boxed_slice();
        let first = memory.as_mut_ptr();
        let registration = match fabric.traits.local {
            // SAFETY:
            // - the memory lives as long as the registration, which is dropped first.
            true => Some(unsafe {
                fabric.register(first.cast(), count * MESSAGE, Rights::empty(), key)
            }?),
            false => None,
        };
        let free = ArrayQueue::new(count);
        for number in 0..count {
            let _ = free.push(number);
        }
        Ok(Buffers {
            registration,
            memory,
            first,
            free,
        })
    }

    /// Takes a free buffer. The caller owns it until it [gives it back](Buffers::give_back).
    pub fn take(&self) -> Option<usize> {
        self.free.pop()
    }

    /// Returns a buffer that neither the caller nor the provider uses.
    pub fn give_back(&self, number: usize) {
        let _ = self.free.push(number);
    }

    /// Whether all buffers are free.
    pub fn is_whole(&self) -> bool {
        self.free.is_full()
    }

    /// Address of the buffer.
    pub fn at(&self, number: usize) -> *mut u8 {
        debug_assert!(number < self.memory.len());
        self.first.wrapping_add(number).cast()
    }

    /// Descriptor of the registration, for operands. Null without a registration.
    pub fn desc(&self) -> *mut c_void {
        self.registration
            .as_ref()
            .map_or(null_mut(), OfiRegistration::desc)
    }
}
