//! Private memory for operations.

use std::ops::{Deref, DerefMut, RangeBounds};

use super::gaspi::Gaspi;
use super::memory::{Memory, bytes};
use super::segment::FIRST_PRIVATE;
use super::{Element, Error, Result, Slice, SliceMut};
use crate::status::Status;

/// Memory for the local side of operations: the source of writes and sends, the destination of reads and receives. It is a segment that no
/// other process may use. [`RemoteElement`](super::RemoteElement) refuses it for the own rank too. So it is as private as a `Vec`, and derefs to `[T]`.
/// An operation borrows the elements that it uses.
///
/// Drop frees it. At most 128 buffers may exist.
///
/// ```
/// # use unipgas::gaspi::safe::{Error, Gaspi};
/// # unipgas::init();
/// # let gaspi = Gaspi::init()?;
/// let mut row = gaspi.buffer::<f64>(100)?;
/// row[3] = 1.0;
/// row[4..].fill(2.0);
/// row.reverse();
/// assert_eq!(row.iter().sum::<f64>(), 193.0);
/// # Ok::<(), Error>(())
/// ```
pub struct Buffer<'g, T: Element>(Memory<'g, T>);

impl Gaspi {
    /// Allocates a buffer of `len` elements, all bytes 0.
    ///
    /// # Errors
    /// [`ErrInvSegsize`](Status::ErrInvSegsize): `len` is 0 or too large; [`ErrManySeg`](Status::ErrManySeg): too many segments and buffers;
    /// [`ErrMemalloc`](Status::ErrMemalloc).
    pub fn buffer<T: Element>(&self, len: usize) -> Result<Buffer<'_, T>> {
        let (process, size) = (self.process(), bytes::<T>(len)?);
        for id in FIRST_PRIVATE..=u8::MAX {
            match process.segment_alloc(id, size) {
                Ok(()) => return Ok(Buffer(Memory::of(self, id, len)?)),
                // The name is in use.
                Err(Status::ErrInvSeg) => {}
                Err(status) => return Err(status.into()),
            }
        }
        Err(Error::Refused(Status::ErrManySeg))
    }
}

impl<'g, T: Element> Buffer<'g, T> {
    /// Elements to write to other processes. Panics if the range is out of bounds.
    #[inline]
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.0.slice(range)
    }

    /// Elements to read from other processes, or to receive. Panics if the range is out of bounds.
    #[inline]
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        self.0.slice_mut(range)
    }

    pub(super) fn gaspi(&self) -> &'g Gaspi {
        self.0.gaspi()
    }
}

impl<T: Element> Deref for Buffer<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY:
        // - `base` points to `len` elements, which exist until the buffer is dropped.
        // - no other process may use the segment, and `RemoteElement::checked` refuses it for this process. Only operations with an exclusive borrow
        //   write to it.
        unsafe { std::slice::from_raw_parts(self.0.base(), self.0.len()) }
    }
}

impl<T: Element> DerefMut for Buffer<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY:
        // - as for `deref`. Operations that read the buffer borrow it, so none is in progress.
        unsafe { std::slice::from_raw_parts_mut(self.0.base(), self.0.len()) }
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
