//! The memory of a segment, until its deletion.

use std::ops::RangeBounds;

use super::gaspi::Gaspi;
use super::slice::{Place, Slice, SliceMut};
use super::{Element, Error, Result};
use crate::status::Status;

/// Smallest page size. Segments begin at a page.
const PAGE: usize = 4096;

/// A segment. Drop deletes it.
pub(super) struct Memory<'g, T> {
    gaspi: &'g Gaspi,
    id: u8,
    base: *mut T,
    len: usize,
}

// SAFETY:
// - `base` points to memory that exists until the drop. Any thread may use elements (`T: Element`).
unsafe impl<T: Element> Send for Memory<'_, T> {}
// SAFETY:
// - as for Send. A shared reference only allows reads and atomics.
unsafe impl<T: Element> Sync for Memory<'_, T> {}

/// Size of `len` elements in bytes. Errors: [`Status::ErrInvSegsize`]: `len` is 0 or too large.
pub(super) fn bytes<T: Element>(len: usize) -> Result<u64> {
    const {
        assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE);
    }
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes > 0 => Ok(bytes as u64),
        _ => Err(Error::Refused(Status::ErrInvSegsize)),
    }
}

impl<'g, T: Element> Memory<'g, T> {
    /// Takes ownership of an existing segment of `len` elements.
    pub(super) fn of(gaspi: &'g Gaspi, id: u8, len: usize) -> Result<Self> {
        let base = gaspi.process().segment_ptr(id)?.cast();
        Ok(Memory {
            gaspi,
            id,
            base,
            len,
        })
    }

    pub(super) fn gaspi(&self) -> &'g Gaspi {
        self.gaspi
    }

    pub(super) fn id(&self) -> u8 {
        self.id
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn base(&self) -> *mut T {
        self.base
    }

    fn place(&self) -> Place {
        Place {
            segment: self.id,
            first: 0,
            len: self.len,
        }
    }

    #[inline]
    #[track_caller]
    pub(super) fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        // SAFETY:
        // - contract of `Slice::new`: the elements exist until the drop, and a change needs an exclusive borrow.
        unsafe { Slice::new(self.base, self.place()) }.slice(range)
    }

    #[inline]
    #[track_caller]
    pub(super) fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        // SAFETY:
        // - contract of `SliceMut::new`: the elements exist until the drop, and the exclusive borrow excludes other uses in this process.
        unsafe { SliceMut::new(self.base, self.place()) }.slice_mut(range)
    }

    /// Deletes the segment. Errors: as [`segment_delete`](crate::GaspiProcess::segment_delete).
    pub(super) fn delete(self) -> Result<()> {
        self.gaspi.process().segment_delete(self.id)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl<T> Drop for Memory<'_, T> {
    fn drop(&mut self) {
        let _ = self.gaspi.process().segment_delete(self.id);
    }
}
