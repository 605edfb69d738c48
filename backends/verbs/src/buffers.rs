//! Registered memory in pieces of one size, for messages.

use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::Result;
use unipgas_core::region::Rights;

use crate::device::{Device, Mr};
use unipgas_core::pages::Pages;

/// Bytes of a buffer: the longest message.
pub const MESSAGE: usize = 1 << 10;
/// Those for what is sent that are registered together.
const TOGETHER: u32 = 64;
/// The most of them.
const MOST: u32 = 1024;

struct Chunk {
    // Deregistered before the memory goes.
    mr: Mr,
    memory: Pages,
}

/// Buffers with numbers, of which there are more from time to time.
pub struct Pool {
    device: Arc<Device>,
    chunks: Vec<Chunk>,
    together: u32,
    /// The device writes there.
    written: bool,
}

impl Pool {
    /// None yet; so many come `together`.
    pub fn new(device: &Arc<Device>, together: u32, written: bool) -> Self {
        Pool {
            device: device.clone(),
            chunks: Vec::new(),
            together,
            written,
        }
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.chunks.len() as u32 * self.together
    }

    /// The numbers of some more. Errors: those of [`Device::register`].
    pub fn grow(&mut self) -> Result<std::ops::Range<u32>> {
        let count = self.together as usize;
        let memory = Pages::new(count * MESSAGE)?;
        // SAFETY:
        // - the memory goes after the registration, and nobody else uses it.
        let mr = unsafe {
            let rights = Rights::empty();
            (self.device).register(memory.base(), count * MESSAGE, rights, self.written)
        }?;
        let begin = self.len();
        self.chunks.push(Chunk { mr, memory });
        Ok(begin..self.len())
    }

    /// Where one is, and what the device calls that.
    pub fn at(&self, number: u32) -> Option<(*mut u8, u32)> {
        let chunk = self.chunks.get((number / self.together) as usize)?;
        let at = (number % self.together) as usize * MESSAGE;
        Some((chunk.memory.base().wrapping_add(at), chunk.mr.lkey()))
    }
}

struct State {
    pool: Pool,
    free: Vec<u32>,
}

/// Buffers for messages that are too long to be taken along.
pub struct Sends(Mutex<State>);

/// One of them, which is dropped when the network has read it.
pub struct Buffer {
    number: u32,
    home: Arc<Sends>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.0.lock().free.push(self.number);
    }
}

impl Sends {
    /// None yet.
    pub fn new(device: &Arc<Device>) -> Self {
        Sends(Mutex::new(State {
            pool: Pool::new(device, TOGETHER, false),
            free: Vec::new(),
        }))
    }

    /// One with these bytes, at most [`MESSAGE`]; where they are, and what the device calls that. `None`: there is none now. Errors: those of
    /// [`Device::register`].
    pub fn take(self: &Arc<Self>, bytes: &[u8]) -> Result<Option<(Buffer, *mut u8, u32)>> {
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
        // - the buffer is this call's, and holds that much.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(MESSAGE)) };
        let home = self.clone();
        Ok(Some((Buffer { number, home }, at, key)))
    }
}
