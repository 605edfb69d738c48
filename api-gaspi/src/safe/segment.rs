//! Memory that other processes use.

use std::ops::{Range, RangeBounds};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

use super::gaspi::Gaspi;
use super::group::Group;
use super::memory::{Memory, bytes};
use super::notification::Notifications;
use super::pending::Pending;
use super::timeout::Timeout;
use super::{Element, Remote, Result, Slice, SliceMut, counted};
use crate::statistics::procedure;
use crate::status::Status;

/// Segments have names below, [buffers](super::Buffer) the others: so no call can take a buffer for a segment, at whatever moment it looks.
pub(super) const FIRST_PRIVATE: u8 = 128;

/// A segment of elements `T` that other processes read, write and notify (§7). Dropped, it is deleted (§7.3.1): their later operations on it are refused,
/// those that are under way are over by then.
///
/// Other processes may write at any time, so there is no `&[T]` to its memory. Elements are copied out and in, each by atomic accesses, or
/// used as [atomics](Segment::atomic); [`Buffer`](super::Buffer) is for plain slices, and [`as_slice`](Segment::as_slice) for who knows better. What
/// this process changes it borrows as exclusively as a `Vec`: no operation that is under way reads or writes the place.
///
/// ```
/// # use unipgas::gaspi::safe::{Error, Gaspi};
/// # unipgas::init();
/// # let gaspi = Gaspi::init()?;
/// let mut segment = gaspi.segment::<f64>(0, 8)?;
/// assert_eq!(segment.slice(..).to_vec(), [0.0; 8]);
/// segment.set(3, 2.5);
/// segment.slice_mut(4..6).copy_from(&[1.0, 2.0]);
/// assert_eq!(segment.slice(2..).iter().sum::<f64>(), 5.5);
/// segment.delete()?;
/// # Ok::<(), Error>(())
/// ```
pub struct Segment<'g, T: Element>(Memory<'g, T>);

/// Integers that are there as atomics, too.
pub trait Cell: Element + sealed::Sealed {
    /// That of the same size.
    type Atomic: Sync;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! cells {
    ($($integer:ty: $atomic:ty;)*) => {$(
        impl sealed::Sealed for $integer {}
        impl Cell for $integer {
            type Atomic = $atomic;
        }
    )*};
}

cells! { i32: AtomicI32; u32: AtomicU32; i64: AtomicI64; u64: AtomicU64; }

/// Errors: the name is a buffer's.
fn check(id: u8) -> Result<()> {
    match id < FIRST_PRIVATE {
        true => Ok(()),
        false => Err(Status::ErrInvSeg.into()),
    }
}

impl Gaspi {
    /// Allocates a segment of `len` elements, all bytes 0, which this process alone may use until others are let in
    /// ([`Segment::register`]) (`gaspi_segment_alloc`, §7.2.1). [`Group::create_segment`] makes one everywhere.
    ///
    /// # Errors
    /// [`ErrInvSeg`](Status::ErrInvSeg): the name is taken, or not below 128, which are those of buffers; [`ErrInvSegsize`](Status::ErrInvSegsize): no
    /// elements, or too many; [`ErrManySeg`](Status::ErrManySeg); [`ErrMemalloc`](Status::ErrMemalloc).
    pub fn segment<T: Element>(&self, id: u8, len: usize) -> Result<Segment<'_, T>> {
        check(id)?;
        let size = bytes::<T>(len)?;
        let alloc = || self.process().segment_alloc(id, size);
        counted(const { procedure("gaspi_segment_alloc") }, alloc)?;
        Ok(Segment(Memory::of(self, id, len)?))
    }
}

impl<'g> Group<'g> {
    /// Allocates a segment of `len` elements, all bytes 0, at every member, for all of them; ends when all have it (`gaspi_segment_create`, §7.2.3). All
    /// members call it with the same name and length.
    ///
    /// # Errors
    /// As [`Gaspi::segment`]; [`ErrInvGroup`](Status::ErrInvGroup): the group is not committed; [`ErrActiveColl`](Status::ErrActiveColl): a barrier of the
    /// group is under way; [`Failed`](super::Error::Failed): a member has died. Then there is no segment.
    pub fn create_segment<T: Element>(&self, id: u8, len: usize) -> Result<Segment<'g, T>> {
        self.begin_create_segment(id, len)?.wait()
    }

    /// The same with time-outs.
    ///
    /// # Errors
    /// As [`create_segment`](Group::create_segment).
    pub fn begin_create_segment<'a, T: Element>(
        &'a self,
        id: u8,
        len: usize,
    ) -> Result<Pending<'a, Segment<'g, T>>> {
        check(id)?;
        let size = bytes::<T>(len)?;
        let active = self.begin_meeting()?;
        let (gaspi, group) = (self.gaspi(), self.id());
        Pending::begin(move |timeout| {
            let _active = &active;
            let create = || gaspi.process().segment_create(id, size, group, timeout);
            counted(const { procedure("gaspi_segment_create") }, create)?;
            Memory::of(gaspi, id, len)
                .map(Segment)
                .map_err(|error| error.status())
        })
    }
}

