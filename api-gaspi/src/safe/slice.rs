//! Ranges of memory for operations.

use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use unipgas_core::words;

use super::Element;

/// Elements of a [`Segment`](super::Segment) or a [`Buffer`](super::Buffer), as the source of a write. This process does not change them during
/// the borrow. Other processes may change elements of a segment at any time. So methods copy elements out, and return no `&[T]`.
///
/// Methods panic if an index or a range is out of bounds, as for `[T]`.
pub struct Slice<'a, T> {
    base: *const T,
    place: Place,
    lent: PhantomData<&'a [T]>,
}

/// Elements of a [`Segment`](super::Segment) or a [`Buffer`](super::Buffer), as the destination of a read or of local changes. The borrow
/// excludes other uses in this process. Otherwise as [`Slice`].
pub struct SliceMut<'a, T> {
    base: *mut T,
    place: Place,
    lent: PhantomData<&'a mut [T]>,
}

/// Elements of a segment of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub segment: u8,
    pub first: usize,
    pub len: usize,
}

impl Place {
    fn range(self, range: impl RangeBounds<usize>) -> (usize, Self) {
        let Range { start, end } = within(range, self.len);
        let place = Place {
            first: self.first + start,
            len: end - start,
            ..self
        };
        (start, place)
    }
}

/// Bounds of a range of `len` elements. Panics as `[T]` if the range is out of bounds.
#[track_caller]
fn within(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    assert!(
        start <= end && end <= len,
        "the range {start}..{end} is not within {len} elements"
    );
    start..end
}

