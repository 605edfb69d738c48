//! Memory for the payloads of multicasts until all peers have fetched them.

use std::collections::VecDeque;
use std::sync::Arc;

use unipgas_base::{Result, Rights};
use unipgas_engine::Region;
use unipgas_engine::engine::Engine;

/// Bytes for payloads; a power of two.
const SIZE: u64 = 1 << 20;
const ALIGN: u64 = 64;

struct Entry {
    end: u64,
    readers: usize,
}

/// A ring of payloads that peers read. Room is freed in the order of the copies.
pub(super) struct Staging {
    region: Arc<Region>,
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    end: u64,
    free: u64,
}

impl Staging {
    pub(crate) fn new(engine: &Engine) -> Result<Self> {
        Ok(Staging {
            region: Arc::new(engine.allocate(SIZE as usize, Rights::READ)?),
            entries: VecDeque::new(),
            first: 0,
            end: 0,
            free: 0,
        })
    }

    /// Whether a payload of `len` bytes can be staged.
    pub(crate) fn holds(len: usize) -> bool {
        len as u64 <= SIZE / 2
    }

    pub(crate) fn region(&self) -> Arc<Region> {
        self.region.clone()
    }

    /// Copies a payload that `readers` peers will fetch. Returns its offset and its number for [`free`](Staging::free). `None`: there is no room.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    pub(crate) unsafe fn stage(
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
        // - contract of this call: the bytes are readable. The copy is within the region, in a part that no peer reads.
        unsafe { unipgas_base::copy::copy(data, self.region.base().add(offset), len) };
        self.end = begin + wanted;
        self.entries.push_back(Entry {
            end: self.end,
            readers,
        });
        Some((offset, self.first + self.entries.len() as u64 - 1))
    }

    /// Counts one reader less.
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
