//! Memory of other processes.

use std::marker::PhantomData;

use super::gaspi::Gaspi;
use super::pending::Pending;
use super::segment::FIRST_PRIVATE;
use super::{Element, Result, counted};
use crate::atomics::GlobalAddress;
use crate::statistics::procedure;
use crate::status::{self, Status};

/// A place in a segment of any process: a rank, a segment name, and an index. The first use looks up the segment.
///
/// The element type `T` is the view of this process. Elements have no invalid values, so a wrong type is a mistake, but not undefined behaviour.
pub struct RemoteElement<'g, T> {
    gaspi: &'g Gaspi,
    rank: u16,
    segment: u8,
    index: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T> Clone for RemoteElement<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RemoteElement<'_, T> {}

impl<T> std::fmt::Debug for RemoteElement<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote")
            .field("rank", &self.rank)
            .field("segment", &self.segment)
            .field("index", &self.index)
            .finish()
    }
}

impl<'g, T: Element> RemoteElement<'g, T> {
    pub(super) fn new(gaspi: &'g Gaspi, rank: u16, segment: u8) -> Self {
        const {
            assert!(size_of::<T>() > 0, "elements have bytes");
        }
        RemoteElement {
            gaspi,
            rank,
            segment,
            index: 0,
            elements: PhantomData,
        }
    }

    /// The place `index` elements further.
    #[must_use = "the place itself does not move"]
    pub fn at(self, index: usize) -> Self {
        RemoteElement {
            index: self.index.saturating_add(index),
            ..self
        }
    }

    /// The owner of the memory.
    pub fn rank(&self) -> u16 {
        self.rank
    }

    /// The name of the segment.
    pub fn segment(&self) -> u8 {
        self.segment
    }

    /// Number of elements before it in the segment.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of elements of the whole segment.
    ///
    /// # Errors
    /// [`ErrInvRank`](Status::ErrInvRank); [`ErrInvSeg`](Status::ErrInvSeg): no such segment, or this process may not use it.
    pub fn segment_len(&self) -> Result<usize> {
        let bytes = self
            .gaspi
            .process()
            .segment_size(self.checked()?.segment, self.rank)?;
        Ok(bytes as usize / size_of::<T>())
    }

    /// Errors: [`Status::ErrInvSeg`]: a buffer of this process. Only its owner may change it.
    #[inline(always)]
    pub(super) fn checked(&self) -> status::Result<GlobalAddress> {
        if self.segment >= FIRST_PRIVATE && self.rank == self.gaspi.rank() {
            return Err(Status::ErrInvSeg);
        }
        Ok(GlobalAddress {
            segment: self.segment,
            // A saturated offset is out of bounds.
            offset: self.index.saturating_mul(size_of::<T>()) as u64,
            rank: self.rank,
        })
    }
}

impl<'g> RemoteElement<'g, u64> {
    /// Adds to the value, and returns the previous value (`gaspi_atomic_fetch_add`, §10.2.1). It wraps around.
    ///
    /// # Errors
    /// [`ErrInvRank`](Status::ErrInvRank), [`ErrInvSeg`](Status::ErrInvSeg), [`ErrInvRemOff`](Status::ErrInvRemOff): invalid place;
    /// [`Failed`](super::Error::Failed): the process has died.
    pub fn fetch_add(self, value: u64) -> Result<u64> {
        Ok(self.adding(value)(u64::MAX)?)
    }

    /// As [`fetch_add`](RemoteElement::fetch_add), with timeouts.
    ///
    /// # Errors
    /// As [`fetch_add`](RemoteElement::fetch_add).
    pub fn begin_fetch_add(self, value: u64) -> Result<Pending<'g, u64>> {
        Pending::begin(self.adding(value))
    }

    fn adding(self, value: u64) -> impl FnMut(u64) -> status::Result<u64> + Send + 'g {
        move |timeout| {
            let add = || {
                let place = self.checked()?;
                self.gaspi.process().fetch_add(place, value, timeout)
            };
            counted(const { procedure("gaspi_atomic_fetch_add") }, add)
        }
    }

    /// Replaces the value by `new` if it is `expected`. Returns the previous value (`gaspi_atomic_compare_swap`, §10.2.2).
    ///
    /// # Errors
    /// As [`fetch_add`](RemoteElement::fetch_add).
    pub fn compare_swap(self, expected: u64, new: u64) -> Result<u64> {
        Ok(self.swapping(expected, new)(u64::MAX)?)
    }

    /// As [`compare_swap`](RemoteElement::compare_swap), with timeouts.
    ///
    /// # Errors
    /// As [`fetch_add`](RemoteElement::fetch_add).
    pub fn begin_compare_swap(self, expected: u64, new: u64) -> Result<Pending<'g, u64>> {
        Pending::begin(self.swapping(expected, new))
    }

    fn swapping(
        self,
        expected: u64,
        new: u64,
    ) -> impl FnMut(u64) -> status::Result<u64> + Send + 'g {
        move |timeout| {
            let swap = || {
                let (process, place) = (self.gaspi.process(), self.checked()?);
                process.compare_swap(place, expected, new, timeout)
            };
            counted(const { procedure("gaspi_atomic_compare_swap") }, swap)
        }
    }
}
