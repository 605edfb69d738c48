//! Ranges of memory that is lent to operations.

use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use unipgas_core::words;

use super::Element;

/// Elements of a [`Segment`](super::Segment) or a [`Buffer`](super::Buffer) that nobody in this process changes meanwhile: what is written to other
/// processes. Other processes may change those of a segment at any time; so elements are copied out, and no `&[T]` is there.
///
/// Where an index or a range is out of bounds, methods panic, as those of `[T]` do.
pub struct Slice<'a, T> {
    base: *const T,
    place: Place,
    lent: PhantomData<&'a [T]>,
}

/// Elements of a [`Segment`](super::Segment) or a [`Buffer`](super::Buffer) that nobody else in this process uses meanwhile: what is read from other
/// processes, or changed here. Otherwise as [`Slice`].
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

/// A range of `len` elements. Panics as `[T]` does where it is none.
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
// - the memory is used by atomics only; elements may be used by any thread.
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
    /// `base` leads to the elements of `place`, which stay there for the lifetime, and are not changed by plain stores.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.place.len == 0
    }

    /// A part of it.
    #[track_caller]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Slice<'a, T> {
        let (start, place) = self.place.range(range);
        Slice {
            base: self.base.wrapping_add(start),
            place,
            ..self
        }
    }

    /// The elements before `mid`, and the others.
    #[track_caller]
    pub fn split_at(self, mid: usize) -> (Slice<'a, T>, Slice<'a, T>) {
        (self.slice(..mid), self.slice(mid..))
    }

    /// An element. Of 1, 2, 4 or 8 bytes, with that alignment, it is read in one piece; a longer one that another process is writing may be of old
    /// and of new parts.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        let mut value = [T::zeroed()];
        self.slice(index..).slice(..1).copy_to(&mut value);
        value[0]
    }

    /// Copies all elements to memory of the program's, which must have as many.
    #[inline]
    #[track_caller]
    pub fn copy_to(&self, to: &mut [T]) {
        assert_eq!(self.len(), to.len(), "as many elements at both ends");
        // SAFETY:
        // - as many elements, by the word of who has made this.
        unsafe { words::load(self.base, to) };
    }

    /// The elements.
    pub fn to_vec(&self) -> Vec<T> {
        let mut all = vec![T::zeroed(); self.len()];
        self.copy_to(&mut all);
        all
    }

    /// The elements, one after the other, each read when it is asked for.
    pub fn iter(self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + use<'a, T> {
        (0..self.len()).map(move |index| self.get(index))
    }
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// # Safety
    /// `base` leads to the elements of `place`, which stay there for the lifetime; nobody else in this process uses them.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.place.len == 0
    }

    /// To look at them, or to write them to other processes.
    pub fn as_slice(&self) -> Slice<'_, T> {
        // SAFETY:
        // - as long as this is borrowed, nobody changes anything.
        unsafe { Slice::new(self.base, self.place) }
    }

    /// The same for a shorter time: this is there again afterwards.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        // SAFETY:
        // - as long as this is borrowed, it is not used.
        unsafe { SliceMut::new(self.base, self.place) }
    }

    /// A part of it.
    #[track_caller]
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> SliceMut<'a, T> {
        let (start, place) = self.place.range(range);
        SliceMut {
            base: self.base.wrapping_add(start),
            place,
            ..self
        }
    }

    /// The elements before `mid`, and the others, for different threads or operations.
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

    /// Changes an element. Of 1, 2, 4 or 8 bytes, with that alignment, it is written in one piece.
    #[inline]
    #[track_caller]
    pub fn set(&mut self, index: usize, value: T) {
        self.reborrow()
            .slice_mut(index..)
            .slice_mut(..1)
            .copy_from(&[value]);
    }

    /// Copies as many elements from memory of the program's.
    #[inline]
    #[track_caller]
    pub fn copy_from(&mut self, from: &[T]) {
        assert_eq!(self.len(), from.len(), "as many elements at both ends");
        // SAFETY:
        // - as many elements, by the word of who has made this.
        unsafe { words::store(from, self.base) };
    }

    /// Makes all elements the same.
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
        // - the array's elements, which are used in no other way.
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
