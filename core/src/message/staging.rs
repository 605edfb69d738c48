//! Where the payloads of multicasts lie until everybody has fetched them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Result;
use crate::engine::Engine;
use crate::region::{Region, Rights};

/// Bytes for payloads; a power of two.
const SIZE: u64 = 1 << 20;
const ALIGN: u64 = 64;

struct Entry {
    end: u64,
    readers: usize,
}

/// A ring of payloads that peers read. Room is freed in the order in which it was taken.
pub(super) struct Staging {
    region: Arc<Region>,
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    end: u64,
    free: u64,
}

impl Staging {
    pub fn new(engine: &Engine) -> Result<Self> {
        Ok(Staging {
            region: Arc::new(engine.allocate(SIZE as usize, Rights::READ)?),
            entries: VecDeque::new(),
            first: 0,
            end: 0,
            free: 0,
        })
    }

    /// Whether payloads of `len` bytes can be staged at all.
    pub fn holds(len: usize) -> bool {
        len as u64 <= SIZE / 2
    }

    pub fn region(&self) -> Arc<Region> {
        self.region.clone()
    }

    /// Copies a payload that `readers` peers will fetch; gives its offset, and the number by which [`free`](Staging::free) knows
    /// it. `None`: there is no room.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    pub unsafe fn stage(
        &mut self,
        data: *const u8,
        len: usize,
        readers: usize,
    ) -> Option<(usize, u64)> {
        let wanted = (len as u64).next_multiple_of(ALIGN);
        let rest = SIZE - self.end % SIZE;
        let begin = if wanted > rest {
            self.end + rest
        } else {
            self.end
        };
        if begin + wanted - self.free > SIZE {
            return None;
        }
        let offset = (begin % SIZE) as usize;
        // SAFETY:
        // - readable by the caller's word; within the region, in a part that nobody reads.
        unsafe { crate::copy(data, self.region.base().add(offset), len) };
        self.end = begin + wanted;
        self.entries.push_back(Entry {
            end: self.end,
            readers,
        });
        Some((offset, self.first + self.entries.len() as u64 - 1))
    }

    /// One reader less.
    pub fn free(&mut self, number: u64) {
        let Some(entry) = number
            .checked_sub(self.first)
            .and_then(|nth| self.entries.get_mut(nth as usize))
        else {
            return;
        };
        entry.readers = entry.readers.saturating_sub(1);
        while let Some(entry) = self.entries.front()
            && entry.readers == 0
        {
            self.free = entry.end;
            self.first += 1;
            self.entries.pop_front();
        }
    }
}
