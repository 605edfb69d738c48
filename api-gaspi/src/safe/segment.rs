//! Memory that other processes use.

use std::ops::{Range, RangeBounds};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

use super::gaspi::Gaspi;
use super::group::Group;
use super::memory::{Memory, bytes};
use super::notification::Notifications;
use super::pending::Pending;
use super::timeout::Timeout;
use super::{Element, RemoteElement, Result, Slice, SliceMut, counted};
use crate::statistics::procedure;
use crate::status::Status;

/// [Buffers](super::Buffer) have names from here on, segments have lower names. So no call can ever take a buffer for a segment.
pub(super) const FIRST_PRIVATE: u8 = 128;

/// A segment of elements `T` that other processes read, write and notify (§7). Drop deletes it (§7.3.1): operations in progress have then ended,
/// and later operations are refused.
///
/// Other processes may write at any time, so there is no safe `&[T]` to its memory. Atomic accesses copy elements out and in, and
/// [`atomic`](Segment::atomic) shares an element. For plain slices, see [`Buffer`](super::Buffer) and the unsafe [`as_slice`](Segment::as_slice).
/// A change needs an exclusive borrow, as for a `Vec`: no operation in progress of this process uses the elements.
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

/// Integers with an atomic type.
pub trait AtomicElement: Element + sealed::Sealed {
    /// The atomic type of the same size.
    type Atomic: Sync;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! cells {
    ($($integer:ty: $atomic:ty;)*) => {$(
        impl sealed::Sealed for $integer {}
        impl AtomicElement for $integer {
            type Atomic = $atomic;
        }
    )*};
}

cells! { i32: AtomicI32; u32: AtomicU32; i64: AtomicI64; u64: AtomicU64; }

/// Errors: [`Status::ErrInvSeg`]: a name of buffers.
fn check(id: u8) -> Result<()> {
    match id < FIRST_PRIVATE {
        true => Ok(()),
        false => Err(Status::ErrInvSeg.into()),
    }
}

impl Gaspi {
    /// Allocates a segment of `len` elements, all bytes 0 (`gaspi_segment_alloc`, §7.2.1). Other processes may use it after
    /// [`Segment::register`]. [`Group::create_segment`] creates one on all members.
    ///
    /// # Errors
    /// [`ErrInvSeg`](Status::ErrInvSeg): the name is in use, or is 128 or more (names of buffers); [`ErrInvSegsize`](Status::ErrInvSegsize): `len` is 0
    /// or too large; [`ErrManySeg`](Status::ErrManySeg); [`ErrMemalloc`](Status::ErrMemalloc).
    pub fn segment<T: Element>(&self, id: u8, len: usize) -> Result<Segment<'_, T>> {
        check(id)?;
        let size = bytes::<T>(len)?;
        let alloc = || self.process().segment_alloc(id, size);
        counted(const { procedure("gaspi_segment_alloc") }, alloc)?;
        Ok(Segment(Memory::of(self, id, len)?))
    }
}

impl<'g> Group<'g> {
    /// Allocates a segment of `len` elements, all bytes 0, on each member, for use by all members. It waits until all have it
    /// (`gaspi_segment_create`, §7.2.3). All members call it with the same name and length.
    ///
    /// # Errors
    /// After an error the segment does not exist. As [`Gaspi::segment`]; [`ErrInvGroup`](Status::ErrInvGroup): the group is not committed;
    /// [`ErrActiveColl`](Status::ErrActiveColl): a barrier of the group is in progress; [`Failed`](super::Error::Failed): a member has died.
    pub fn create_segment<T: Element>(&self, id: u8, len: usize) -> Result<Segment<'g, T>> {
        self.begin_create_segment(id, len)?.wait()
    }

    /// As [`create_segment`](Group::create_segment), with timeouts.
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
    /// Lets `rank` use the segment (`gaspi_segment_register`, §7.2.2).
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

    /// Deletes the segment, as drop (`gaspi_segment_delete`, §7.3.1).
    ///
    /// # Errors
    /// [`Failed`](super::Error::Failed): the segment still exists.
    pub fn delete(self) -> Result<()> {
        self.0.delete()
    }

    /// Its name, the same in all processes.
    pub fn id(&self) -> u8 {
        self.0.id()
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty, reason = "there is no empty one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first element of the segment of the same name of `rank`.
    pub fn remote(&self, rank: u16) -> RemoteElement<'g, T> {
        RemoteElement::new(self.0.gaspi(), rank, self.id())
    }

    /// Its notifications with these numbers (§8.3). They do not borrow the segment: they are not in its memory. After its deletion, waits for them
    /// are refused.
    pub fn notifications(&self, ids: Range<u32>) -> Notifications<'g> {
        Notifications::new(self.0.gaspi(), self.id(), ids)
    }

    /// Its notification with this number.
    pub fn notification(&self, id: u32) -> Notifications<'g> {
        self.notifications(id..id.saturating_add(1))
    }

    /// Elements to read here, or to write to other processes. Panics if the range is out of bounds.
    #[inline]
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.0.slice(range)
    }

    /// Elements to change here, or to read from other processes. Panics if the range is out of bounds.
    #[inline]
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        self.0.slice_mut(range)
    }

    /// An element; see [`Slice::get`]. Panics if the index is out of bounds.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        self.slice(..).get(index)
    }

    /// Changes an element; see [`SliceMut::set`]. Panics if the index is out of bounds.
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
    /// // - all writes were notified or waited for before the barrier; no process writes before the next barrier.
    /// let sum: f64 = unsafe { segment.as_slice() }.iter().sum();
    /// all.barrier()?;
    /// # assert_eq!(sum, 0.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Safety
    /// During the lifetime of the slice, no process writes to the segment. This includes atomic operations, and operations of this process on its
    /// own rank. So the writers must synchronize with a barrier, or wait for a notification that this process sends later.
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY:
        // - `base` points to `len` elements, which exist until the drop.
        // - contract of this function: no process writes.
        unsafe { std::slice::from_raw_parts(self.0.base(), self.len()) }
    }

    /// The elements as a mutable slice.
    ///
    /// # Safety
    /// As [`as_slice`](Segment::as_slice). No other access reads the segment either.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY:
        // - as for `as_slice`. The exclusive borrow excludes other uses in this process.
        unsafe { std::slice::from_raw_parts_mut(self.0.base(), self.len()) }
    }
}

impl<T: AtomicElement> Segment<'_, T> {
    /// An element as an atomic of the CPU. Threads can change it while they share it, or poll it for a write of another process. Other processes
    /// see the changes. The network decides whether their [`fetch_add`](RemoteElement::fetch_add) is atomic with CPU atomics: in a job on one host it is,
    /// over most RDMA devices it is not. Panics if the index is out of bounds.
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
        // - the element is in the segment, which exists until the drop.
        // - the atomic has the size and the alignment of the integer: the assertion below checks it.
        // - other changes in this process need an exclusive borrow of the segment.
        unsafe { &*self.0.base().add(index).cast() }
    }
}

/// [`Segment::atomic`] relies on this.
const _: () = {
    const fn fits<T: AtomicElement>() -> bool {
        size_of::<T>() == size_of::<T::Atomic>() && align_of::<T>() == align_of::<T::Atomic>()
    }
    assert!(fits::<i32>() && fits::<u32>() && fits::<i64>() && fits::<u64>());
};
