//! Groups and their collective operations.

use std::sync::atomic::{AtomicBool, Ordering};

use super::gaspi::Gaspi;
use super::pending::Pending;
use super::{Element, Result, counted};
use crate::process::GROUP_ALL;
use crate::reduce::{Datatype, ReductionOperation};
use crate::statistics::procedure;
use crate::status::{self, Status};

/// A group of processes for collective operations (§6, §11). Drop deletes it (§6.4.1), except [`Gaspi::group_all`].
///
/// A group has one barrier and one reduction at a time (§11.1). A second one is refused with [`ErrActiveColl`](Status::ErrActiveColl).
///
/// ```
/// # use unipgas::gaspi::safe::{Error, Gaspi};
/// # use unipgas::gaspi::ReductionOperation;
/// # unipgas::init();
/// # let gaspi = Gaspi::init()?;
/// let group = gaspi.group(&[gaspi.rank()])?;
/// group.barrier()?;
/// assert_eq!(group.allreduce(&[3.0, -1.0], ReductionOperation::Max)?, [3.0, -1.0]);
/// // The largest value, and whose it is.
/// let mine = [[17, u64::from(gaspi.rank())]];
/// assert_eq!(group.allreduce_by(&mine, |one, other| one.max(other))?, [[17, 0]]);
/// # Ok::<(), Error>(())
/// ```
pub struct Group<'g> {
    gaspi: &'g Gaspi,
    id: u8,
}

/// The operations of a group in progress.
#[derive(Default)]
pub(super) struct Activity {
    meets: AtomicBool,
    reduces: AtomicBool,
}

/// Marks a kind of operation as in progress.
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
        // After a panic the operation is incomplete, and the group must refuse another one.
        if !std::thread::panicking() {
            self.0.store(false, Ordering::Release);
        }
    }
}

/// Elements of the predefined reductions (§11.3.3).
pub trait Reducible: Element {
    /// The type in the C interface.
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
    /// The group of all processes (`GASPI_GROUP_ALL`). It is committed at the beginning, with two exceptions: `build_infrastructure` of the
    /// configuration is 0, or this process has replaced a dead one. Then all processes must [commit](Group::commit) it.
    pub fn group_all(&self) -> Group<'_> {
        Group {
            gaspi: self,
            id: GROUP_ALL,
        }
    }

    /// Forms a group of these ranks, in any order, and waits for all of them (§6.3). All members call it with the same ranks. They form their
    /// common groups in the same order.
    ///
    /// # Errors
    /// [`ErrManyGrp`](Status::ErrManyGrp); [`ErrInvRank`](Status::ErrInvRank): a rank does not exist or is there twice, or this process is missing;
    /// [`ErrInvGroup`](Status::ErrInvGroup): no ranks; [`Failed`](super::Error::Failed): a member has died.
    pub fn group(&self, ranks: &[u16]) -> Result<Group<'_>> {
        self.begin_group(ranks)?.wait()
    }

    /// As [`group`](Gaspi::group), with timeouts.
    ///
    /// # Errors
    /// As [`group`](Gaspi::group).
    pub fn begin_group(&self, ranks: &[u16]) -> Result<Pending<'_, Group<'_>>> {
        let id = self.process().group_create()?;
        let group = Group { gaspi: self, id };
        // A panic in an earlier group of this name may have left the flags set.
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

    /// Errors: [`ErrActiveColl`](Status::ErrActiveColl): a barrier is in progress.
    pub(super) fn begin_meeting(&self) -> Result<Active<'g>> {
        Active::begin(&self.activity().meets)
    }

    fn begin_reduction(&self) -> Result<Active<'g>> {
        Active::begin(&self.activity().reduces)
    }

    /// The ranks of the members, ascending (§6.5.3).
    ///
    /// # Errors
    /// None for an existing group.
    pub fn ranks(&self) -> Result<Vec<u16>> {
        Ok(self.gaspi.process().group_ranks(self.id)?)
    }

    /// Forms the group again after the replacement of members, or forms a [`Gaspi::group_all`] that is not committed (`gaspi_group_commit`,
    /// §6.3.3). Otherwise it has no effect.
    ///
    /// # Errors
    /// [`ErrActiveColl`](Status::ErrActiveColl): an operation is in progress; [`Failed`](super::Error::Failed): a member has died.
    pub fn commit(&self) -> Result<()> {
        self.begin_commit()?.wait()
    }

    /// As [`commit`](Group::commit), with timeouts.
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

    /// Waits until each member has called it (`gaspi_barrier`, §11.2.1).
    ///
    /// # Errors
    /// [`ErrActiveColl`](Status::ErrActiveColl): another barrier is in progress; [`ErrInvGroup`](Status::ErrInvGroup): the group is not committed;
    /// [`Failed`](super::Error::Failed): a member has died.
    pub fn barrier(&self) -> Result<()> {
        let _active = self.begin_meeting()?;
        Ok(self.meet(u64::MAX)?)
    }

    /// As [`barrier`](Group::barrier), with timeouts, or with other work meanwhile.
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

    /// Reduces the values of the members, element by element. Each member gets the result (`gaspi_allreduce`, §11.3.1). All members pass the same
    /// number of values and the same operation.
    ///
    /// # Errors
    /// [`ErrInvNum`](Status::ErrInvNum): no values, or more than `allreduce_elem_max` of the configuration. Others as [`barrier`](Group::barrier).
    pub fn allreduce<T: Reducible>(
        &self,
        values: &[T],
        operation: ReductionOperation,
    ) -> Result<Vec<T>> {
        self.begin_allreduce(values, operation)?.wait()
    }

    /// As [`allreduce`](Group::allreduce), with timeouts, or with other work meanwhile.
    ///
    /// # Errors
    /// As [`allreduce`](Group::allreduce).
    pub fn begin_allreduce<T: Reducible>(
        &self,
        values: &[T],
        operation: ReductionOperation,
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

    /// Reduces with an operation of the program. It must be commutative and associative (`gaspi_allreduce_user`, §11.4.1). Elements may have any
    /// type.
    ///
    /// # Errors
    /// [`ErrInvSize`](Status::ErrInvSize): no values, or more than `allreduce_buf_size` bytes of the configuration. Others as
    /// [`barrier`](Group::barrier).
    pub fn allreduce_by<T: Element>(
        &self,
        values: &[T],
        combine: impl FnMut(T, T) -> T + Send,
    ) -> Result<Vec<T>> {
        self.begin_allreduce_by(values, combine)?.wait()
    }

    /// As [`allreduce_by`](Group::allreduce_by), with timeouts, or with other work meanwhile.
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
            // The buffers of the engine need not be aligned.
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