// SAFETY:
// - only atomic accesses use the memory. Any thread may use elements (`T: Element`).
unsafe impl<T: Element> Send for Slice<'_, T> {}
// SAFETY:
// - as for Send.
unsafe impl<T: Element> Sync for Slice<'_, T> {}
// SAFETY:
// - as above.
unsafe impl<T: Element> Send for SliceMut<'_, T> {}
// SAFETY:
// - as above.
unsafe impl<T: Element> Sync for SliceMut<'_, T> {}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<'a, T: Element> Slice<'a, T> {
    /// # Safety
    /// `base` points to the elements of `place`. They exist for the lifetime, and no plain store of this process changes them.
    pub(super) unsafe fn new(base: *const T, place: Place) -> Self {
        Slice {
            base,
            place,
            lent: PhantomData,
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.place.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.place.len == 0
    }

    /// A part of the elements.
    #[track_caller]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Slice<'a, T> {
        let (start, place) = self.place.range(range);
        Slice {
            base: self.base.wrapping_add(start),
            place,
            ..self
        }
    }

    /// The elements before `mid`, and the rest.
    #[track_caller]
    pub fn split_at(self, mid: usize) -> (Slice<'a, T>, Slice<'a, T>) {
        (self.slice(..mid), self.slice(mid..))
    }

    /// An element. If its size is 1, 2, 4 or 8 bytes and equals its alignment, the read is atomic. Another element may have old and new parts while
    /// another process writes to it.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        let mut value = [T::zeroed()];
        self.slice(index..).slice(..1).copy_to(&mut value);
        value[0]
    }

    /// Copies all elements to a slice of the same length.
    #[inline]
    #[track_caller]
    pub fn copy_to(&self, to: &mut [T]) {
        assert_eq!(self.len(), to.len(), "as many elements at both ends");
        // SAFETY:
        // - contract of `new`: `base` points to `len` elements, and this process accesses them only with atomics. Both lengths are equal.
        unsafe { words::load(self.base, to) };
    }

    /// Copies all elements to a vector.
    pub fn to_vec(&self) -> Vec<T> {
        let mut all = vec![T::zeroed(); self.len()];
        self.copy_to(&mut all);
        all
    }

    /// Iterates over the elements. Each step reads an element.
    pub fn iter(self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + use<'a, T> {
        (0..self.len()).map(move |index| self.get(index))
    }
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// # Safety
    /// `base` points to the elements of `place`. They exist for the lifetime, and this process does not use them in another way.
    pub(super) unsafe fn new(base: *mut T, place: Place) -> Self {
        SliceMut {
            base,
            place,
            lent: PhantomData,
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.place.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.place.len == 0
    }

    /// The elements as the source of a write, or to read them here.
    pub fn as_slice(&self) -> Slice<'_, T> {
        // SAFETY:
        // - the borrow of `self` excludes changes in this process.
        unsafe { Slice::new(self.base, self.place) }
    }

    /// The same elements for a shorter lifetime. `self` is usable again after it.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        // SAFETY:
        // - the exclusive borrow of `self` excludes other uses.
        unsafe { SliceMut::new(self.base, self.place) }
    }

    /// A part of the elements.
    #[track_caller]
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> SliceMut<'a, T> {
        let (start, place) = self.place.range(range);
        SliceMut {
            base: self.base.wrapping_add(start),
            place,
            ..self
        }
    }

    /// The elements before `mid`, and the rest, for different threads or operations.
    #[track_caller]
    pub fn split_at_mut(self, mid: usize) -> (SliceMut<'a, T>, SliceMut<'a, T>) {
        let (base, lent) = (self.base, self.lent);
        let part = |(start, place): (usize, Place)| SliceMut {
            base: base.wrapping_add(start),
            place,
            lent,
        };
        (part(self.place.range(..mid)), part(self.place.range(mid..)))
    }

    /// An element; see [`Slice::get`].
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        self.as_slice().get(index)
    }

    /// Changes an element. If its size is 1, 2, 4 or 8 bytes and equals its alignment, the write is atomic.
    #[inline]
    #[track_caller]
    pub fn set(&mut self, index: usize, value: T) {
        self.reborrow()
            .slice_mut(index..)
            .slice_mut(..1)
            .copy_from(&[value]);
    }

    /// Copies all elements from a slice of the same length.
    #[inline]
    #[track_caller]
    pub fn copy_from(&mut self, from: &[T]) {
        assert_eq!(self.len(), from.len(), "as many elements at both ends");
        // SAFETY:
        // - contract of `new`: `base` points to `len` elements, and this process accesses them only with atomics. Both lengths are equal.
        unsafe { words::store(from, self.base) };
    }

    /// Sets all elements to `value`.
    pub fn fill(&mut self, value: T) {
        (0..self.len()).for_each(|index| self.set(index, value));
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for Slice<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for SliceMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_slices() {
        assert_eq!(within(.., 3), 0..3);
        assert_eq!(within(1..=2, 3), 1..3);
        assert_eq!(within((Bound::Excluded(0), Bound::Unbounded), 3), 1..3);
        assert_eq!(within(3.., 3), 3..3);
        let wrong = [(4, 4), (2, 1), (0, 4)];
        for (start, end) in wrong {
            assert!(std::panic::catch_unwind(|| within(start..end, 3)).is_err());
        }
        assert!(std::panic::catch_unwind(|| within(0..=usize::MAX, 3)).is_err());
    }

    #[test]
    fn parts_are_where_they_should_be() {
        let mut memory = [0u32; 6];
        let place = Place {
            segment: 0,
            first: 10,
            len: 6,
        };
        // SAFETY:
        // - `memory` has 6 elements, and the test uses it only through `all`.
        let mut all = unsafe { SliceMut::new(memory.as_mut_ptr(), place) };
        all.fill(1);
        let (mut low, high) = all.reborrow().split_at_mut(2);
        let mut high = high.slice_mut(1..3);
        low.copy_from(&[5, 6]);
        high.set(1, 9);
        assert_eq!((high.place().first, high.len()), (13, 2));
        assert_eq!(all.as_slice().to_vec(), [5, 6, 1, 1, 9, 1]);
        let (low, high) = all.as_slice().split_at(4);
        assert_eq!((low.get(1), high.get(0), high.place().first), (6, 9, 14));
        assert_eq!(high.iter().rev().collect::<Vec<_>>(), [1, 9]);
        assert_eq!(format!("{all:?}"), "[5, 6, 1, 1, 9, 1]");
    }
}
