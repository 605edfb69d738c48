//! Groups, and what their members do together.

use std::sync::atomic::{AtomicBool, Ordering};

use super::gaspi::Gaspi;
use super::pending::Pending;
use super::{Element, Result, counted};
use crate::process::GROUP_ALL;
use crate::reduce::{Datatype, Operation};
use crate::statistics::procedure;
use crate::status::{self, Status};

/// Processes that do something together (§6, §11). Dropped, it is deleted (§6.4.1), but for [`Gaspi::group_all`].
///
/// Of each kind (barrier, reduction) a group has one operation at a time (§11.1); another one is refused with
/// [`ErrActiveColl`](Status::ErrActiveColl).
///
/// ```
/// # use unipgas::gaspi::safe::{Error, Gaspi};
/// # use unipgas::gaspi::Operation;
/// # unipgas::init();
/// # let gaspi = Gaspi::init()?;
/// let group = gaspi.group(&[gaspi.rank()])?;
/// group.barrier()?;
/// assert_eq!(group.allreduce(&[3.0, -1.0], Operation::Max)?, [3.0, -1.0]);
/// // The largest value, and whose it is.
/// let mine = [[17, u64::from(gaspi.rank())]];
/// assert_eq!(group.allreduce_by(&mine, |one, other| one.max(other))?, [[17, 0]]);
/// # Ok::<(), Error>(())
/// ```
pub struct Group<'g> {
    gaspi: &'g Gaspi,
    id: u8,
}

/// What a group does just now.
#[derive(Default)]
pub(super) struct Activity {
    meets: AtomicBool,
    reduces: AtomicBool,
}

/// A kind of operation is under way.
pub(super) struct Active<'a>(&'a AtomicBool);

impl<'a> Active<'a> {
    fn begin(active: &'a AtomicBool) -> Result<Self> {
        match active.swap(true, Ordering::Acquire) {
            true => Err(Status::ErrActiveColl.into()),
            false => Ok(Active(active)),
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        // An operation that a panic has left half done cannot be followed by another one.
        if !std::thread::panicking() {
            self.0.store(false, Ordering::Release);
        }
    }
}

/// Elements of the predefined reductions (§11.3.3).
pub trait Reducible: Element {
    /// What the procedures call them.
    const DATATYPE: Datatype;
}

macro_rules! reducible {
    ($($element:ty: $datatype:ident;)*) => {$(
        impl Reducible for $element {
            const DATATYPE: Datatype = Datatype::$datatype;
        }
    )*};
}

reducible! { i32: Int; u32: Uint; f32: Float; f64: Double; i64: Long; u64: Ulong; }

impl Gaspi {
    /// All processes (`GASPI_GROUP_ALL`). It is committed from the beginning, unless the configuration's `build_infrastructure` is 0, or this process has taken the
    /// place of a dead one: then all [commit](Group::commit) it.
    pub fn group_all(&self) -> Group<'_> {
        Group {
            gaspi: self,
            id: GROUP_ALL,
        }
    }

    /// The group of these ranks, in any order; waits until all of them have formed it (§6.3). All call it with the same ranks, and form the groups that they
    /// have in common in the same order.
    ///
    /// # Errors
    /// [`ErrManyGrp`](Status::ErrManyGrp); [`ErrInvRank`](Status::ErrInvRank): there is no such rank, it is there twice, or this process is not among them;
    /// [`ErrInvGroup`](Status::ErrInvGroup): no ranks; [`Failed`](super::Error::Failed): a member has died.
    pub fn group(&self, ranks: &[u16]) -> Result<Group<'_>> {
        self.begin_group(ranks)?.wait()
    }

    /// The same with time-outs.
    ///
    /// # Errors
    /// As [`group`](Gaspi::group).
    pub fn begin_group(&self, ranks: &[u16]) -> Result<Pending<'_, Group<'_>>> {
        let id = self.process().group_create()?;
        let group = Group { gaspi: self, id };
        // What was left of an earlier one with this name.
        let activity = group.activity();
        activity.meets.store(false, Ordering::Relaxed);
        activity.reduces.store(false, Ordering::Relaxed);
        for rank in ranks {
            self.process().group_add(id, *rank)?;
        }
        let mut group = Some(group);
        Pending::begin(move |timeout| {
            self.commit(id, timeout)?;
            group.take().ok_or(Status::ErrInvGroup)
        })
    }

    fn commit(&self, id: u8, timeout: u64) -> status::Result<()> {
        let commit = || self.process().group_commit(id, timeout);
        counted(const { procedure("gaspi_group_commit") }, commit)
    }
}

