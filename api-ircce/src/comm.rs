//! Communicators: UEs that do something together.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::directory::GROUP_PLACES;
use unipgas_core::group::Forming;
use unipgas_core::message::Needs;
use unipgas_core::{Deadline, Error, Group, World};

use crate::air::NOTICE;
use crate::process::Ue;
use crate::status::{Code, Failure, Result};

pub use unipgas_ircce_sys::RCCE_MAXNP as MAX_UES;

/// `RCCE_COMM`: what programs hold, copy and read of a communicator. The calls that take it refuse other bytes than those of a communicator that lives.
pub type Comm = unipgas_ircce_sys::RCCE_COMM;

/// A communicator that this UE is a member of.
pub struct Communicator {
    number: u32,
    members: Box<[u32]>,
    rank: u32,
    group: Group,
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

    /// The same at all members, and different for communicators that share a member: 0 for that of all UEs.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Where a communicator is found by the C structure.
struct Slot {
    serial: AtomicU32,
    communicator: AtomicPtr<Communicator>,
}

pub(crate) struct Communicators {
    slots: Box<[Slot]>,
    changes: Mutex<Changes>,
}

struct Changes {
    /// Calls of `comm_split`, which all UEs make in the same order.
    splits: u32,
    serials: u32,
    /// Freed ones, in whose operations another thread may still be.
    #[allow(clippy::vec_box, reason = "their addresses must stay")]
    retired: Vec<Box<Communicator>>,
}

/// The communicator of all UEs, before they have met.
pub(crate) struct Everybody(Forming);

impl Everybody {
    pub fn begin(world: &Arc<World>) -> Result<Self> {
        let all: Vec<u32> = (0..world.size()).collect();
        Communicator::begin(world, &all, 0).map(Everybody)
    }
}

impl Communicators {
    /// With the communicator of all UEs, which have met since they began it, in the first slot.
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
        let slot = self.slots.iter().find(free).ok_or(Code::Malloc)?;
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
        // - null, or made by `put`, and kept, here or among the retired ones, as long as self.
        unsafe { communicator.as_ref() }
    }

    /// False: there is no such communicator.
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
        // - made by `Box::into_raw` in `put`, and the swap gave it to this thread alone.
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
                // - made by `Box::into_raw` in `put`; nobody else has a reference to self any more.
                drop(unsafe { Box::from_raw(communicator) });
            }
        }
    }
}

impl Communicator {
    fn begin(world: &Arc<World>, members: &[u32], number: u32) -> Result<Forming> {
        // The split tells communicators of the same members apart, the first member those of one split.
        let name = [
            u64::from_be_bytes(*b"rcceComm"),
            u64::from(number) << 32 | u64::from(members[0]),
        ];
        Forming::new(world, members, name).map_err(|error| match error {
            Error::Exhausted(_) => Failure::Code(Code::Malloc),
            error => Failure::Engine(error),
        })
    }

    fn new(number: u32, group: Group) -> Self {
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

    /// What stands behind a communicator. Errors: [`Code::CommUndefined`].
    #[inline]
    pub fn communicator(&self, comm: &Comm) -> Result<&Communicator> {
        let found = self.communicators.find(comm);
        found.ok_or(Failure::Code(Code::CommUndefined))
    }

    /// Divides all UEs by the colours of their numbers and gives this one's part (`RCCE_comm_split`). All UEs call it, with a function
    /// that gives the same everywhere. Errors: [`Code::Malloc`] for too many communicators (64 at a time, with that of all UEs).
    pub fn comm_split(&self, colour: impl FnMut(u32) -> i32) -> Result<Comm> {
        self.barrier(&self.comm_world())?;
        self.divide(colour)
    }

    /// As [`Ue::comm_split`] where the program splits anew into the variable that has `old`: this goes if there is no room otherwise.
    /// Until then the program may use a copy of it.
    pub(crate) fn comm_split_over(
        &self,
        old: &Comm,
        colour: impl FnMut(u32) -> i32,
    ) -> Result<Comm> {
        // After it nobody is in an operation of the old one any more.
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

    /// Gives a communicator's memory back (`RCCE_comm_free`). Errors: [`Code::CommInitialized`] for one that is not initialised;
    /// [`Code::CommUndefined`] for that of all UEs, which stays.
    pub fn comm_free(&self, comm: &Comm) -> Result<()> {
        if *comm == self.comm_world() {
            return Err(Code::CommUndefined.into());
        }
        if self.communicators.take(comm) {
            Ok(())
        } else {
            Err(Code::CommInitialized.into())
        }
    }

    /// Ends when every member has called it (`RCCE_barrier`). Errors: [`Code::CommUndefined`]; [`Failure::Engine`] when a member dies.
    #[inline]
    pub fn barrier(&self, comm: &Comm) -> Result<()> {
        let communicator = self.communicator(comm)?;
        self.meet(communicator, |deadline| {
            communicator.group.barrier(deadline)
        })
    }

    /// The barrier of all UEs over the increment registers (`iRCCE_barrier`); other communicators have [`Ue::barrier`], and do not meet
    /// it at that of all UEs. Errors: as for [`Ue::barrier`].
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
            // A member may wait for one of them before it comes here.
            let needs = Needs::Ranks(communicator.members());
            return self.wait_beside(needs, || match go_on(Deadline::Now) {
                Err(Error::Timeout | Error::Busy) => None,
                result => Some(result.map_err(Failure::Engine)),
            })?;
        }
        loop {
            match go_on(Deadline::Never) {
                // Another thread of this UE is in it.
                Err(Error::Busy) => std::thread::sleep(Duration::from_micros(100)),
                result => return result.map_err(Failure::Engine),
            }
        }
    }
}
