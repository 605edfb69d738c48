//! A first-fit allocator for offsets in a buffer. Free neighbours merge. The same calls return the same offsets at each UE.

use std::collections::BTreeMap;
use std::ops::Range;

/// Lengths by offset.
pub(crate) struct Extents {
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
}

impl Extents {
    pub fn new(len: usize) -> Self {
        Extents::of(0..len)
    }

    pub fn of(range: Range<usize>) -> Self {
        Extents {
            free: BTreeMap::from([(range.start, range.len())]),
            used: BTreeMap::new(),
        }
    }

    /// Allocates `len` bytes and returns their offset. `None`: no gap is large enough, or `len` is 0.
    pub fn take(&mut self, len: usize) -> Option<usize> {
        let fits = |(_, free): &(&usize, &usize)| len > 0 && **free >= len;
        let (offset, free) = self.free.iter().find(fits).map(|(o, f)| (*o, *f))?;
        self.free.remove(&offset);
        if free > len {
            self.free.insert(offset + len, free - len);
        }
        self.used.insert(offset, len);
        Some(offset)
    }

    /// Frees an extent of [`take`](Extents::take). False: the offset is not allocated.
    pub fn give_back(&mut self, offset: usize) -> bool {
        let Some(mut len) = self.used.remove(&offset) else {
            return false;
        };
        let mut begin = offset;
        if let Some(after) = self.free.remove(&(offset + len)) {
            len += after;
        }
        if let Some((before, free)) = self.free.range(..offset).next_back().map(|(o, f)| (*o, *f))
            && before + free == offset
        {
            begin = before;
            len += free;
        }
        self.free.insert(begin, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_in_any_order() {
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut extents = Extents::new(96);
            let places: Vec<_> = (0..3).map(|_| extents.take(32).unwrap()).collect();
            assert_eq!(places, [0, 32, 64]);
            assert_eq!(extents.take(1), None);
            for nth in order {
                assert!(extents.give_back(places[nth]));
                assert!(!extents.give_back(places[nth]));
            }
            assert_eq!(extents.take(96), Some(0), "{order:?}");
        }
    }

    #[test]
    fn gaps_are_used_first() {
        let mut extents = Extents::new(1000);
        let places: Vec<_> = (0..4).map(|_| extents.take(100).unwrap()).collect();
        extents.give_back(places[1]);
        assert_eq!(extents.take(101), Some(400));
        assert_eq!(extents.take(60), Some(100));
        assert_eq!(extents.take(40), Some(160));
        assert_eq!((extents.take(0), extents.take(500)), (None, None));
        assert!(!extents.give_back(1));
    }
}
