//! Registered memory of this process in pieces of one size: rings, and what is sent and fetched.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::Result;
use unipgas_core::pages::Pages;

use crate::lanes::Lane;

struct Chunk {
    memory: Pages,
    registered: u64,
    /// The first byte of the first piece.
    stadd: u64,
}

#[derive(Default)]
struct State {
    chunks: Vec<Chunk>,
    /// Numbers of chunks, by where they begin.
    begins: BTreeMap<u64, u32>,
    free: Vec<u32>,
}

/// The pieces.
pub struct Blocks {
    lane: Arc<Lane>,
    /// Bytes of each.
    pub size: usize,
    /// So many are registered together.
    together: u32,
    most: u32,
    /// Bytes ahead of those that are registered together, which nobody uses.
    skipped: usize,
    state: Mutex<State>,
}

/// One of them.
pub struct Block {
    home: Arc<Blocks>,
    /// Which one.
    pub number: u32,
    /// First byte.
    pub base: *mut u8,
    /// That of the first byte.
    pub stadd: u64,
}

// SAFETY:
// - who has it owns the memory, of which it tells where it is.
unsafe impl Send for Block {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Block {}

impl Blocks {
    /// None yet; so many come `together`, `most` at most. `skipped`: they begin so many sizes behind where they could.
    pub fn new(lane: &Arc<Lane>, size: usize, together: u32, most: u32, skipped: usize) -> Self {
        Blocks {
            lane: lane.clone(),
            size,
            together,
            most,
            skipped: skipped * size,
            state: Mutex::default(),
        }
    }

    /// The first ones are there, so that who has none left later only waits. Errors: those of [`Pages::new`] and [`Lane::register`].
    pub fn begin(&self) -> Result<()> {
        self.more(&mut self.state.lock())
    }

    fn more(&self, state: &mut State) -> Result<()> {
        let there = state.chunks.len() as u32 * self.together;
        let len = self.skipped + self.size * self.together as usize;
        let memory = Pages::new(len)?;
        // SAFETY:
        // - deregistered before the memory goes.
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

    /// One, with whatever bytes. `None`: there is none now.
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

    /// The number of the one in which the byte before this one is, and where that ends in it.
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
