//! Entries of whole words in the order of arrival. Unlike in `VecDeque`, all calls are inlined.

/// A ring of entries of `N` words. It grows when it is full.
#[derive(Default)]
pub struct WordRing<const N: usize> {
    /// The length is a power of two, or 0.
    ring: Vec<[u64; N]>,
    first: usize,
    len: usize,
}

impl<const N: usize> WordRing<N> {
    /// A ring that grows beyond `entries` entries.
    pub fn with_room(entries: usize) -> Self {
        WordRing {
            ring: vec![[0; N]; entries.next_power_of_two()],
            first: 0,
            len: 0,
        }
    }

    /// Number of entries.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no entry.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry.
    #[inline(always)]
    pub fn push(&mut self, entry: [u64; N]) {
        if self.len == self.ring.len() {
            self.grow();
        }
        let mask = self.ring.len() - 1;
        let place = &mut self.ring[self.first.wrapping_add(self.len) & mask];
        for (place, word) in place.iter_mut().zip(entry) {
            // SAFETY:
            // - a reference, so valid for a write. Word by word: a copy of an entry just built in memory would wait for its own stores.
            unsafe { std::ptr::from_mut(place).write_volatile(word) };
        }
        self.len += 1;
    }

    /// Removes the oldest entry. The result stays valid until the next call.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<&[u64; N]> {
        if self.len == 0 {
            return None;
        }
        let mask = self.ring.len() - 1;
        let entry = &self.ring[self.first & mask];
        self.first = self.first.wrapping_add(1);
        self.len -= 1;
        Some(entry)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        if let Some(mask) = self.ring.len().checked_sub(1) {
            self.ring.rotate_left(self.first & mask);
        }
        self.first = 0;
        let more = (2 * self.ring.len()).max(16);
        self.ring.resize(more, [0; N]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_while_their_ring_grows() {
        let mut ring = WordRing::<2>::default();
        let (mut next, mut taken) = (0, 0);
        for round in 0..100 {
            for _ in 0..round {
                ring.push([next, !next]);
                next += 1;
            }
            for _ in 0..round / 2 {
                assert_eq!(ring.pop(), Some(&[taken, !taken]));
                taken += 1;
            }
            assert_eq!(ring.len() as u64, next - taken);
        }
        while let Some(entry) = ring.pop() {
            assert_eq!(*entry, [taken, !taken]);
            taken += 1;
        }
        assert_eq!(taken, next);
    }
}
