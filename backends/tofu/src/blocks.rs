//! Registered memory of this process in blocks of one size: rings, sent messages, and fetched data.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::Result;
use unipgas_core::pages::Pages;

use crate::lanes::VcqLane;

struct Chunk {
    memory: Pages,
    registered: u64,
    /// STADD of the first block.
    stadd: u64,
}

#[derive(Default)]
struct State {
    chunks: Vec<Chunk>,
    /// Numbers of chunks, by their first STADDs.
    begins: BTreeMap<u64, u32>,
    free: Vec<u32>,
}

/// A pool of blocks of one size.
pub(crate) struct Blocks {
    lane: Arc<VcqLane>,
    /// Bytes of a block.
    pub size: usize,
    /// Number of blocks in a chunk, which is one registration.
    together: u32,
    most: u32,
    /// Unused bytes at the begin of a chunk.
    skipped: usize,
    state: Mutex<State>,
}

/// A block in use.
pub(crate) struct Block {
    home: Arc<Blocks>,
    /// Number of the block in the pool.
    pub number: u32,
    /// First byte.
    pub base: *mut u8,
    /// STADD of the first byte.
    pub stadd: u64,
}

// SAFETY:
// - the value owns its memory.
unsafe impl Send for Block {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Block {}

impl Blocks {
    /// An empty pool, which grows by `together` blocks up to `most`. `skipped`: number of unused block sizes at the begin of a chunk.
    pub fn new(lane: &Arc<VcqLane>, size: usize, together: u32, most: u32, skipped: usize) -> Self {
        Blocks {
            lane: lane.clone(),
            size,
            together,
            most,
            skipped: skipped * size,
            state: Mutex::default(),
        }
    }

    /// Allocates the first chunk, so that a failed [`take`](Blocks::take) is only a wait for a free block. Errors: as [`Pages::new`] and [`VcqLane::register`].
    pub fn begin(&self) -> Result<()> {
        self.more(&mut self.state.lock())
    }

    fn more(&self, state: &mut State) -> Result<()> {
        let there = state.chunks.len() as u32 * self.together;
        let len = self.skipped + self.size * self.together as usize;
        let memory = Pages::new(len)?;
        // SAFETY:
        // - `Blocks::drop` deregisters the memory before it is unmapped.
        let registered = unsafe { self.lane.register(memory.base(), len, false, None) }?;
        let stadd = registered + self.skipped as u64;
        state.begins.insert(stadd, state.chunks.len() as u32);
        state.chunks.push(Chunk {
            memory,
            registered,
            stadd,
        });
        state.free.extend((there..there + self.together).rev());
        Ok(())
    }

    /// Takes a free block; its bytes are arbitrary. `None`: no block is free now.
    pub fn take(self: &Arc<Self>) -> Option<Block> {
        let state = &mut *self.state.lock();
        let there = state.chunks.len() as u32 * self.together;
        if state.free.is_empty()
            && there < self.most
            && let Err(error) = self.more(state)
        {
            tracing::debug!("tofu: no more blocks of {} bytes: {error}", self.size);
        }
        let number = state.free.pop()?;
        let chunk = &state.chunks[(number / self.together) as usize];
        let at = (number % self.together) as usize * self.size;
        Some(Block {
            home: self.clone(),
            number,
            base: chunk.memory.base().wrapping_add(self.skipped + at),
            stadd: chunk.stadd + at as u64,
        })
    }

    /// Finds the block of the byte before the STADD `end`. Gives its number, and the offset of `end` in it.
    pub fn find(&self, end: u64) -> Option<(u32, usize)> {
        let state = self.state.lock();
        let last = end.checked_sub(1)?;
        let (begin, chunk) = state.begins.range(..=last).next_back()?;
        let at = (last - begin) as usize;
        let nth = at / self.size;
        if nth >= self.together as usize {
            return None;
        }
        Some((chunk * self.together + nth as u32, at % self.size + 1))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.home.state.lock().free.push(self.number);
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for chunk in &self.state.get_mut().chunks {
            self.lane.deregister(chunk.registered);
        }
    }
}
