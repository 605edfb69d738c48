//! A segment's memory, until it is given back.

use std::ops::RangeBounds;

use super::gaspi::Gaspi;
use super::slice::{Place, Slice, SliceMut};
use super::{Element, Error, Result};
use crate::status::Status;

/// Pages are at least so long, and segments begin with one.
const PAGE: usize = 4096;

/// A segment that is deleted with this.
pub(super) struct Memory<'g, T> {
    gaspi: &'g Gaspi,
    id: u8,
    base: *mut T,
    len: usize,
}

// SAFETY:
// - `base` leads to memory that is there until this is dropped; elements may be used by any thread.
unsafe impl<T: Element> Send for Memory<'_, T> {}
// SAFETY:
// - as for Send; a shared one lets memory be read only, or used by atomics.
unsafe impl<T: Element> Sync for Memory<'_, T> {}

/// Bytes of so many elements. Errors: none, or more than there can be.
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
    /// Takes over a segment that has been made, of so many elements.
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
        // - the elements are there until this is dropped, and who changes them borrows it for that.
        unsafe { Slice::new(self.base, self.place()) }.slice(range)
    }

    #[inline]
    #[track_caller]
    pub(super) fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        // SAFETY:
        // - the elements are there until this is dropped, and nobody else uses them: it is borrowed.
        unsafe { SliceMut::new(self.base, self.place()) }.slice_mut(range)
    }

    /// Deletes it. Errors: it is there still.
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
