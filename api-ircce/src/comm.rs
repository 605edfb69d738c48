//! Communicators: groups of UEs for collective operations.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::directory::GROUP_PLACES;
use unipgas_core::group::Forming;
use unipgas_core::message::Needs;
use unipgas_core::{Deadline, Error, RankGroup, World};

use crate::air::NOTICE;
use crate::process::Ue;
use crate::status::{ErrorCode, Failure, Result};

pub use unipgas_ircce_sys::RCCE_MAXNP as MAX_UES;

/// `RCCE_COMM`: the program's handle of a communicator. Programs copy and read it. Calls reject a handle that does not belong to a live communicator.
pub type Comm = unipgas_ircce_sys::RCCE_COMM;

/// A communicator. This UE is a member.
pub struct Communicator {
    number: u32,
    members: Box<[u32]>,
    rank: u32,
    group: RankGroup,
}

impl Communicator {
    /// The members' numbers among all UEs, ascending.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// This UE's number among the members.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The same number at all members. Communicators that share a member have different numbers. 0: all UEs.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// A table entry. The C structure holds its address.
struct Slot {
    serial: AtomicU32,
    communicator: AtomicPtr<Communicator>,
}

pub(crate) struct Communicators {
    slots: Box<[Slot]>,
    changes: Mutex<Changes>,
}

struct Changes {
    /// Number of `comm_split` calls. All UEs make them in the same order.
    splits: u32,
    serials: u32,
    /// Freed communicators. Another thread may still be in an operation of them.
    #[allow(clippy::vec_box, reason = "their addresses must stay")]
    retired: Vec<Box<Communicator>>,
}

/// The communicator of all UEs, before the first barrier.
pub(crate) struct Everybody(Forming);

impl Everybody {
    pub fn begin(world: &Arc<World>) -> Result<Self> {
        let all: Vec<u32> = (0..world.size()).collect();
        Communicator::begin(world, &all, 0).map(Everybody)
    }
}

impl Communicators {
    /// Puts the communicator of all UEs in the first slot. All UEs have met since `begin`.
    pub fn new(mut everybody: Everybody) -> Result<Self> {
        let group = everybody.0.conclude().map_err(Failure::Engine)?;
        let slots = (0..GROUP_PLACES).map(|_| Slot {
            serial: AtomicU32::new(0),
            communicator: AtomicPtr::default(),
        });
        let communicators = Communicators {
            slots: slots.collect(),
            changes: Mutex::new(Changes {
                splits: 0,
                serials: 0,
                retired: Vec::new(),
            }),
        };
        communicators.put(Communicator::new(0, group))?;
        Ok(communicators)
    }

    fn put(&self, communicator: Communicator) -> Result<Comm> {
        let mut changes = self.changes.lock();
        let free = |slot: &&Slot| slot.communicator.load(Ordering::Acquire).is_null();
        let slot = self.slots.iter().find(free).ok_or(ErrorCode::Malloc)?;
        changes.serials = changes.serials % (i32::MAX as u32) + 1;
        let mut comm = Comm {
            size: communicator.members.len() as i32,
            my_rank: communicator.rank as i32,
            initialized: changes.serials as i32,
            member: [0; MAX_UES],
            gather: std::ptr::from_ref(slot).cast_mut().cast(),
            release: std::ptr::from_ref(slot).cast_mut().cast(),
        };
        for (place, id) in comm.member.iter_mut().zip(&communicator.members) {
            *place = *id as i32;
        }
        let communicator = Box::into_raw(Box::new(communicator));
        slot.communicator.store(communicator, Ordering::Release);
        slot.serial.store(changes.serials, Ordering::Release);
        Ok(comm)
    }

    fn is_full(&self) -> bool {
        let taken = |slot: &Slot| !slot.communicator.load(Ordering::Acquire).is_null();
        self.slots.iter().all(taken)
    }

    fn slot(&self, comm: &Comm) -> Option<&Slot> {
        let offset = (comm.gather as usize).wrapping_sub(self.slots.as_ptr() as usize);
        let slot = self.slots.get(offset / size_of::<Slot>())?;
        let known = offset.is_multiple_of(size_of::<Slot>())
            && comm.initialized != 0
            && slot.serial.load(Ordering::Acquire) == comm.initialized as u32;
        known.then_some(slot)
    }

    fn find(&self, comm: &Comm) -> Option<&Communicator> {
        let communicator = self.slot(comm)?.communicator.load(Ordering::Acquire);
        // SAFETY:
        // - the pointer is null or comes from `put`. The communicator stays in its slot or in `retired` until self is dropped.
        unsafe { communicator.as_ref() }
    }

    /// Retires a communicator. False: it does not exist.
    fn take(&self, comm: &Comm) -> bool {
        let mut changes = self.changes.lock();
        let Some(slot) = self.slot(comm) else {
            return false;
        };
        slot.serial.store(0, Ordering::Release);
        let communicator = slot.communicator.swap(null_mut(), Ordering::AcqRel);
        if communicator.is_null() {
            return false;
        }
        // SAFETY:
        // - the pointer comes from `Box::into_raw` in `put`, and the swap gave it to this thread alone.
        let communicator = unsafe { Box::from_raw(communicator) };
        communicator.group.release();
        changes.retired.push(communicator);
        true
    }
}

impl Drop for Communicators {
    fn drop(&mut self) {
        for slot in &self.slots {
            let communicator = slot.communicator.swap(null_mut(), Ordering::AcqRel);
            if !communicator.is_null() {
                // SAFETY:
                // - the pointer comes from `Box::into_raw` in `put`. `drop` has the only reference to self.
                drop(unsafe { Box::from_raw(communicator) });
            }
        }
    }
}

impl Communicator {
    fn begin(world: &Arc<World>, members: &[u32], number: u32) -> Result<Forming> {
        // `number` distinguishes communicators with the same members; the first member distinguishes the communicators of one split.
        let name = [
            u64::from_be_bytes(*b"rcceComm"),
            u64::from(number) << 32 | u64::from(members[0]),
        ];
        Forming::new(world, members, name).map_err(|error| match error {
            Error::Exhausted(_) => Failure::Code(ErrorCode::Malloc),
            error => Failure::Engine(error),
        })
    }