impl<'g, T: Element> Segment<'g, T> {
    /// Lets `rank` use it (`gaspi_segment_register`, §7.2.2).
    ///
    /// # Errors
    /// [`ErrInvRank`](Status::ErrInvRank); [`Timeout`](super::Error::Timeout): call again; [`Failed`](super::Error::Failed): the process has died.
    pub fn register(&self, rank: u16, timeout: impl Into<Timeout>) -> Result<()> {
        let (process, timeout) = (self.0.gaspi().process(), timeout.into().millis());
        let register = || process.segment_register(self.id(), rank, timeout);
        Ok(counted(
            const { procedure("gaspi_segment_register") },
            register,
        )?)
    }

    /// Deletes it, as dropping it does (`gaspi_segment_delete`, §7.3.1).
    ///
    /// # Errors
    /// [`Failed`](super::Error::Failed): it is there still.
    pub fn delete(self) -> Result<()> {
        self.0.delete()
    }

    /// Its name, which is the same for all processes.
    pub fn id(&self) -> u8 {
        self.0.id()
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty, reason = "there is no empty one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first element of the segment of the same name of `rank`.
    pub fn remote(&self, rank: u16) -> Remote<'g, T> {
        Remote::new(self.0.gaspi(), rank, self.id())
    }

    /// Its notifications with these numbers (§8.3). They are no part of the memory: nothing is borrowed. When it has been deleted, waits for them are
    /// refused.
    pub fn notifications(&self, ids: Range<u32>) -> Notifications<'g> {
        Notifications::new(self.0.gaspi(), self.id(), ids)
    }

    /// The one with this number.
    pub fn notification(&self, id: u32) -> Notifications<'g> {
        self.notifications(id..id.saturating_add(1))
    }

    /// Elements to look at, and to write to other processes. Panics where the range is out of bounds.
    #[inline]
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.0.slice(range)
    }

    /// Elements to change, and to read from other processes. Panics where the range is out of bounds.
    #[inline]
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        self.0.slice_mut(range)
    }

    /// An element; see [`Slice::get`]. Panics where the index is out of bounds.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        self.slice(..).get(index)
    }

    /// Changes an element; see [`SliceMut::set`]. Panics where the index is out of bounds.
    #[inline]
    #[track_caller]
    pub fn set(&mut self, index: usize, value: T) {
        self.slice_mut(..).set(index, value);
    }

    /// The elements as a slice, for computations in place.
    ///
    /// ```
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # unipgas::init();
    /// # let gaspi = Gaspi::init()?;
    /// # let all = gaspi.group_all();
    /// let segment = all.create_segment::<f64>(0, 1000)?;
    /// // All write to each other here.
    /// all.barrier()?;
    /// // SAFETY:
    /// // - what has been written was notified or waited for before the barrier; nobody writes before the next one.
    /// let sum: f64 = unsafe { segment.as_slice() }.iter().sum();
    /// all.barrier()?;
    /// # assert_eq!(sum, 0.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Safety
    /// As long as the slice is there, no process writes the segment, not by atomic operations either, and this one does not by operations on its
    /// own rank. So the writers must know: by a barrier, or since they wait for a notification that this process sends later.
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY:
        // - so many elements, which are there until this is dropped; nobody writes, by the caller's word.
        unsafe { std::slice::from_raw_parts(self.0.base(), self.len()) }
    }

    /// The elements as a slice that may be changed.
    ///
    /// # Safety
    /// As [`as_slice`](Segment::as_slice), and no process reads the segment either.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY:
        // - as for `as_slice`; in this process nobody else uses them, since this is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.base(), self.len()) }
    }
}

impl<T: Cell> Segment<'_, T> {
    /// An element as an atomic of the CPU, to be changed while it is shared with other threads, or to be looked at until another process has written it.
    /// Other processes see what is written here. Whether their [`fetch_add`](Remote::fetch_add) is atomic against
    /// operations by it depends on the network: in a job on one host it is; over RDMA devices it mostly is not. Panics where the index is out of bounds.
    ///
    /// ```
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # use std::sync::atomic::Ordering;
    /// # unipgas::init();
    /// # let gaspi = Gaspi::init()?;
    /// let segment = gaspi.segment::<u64>(0, 8)?;
    /// let next = segment.remote(0).at(5);
    /// assert_eq!((next.fetch_add(2)?, next.compare_swap(2, 10)?), (0, 2));
    /// assert_eq!(segment.atomic(5).load(Ordering::Acquire), 10);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn atomic(&self, index: usize) -> &T::Atomic {
        assert!(
            index < self.len(),
            "the index {index} is not below {}",
            self.len()
        );
        // SAFETY:
        // - an element within the segment, which is there until this is dropped.
        // - atomics have the size of their integers, and the alignment, since those of elements are the same.
        // - who changes it in another way in this process borrows all of this exclusively.
        unsafe { &*self.0.base().add(index).cast() }
    }
}

/// What [`Segment::atomic`] relies on.
const _: () = {
    const fn fits<T: Cell>() -> bool {
        size_of::<T>() == size_of::<T::Atomic>() && align_of::<T>() == align_of::<T::Atomic>()
    }
    assert!(fits::<i32>() && fits::<u32>() && fits::<i64>() && fits::<u64>());
};
