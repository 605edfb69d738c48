//! Registered message buffers of one size.

use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::{Result, Rights};

use crate::device::{Device, Mr};
use unipgas_core::pages::Pages;

/// Bytes of a buffer, and of the longest message.
pub const MESSAGE: usize = 1 << 10;
/// Number of send buffers in a registration.
const TOGETHER: u32 = 64;
/// Maximum number of send buffers.
const MOST: u32 = 1024;

struct Chunk {
    // First, because it deregisters the memory of the next field.
    mr: Mr,
    memory: Pages,
}

/// A growing pool of numbered buffers.
pub(crate) struct BufferPool {
    device: Arc<Device>,
    chunks: Vec<Chunk>,
    together: u32,
    /// The device writes to the buffers.
    written: bool,
}

impl BufferPool {
    /// An empty pool, which grows by `together` buffers.
    pub fn new(device: &Arc<Device>, together: u32, written: bool) -> Self {
        BufferPool {
            device: device.clone(),
            chunks: Vec::new(),
            together,
            written,
        }
    }

    /// Number of buffers.
    pub fn len(&self) -> u32 {
        self.chunks.len() as u32 * self.together
    }

    /// Adds buffers, and returns their numbers. Errors: as [`Device::register`].
    pub fn grow(&mut self) -> Result<std::ops::Range<u32>> {
        let count = self.together as usize;
        let memory = Pages::new(count * MESSAGE)?;
        // SAFETY:
        // - the chunk owns the memory, and drops the registration first.
        let mr = unsafe {
            let rights = Rights::empty();
            (self.device).register(memory.base(), count * MESSAGE, rights, self.written)
        }?;
        let begin = self.len();
        self.chunks.push(Chunk { mr, memory });
        Ok(begin..self.len())
    }

    /// Address and local key of a buffer.
    pub fn at(&self, number: u32) -> Option<(*mut u8, u32)> {
        let chunk = self.chunks.get((number / self.together) as usize)?;
        let at = (number % self.together) as usize * MESSAGE;
        Some((chunk.memory.base().wrapping_add(at), chunk.mr.lkey()))
    }
}

struct State {
    pool: BufferPool,
    free: Vec<u32>,
}

/// Buffers for messages that are too long for inline sends.
pub(crate) struct Sends(Mutex<State>);

/// A send buffer in use. Its drop frees it, when the network has read it.
pub(crate) struct SendBuffer {
    number: u32,
    home: Arc<Sends>,
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        self.home.0.lock().free.push(self.number);
    }
}

impl Sends {
    /// An empty pool.
    pub fn new(device: &Arc<Device>) -> Self {
        Sends(Mutex::new(State {
            pool: BufferPool::new(device, TOGETHER, false),
            free: Vec::new(),
        }))
    }

    /// A buffer with a copy of `bytes`, at most [`MESSAGE`], its address, and its local key. `None`: no buffer is free now. Errors: as
    /// [`Device::register`].
    pub fn take(self: &Arc<Self>, bytes: &[u8]) -> Result<Option<(SendBuffer, *mut u8, u32)>> {
        let State { pool, free } = &mut *self.0.lock();
        if free.is_empty() && pool.len() < MOST {
            free.extend(pool.grow()?);
        }
        let found = free
            .pop()
            .and_then(|number| Some((number, pool.at(number)?)));
        let Some((number, (at, key))) = found else {
            return Ok(None);
        };
        // SAFETY:
        // - no other call has this buffer. It has `MESSAGE` bytes.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(MESSAGE)) };
        let home = self.clone();
        Ok(Some((SendBuffer { number, home }, at, key)))
    }
}
