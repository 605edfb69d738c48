//! Memory that operations use, and that no other process does.

use std::ops::{Deref, DerefMut, RangeBounds};

use super::gaspi::Gaspi;
use super::memory::{Memory, bytes};
use super::segment::FIRST_PRIVATE;
use super::{Element, Error, Result, Slice, SliceMut};
use crate::status::Status;

/// Memory for this process's own side of operations: what is written from here to other processes, what is read from them, what is sent and received.
/// It is a segment that no other process is let into, and that this one does not address by its rank; so it is as private as a `Vec`, and is used as one:
/// it derefs to `[T]`. What an operation uses is borrowed meanwhile.
///
/// Dropped, it is freed. There are 128 at most.
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
    /// [`ErrInvSegsize`](Status::ErrInvSegsize): no elements, or too many; [`ErrManySeg`](Status::ErrManySeg): there are as many segments and
    /// buffers as there may be; [`ErrMemalloc`](Status::ErrMemalloc).
    pub fn buffer<T: Element>(&self, len: usize) -> Result<Buffer<'_, T>> {
        let (process, size) = (self.process(), bytes::<T>(len)?);
        for id in FIRST_PRIVATE..=u8::MAX {
            match process.segment_alloc(id, size) {
                Ok(()) => return Ok(Buffer(Memory::of(self, id, len)?)),
                // The name is taken.
                Err(Status::ErrInvSeg) => {}
                Err(status) => return Err(status.into()),
            }
        }
        Err(Error::Refused(Status::ErrManySeg))
    }
}

impl<'g, T: Element> Buffer<'g, T> {
    /// Elements to write to other processes. Panics where the range is out of bounds.
    #[inline]
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.0.slice(range)
    }

    /// Elements to read from other processes, or to receive. Panics where the range is out of bounds.
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
        // - so many elements, which are there until this is dropped.
        // - no other process is let in, and `Remote::checked` lets this one not in either: it is written by operations that have
        //   borrowed it exclusively, and by nobody else.
        unsafe { std::slice::from_raw_parts(self.0.base(), self.0.len()) }
    }
}

impl<T: Element> DerefMut for Buffer<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY:
        // - as for `deref`; operations that read it have borrowed it, too.
        unsafe { std::slice::from_raw_parts_mut(self.0.base(), self.0.len()) }
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