    fn new(number: u32, group: RankGroup) -> Self {
        Communicator {
            number,
            members: group.members().into(),
            rank: group.index(),
            group,
        }
    }
}

impl Ue {
    /// `RCCE_COMM_WORLD`: all UEs.
    pub fn comm_world(&self) -> Comm {
        let mut comm = Comm {
            size: self.num() as i32,
            my_rank: self.id() as i32,
            ..Comm::UNDEFINED
        };
        for id in 0..self.num() {
            comm.member[id as usize] = id as i32;
        }
        let slot = &self.communicators.slots[0];
        comm.initialized = slot.serial.load(Ordering::Acquire) as i32;
        comm.gather = std::ptr::from_ref(slot).cast_mut().cast();
        comm.release = comm.gather;
        comm
    }

    /// The communicator of a handle. Errors: [`ErrorCode::CommUndefined`].
    #[inline]
    pub fn communicator(&self, comm: &Comm) -> Result<&Communicator> {
        let found = self.communicators.find(comm);
        found.ok_or(Failure::Code(ErrorCode::CommUndefined))
    }

    /// Splits all UEs into communicators, one for each colour, and returns this UE's communicator (`RCCE_comm_split`). All UEs call it. `colour` maps a UE's
    /// number to its colour, with the same results at all UEs. Errors: [`ErrorCode::Malloc`] if 256 communicators exist, including the communicator of all UEs.
    pub fn comm_split(&self, colour: impl FnMut(u32) -> i32) -> Result<Comm> {
        self.barrier(&self.comm_world())?;
        self.divide(colour)
    }

    /// As [`Ue::comm_split`], for a program that overwrites its handle `old`. The program may still use a copy of `old`, so `old` is freed only if there is
    /// no room otherwise.
    pub(crate) fn comm_split_over(
        &self,
        old: &Comm,
        colour: impl FnMut(u32) -> i32,
    ) -> Result<Comm> {
        // After this barrier, no UE is in an operation of the old communicator.
        self.barrier(&self.comm_world())?;
        if self.communicators.is_full() {
            let _ = self.comm_free(old);
        }
        self.divide(colour)
    }

    fn divide(&self, mut colour: impl FnMut(u32) -> i32) -> Result<Comm> {
        let mine = colour(self.id());
        let members: Vec<u32> = (0..self.num())
            .filter(|id| *id == self.id() || colour(*id) == mine)
            .collect();
        let number = {
            let mut changes = self.communicators.changes.lock();
            changes.splits += 1;
            changes.splits
        };
        let group = Communicator::begin(self.world(), &members, number)?
            .advance(Deadline::Never)
            .map_err(Failure::Engine)?;
        self.communicators.put(Communicator::new(number, group))
    }

    /// Frees a communicator (`RCCE_comm_free`). Errors: [`ErrorCode::CommInitialized`] if it is not initialised; [`ErrorCode::CommUndefined`] if it is the communicator
    /// of all UEs, which cannot be freed.
    pub fn comm_free(&self, comm: &Comm) -> Result<()> {
        if *comm == self.comm_world() {
            return Err(ErrorCode::CommUndefined.into());
        }
        if self.communicators.take(comm) {
            Ok(())
        } else {
            Err(ErrorCode::CommInitialized.into())
        }
    }

    /// Returns when each member has called it (`RCCE_barrier`). Errors: [`ErrorCode::CommUndefined`]; [`Failure::Engine`] if a member dies.
    #[inline]
    pub fn barrier(&self, comm: &Comm) -> Result<()> {
        let communicator = self.communicator(comm)?;
        self.meet(communicator, |deadline| {
            communicator.group.barrier(deadline)
        })
    }

    /// The barrier over the increment registers, for the communicator of all UEs (`iRCCE_barrier`). It does not match [`Ue::barrier`] of the same
    /// communicator. For other communicators it is [`Ue::barrier`]. Errors: as for [`Ue::barrier`].
    #[inline]
    pub fn air_barrier(&self, comm: &Comm) -> Result<()> {
        let communicator = self.communicator(comm)?;
        if communicator.number() != 0 {
            return self.barrier(comm);
        }
        let word = self.word(NOTICE)?;
        self.meet(communicator, |deadline| {
            self.registers.barrier.meet(word, deadline)
        })
    }

    #[inline]
    fn meet(
        &self,
        communicator: &Communicator,
        mut go_on: impl FnMut(Deadline) -> unipgas_core::Result<()>,
    ) -> Result<()> {
        if self.has_messages_under_way() {
            // A member may wait for one of these messages before it enters the barrier.
            let needs = Needs::Ranks(communicator.members());
            return self.wait_beside(needs, || match go_on(Deadline::Now) {
                Err(Error::Timeout | Error::Busy) => None,
                result => Some(result.map_err(Failure::Engine)),
            })?;
        }
        loop {
            match go_on(Deadline::Never) {
                // Another thread of this UE is in the barrier.
                Err(Error::Busy) => std::thread::sleep(Duration::from_micros(100)),
                result => return result.map_err(Failure::Engine),
            }
        }
    }
}