impl<'g> Group<'g> {
    pub(super) fn gaspi(&self) -> &'g Gaspi {
        self.gaspi
    }

    pub(super) fn id(&self) -> u8 {
        self.id
    }

    fn activity(&self) -> &'g Activity {
        &self.gaspi.activities[usize::from(self.id)]
    }

    /// Errors: a barrier is under way.
    pub(super) fn begin_meeting(&self) -> Result<Active<'g>> {
        Active::begin(&self.activity().meets)
    }

    fn begin_reduction(&self) -> Result<Active<'g>> {
        Active::begin(&self.activity().reduces)
    }

    /// The ranks of the members, ascending (§6.5.3).
    ///
    /// # Errors
    /// None for a group that is there.
    pub fn ranks(&self) -> Result<Vec<u16>> {
        Ok(self.gaspi.process().group_ranks(self.id)?)
    }

    /// Forms it again when other processes have taken the places of members, or [`Gaspi::group_all`] where that is not formed (`gaspi_group_commit`,
    /// §6.3.3). Else nothing happens.
    ///
    /// # Errors
    /// [`ErrActiveColl`](Status::ErrActiveColl): an operation is under way; [`Failed`](super::Error::Failed): a member has died.
    pub fn commit(&self) -> Result<()> {
        self.begin_commit()?.wait()
    }

    /// The same with time-outs.
    ///
    /// # Errors
    /// As [`commit`](Group::commit).
    pub fn begin_commit(&self) -> Result<Pending<'_, ()>> {
        let active = (self.begin_meeting()?, self.begin_reduction()?);
        Pending::begin(move |timeout| {
            let _active = &active;
            self.gaspi.commit(self.id, timeout)
        })
    }

    /// Ends when every member has called it (`gaspi_barrier`, §11.2.1).
    ///
    /// # Errors
    /// [`ErrActiveColl`](Status::ErrActiveColl): another one is under way; [`ErrInvGroup`](Status::ErrInvGroup): it is not committed;
    /// [`Failed`](super::Error::Failed): a member has died.
    pub fn barrier(&self) -> Result<()> {
        let _active = self.begin_meeting()?;
        Ok(self.meet(u64::MAX)?)
    }

    /// The same with time-outs, or with something to do meanwhile.
    ///
    /// # Errors
    /// As [`barrier`](Group::barrier).
    pub fn begin_barrier(&self) -> Result<Pending<'_, ()>> {
        let active = self.begin_meeting()?;
        Pending::begin(move |timeout| {
            let _active = &active;
            self.meet(timeout)
        })
    }

    fn meet(&self, timeout: u64) -> status::Result<()> {
        let meet = || self.gaspi.process().barrier(self.id, timeout);
        counted(const { procedure("gaspi_barrier") }, meet)
    }

    /// Reduces the members' values, element by element, to a result that every member gets (`gaspi_allreduce`, §11.3.1). All give as many
    /// values, and the same operation.
    ///
    /// # Errors
    /// [`ErrInvNum`](Status::ErrInvNum): no values, or more than the configuration's `allreduce_elem_max`; else as [`barrier`](Group::barrier).
    pub fn allreduce<T: Reducible>(&self, values: &[T], operation: Operation) -> Result<Vec<T>> {
        self.begin_allreduce(values, operation)?.wait()
    }

    /// The same with time-outs, or with something to do meanwhile.
    ///
    /// # Errors
    /// As [`allreduce`](Group::allreduce).
    pub fn begin_allreduce<T: Reducible>(
        &self,
        values: &[T],
        operation: Operation,
    ) -> Result<Pending<'_, Vec<T>>> {
        let active = self.begin_reduction()?;
        let (values, mut result) = (values.to_vec(), vec![T::zeroed(); values.len()]);
        Pending::begin(move |timeout| {
            let _active = &active;
            let num = u32::try_from(values.len()).unwrap_or(u32::MAX);
            let reduce = || {
                self.gaspi.process().allreduce(
                    bytemuck::cast_slice(&values),
                    bytemuck::cast_slice_mut(&mut result),
                    num,
                    operation,
                    T::DATATYPE,
                    self.id,
                    timeout,
                )
            };
            counted(const { procedure("gaspi_allreduce") }, reduce)?;
            Ok(std::mem::take(&mut result))
        })
    }

    /// Reduces by an operation of the program's own, which must be commutative and associative (`gaspi_allreduce_user`, §11.4.1). Elements may be of any
    /// type.
    ///
    /// # Errors
    /// [`ErrInvSize`](Status::ErrInvSize): no values, or more than the configuration's `allreduce_buf_size` bytes; else as [`barrier`](Group::barrier).
    pub fn allreduce_by<T: Element>(
        &self,
        values: &[T],
        combine: impl FnMut(T, T) -> T + Send,
    ) -> Result<Vec<T>> {
        self.begin_allreduce_by(values, combine)?.wait()
    }

    /// The same with time-outs, or with something to do meanwhile.
    ///
    /// # Errors
    /// As [`allreduce_by`](Group::allreduce_by).
    pub fn begin_allreduce_by<'a, T: Element>(
        &'a self,
        values: &[T],
        mut combine: impl FnMut(T, T) -> T + Send + 'a,
    ) -> Result<Pending<'a, Vec<T>>> {
        let active = self.begin_reduction()?;
        let (values, mut result) = (values.to_vec(), vec![T::zeroed(); values.len()]);
        Pending::begin(move |timeout| {
            let _active = &active;
            // Where the engine holds them, they need not be aligned.
            let mut each = |held: &mut [u8], other: &[u8]| {
                let elements = held.chunks_exact_mut(size_of::<T>());
                for (held, other) in elements.zip(other.chunks_exact(size_of::<T>())) {
                    let combined = combine(
                        bytemuck::pod_read_unaligned(held),
                        bytemuck::pod_read_unaligned(other),
                    );
                    held.copy_from_slice(bytemuck::bytes_of(&combined));
                }
                Ok(())
            };
            let reduce = || {
                self.gaspi.process().allreduce_user(
                    bytemuck::cast_slice(&values),
                    bytemuck::cast_slice_mut(&mut result),
                    self.id,
                    timeout,
                    &mut each,
                )
            };
            counted(const { procedure("gaspi_allreduce_user") }, reduce)?;
            Ok(std::mem::take(&mut result))
        })
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if self.id != GROUP_ALL {
            let _ = self.gaspi.process().group_delete(self.id);
        }
    }
}
