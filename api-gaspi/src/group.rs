//! Groups (GASPI 17.1 §6) and their collective operations (§11).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::{Mutex, MutexGuard};
use unipgas_core::calls::Call;
use unipgas_core::combine::{Combination, ElementType};
use unipgas_core::group::{Combine, Forming};
use unipgas_core::reclaimer::Reclaimer;
use unipgas_core::schedule::PAYLOAD;
use unipgas_core::{Deadline, Error, RankGroup};

use crate::process::{GROUP_ALL, GaspiProcess, Incarnation, deadline};
use crate::reduce::{Datatype, ReductionOperation, combined};
use crate::status::{Result, Status, from_engine};

/// The state of a group name.
#[derive(Default)]
pub(crate) struct GroupPlace {
    /// The committed group, for the fast path.
    committed: AtomicPtr<RankGroup>,
    /// A reduction in several parts has timed out. The next call resumes it.
    is_halfway: AtomicBool,
    halfway: Mutex<Option<Halfway>>,
    state: Mutex<GroupState>,
}

/// A reduction in several parts, after a timeout. The next call resumes it with the elements of the first call, as a reduction in one part.
struct Halfway {
    asked: (ReductionOperation, Datatype),
    send: Box<[u8]>,
    /// Results of the complete parts.
    reduced: Vec<u8>,
}

#[derive(Default)]
enum GroupState {
    #[default]
    Free,
    /// Ranks, ascending.
    Open(Vec<u32>),
    /// A commit has timed out.
    Forming(Vec<u32>, Box<Forming>),
    Committed(Box<RankGroup>),
}

impl GroupState {
    fn members(&self) -> Result<&[u32]> {
        match self {
            GroupState::Free => Err(Status::ErrInvGroup),
            GroupState::Open(members) | GroupState::Forming(members, _) => Ok(members),
            GroupState::Committed(group) => Ok(group.members()),
        }
    }
}

impl GroupPlace {
    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock()
    }

    /// Frees the name. The memory of the group stays until no call can read it. Errors: [`Status::ErrInvGroup`] if the name is free,
    /// [`Status::ErrActiveColl`] while an operation of the group is in progress.
    pub(crate) fn clear(&self, reclaimer: &Reclaimer) -> Result<()> {
        let mut state = self.state.try_lock().ok_or(Status::ErrActiveColl)?;
        state.members()?;
        if let GroupState::Committed(group) = &*state
            && !group.close()
        {
            return Err(Status::ErrActiveColl);
        }
        match std::mem::take(&mut *state) {
            GroupState::Committed(group) => self.forget(group, reclaimer),
            _ => self.end_halfway(),
        }
        Ok(())
    }

    /// Retires a closed group.
    fn forget(&self, group: Box<RankGroup>, reclaimer: &Reclaimer) {
        self.committed.store(null_mut(), Ordering::Release);
        self.end_halfway();
        group.release();
        reclaimer.retire(group, WEIGHT);
    }

    fn end_halfway(&self) {
        *self.halfway.lock() = None;
        self.is_halfway.store(false, Ordering::Relaxed);
    }
}

/// Weight of a group for the reclaim threshold: a group has about 2 kB.
const WEIGHT: usize = 8;

/// Hash of the members. The hash and the count of earlier groups of the same members identify a group.
fn fingerprint(processes: &[Incarnation]) -> u64 {
    let mut hasher = DefaultHasher::new();
    processes.hash(&mut hasher);
    hasher.finish()
}

impl GaspiProcess {
    fn place(&self, group: u8) -> Result<&GroupPlace> {
        self.groups
            .get(usize::from(group))
            .ok_or(Status::ErrInvGroup)
    }

    pub(crate) fn make_group_all(&self) {
        let all = (0..self.world.size()).collect();
        if let Some(place) = self.groups.first() {
            *place.state() = GroupState::Open(all);
        }
    }

    /// Makes an empty group (§6.3.1). Errors: [`Status::ErrManyGrp`].
    pub fn group_create(&self) -> Result<u8> {
        for (id, place) in self.groups.iter().enumerate() {
            let Some(mut state) = place.state.try_lock() else {
                continue;
            };
            if matches!(*state, GroupState::Free) {
                *state = GroupState::Open(Vec::new());
                return Ok(id as u8);
            }
        }
        Err(Status::ErrManyGrp)
    }

    /// Adds a rank to a group that is not committed (§6.3.2). Errors: [`Status::ErrInvGroup`], [`Status::ErrInvRank`] also if the rank is a
    /// member.
    pub fn group_add(&self, group: u8, rank: u16) -> Result<()> {
        let mut state = self.place(group)?.state();
        let GroupState::Open(members) = &mut *state else {
            return Err(Status::ErrInvGroup);
        };
        self.check_rank(rank)?;
        let rank = u32::from(rank);
        match members.binary_search(&rank) {
            Ok(_) => Err(Status::ErrInvRank),
            Err(at) => {
                members.insert(at, rank);
                Ok(())
            }
        }
    }

    /// Establishes a group (§6.3.3). A committed group does not change, unless new processes have replaced members: then it is formed again.
    /// Errors: [`Status::Timeout`]: call again; [`Status::ErrInvGroup`]; [`Status::ErrInvRank`] if this process is not a member.
    pub fn group_commit(&self, group: u8, timeout: u64) -> Result<()> {
        self.commit_group(group, deadline(timeout))
    }

    fn commit_group(&self, group: u8, deadline: Deadline) -> Result<()> {
        self.form(group, |forming| forming.advance(deadline))
    }

    /// Begins to establish a group. [`GaspiProcess::conclude_group`] follows after the members have met.
    pub(crate) fn begin_group(&self, group: u8) -> Result<()> {
        match self.form(group, |_| Err(Error::Timeout)) {
            Ok(()) | Err(Status::Timeout) => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// Concludes [`GaspiProcess::begin_group`]. If new processes have replaced members, the group is open again, and the program must commit it.
    pub(crate) fn conclude_group(&self, group: u8) -> Result<()> {
        let mut state = self.place(group)?.state();
        if let GroupState::Forming(members, forming) = &*state
            && forming.is_outdated()
        {
            *state = GroupState::Open(members.clone());
            return Ok(());
        }
        drop(state);
        self.form(group, Forming::conclude)
    }

    /// After a timeout of `go_on`, the next call resumes the forming.
    fn form(
        &self,
        group: u8,
        go_on: impl FnOnce(&mut Forming) -> unipgas_core::Result<RankGroup>,
    ) -> Result<()> {
        let place = self.place(group)?;
        let mut state = place.state.try_lock().ok_or(Status::ErrActiveColl)?;
        let members = state.members()?.to_vec();
        if members.is_empty() {
            return Err(Status::ErrInvGroup);
        }
        if members.binary_search(&self.world.rank()).is_err() {
            return Err(Status::ErrInvRank);
        }
        let mut forming = match std::mem::take(&mut *state) {
            GroupState::Committed(done) if !done.is_outdated() => {
                *state = GroupState::Committed(done);
                return Ok(());
            }
            GroupState::Forming(_, forming) if !forming.is_outdated() => forming,
            before => {
                if let GroupState::Committed(done) = before {
                    if !done.close() {
                        *state = GroupState::Committed(done);
                        return Err(Status::ErrActiveColl);
                    }
                    place.forget(done, &self.reclaimer);
                }
                *state = GroupState::Open(members.clone());
                let name = self.name_of_next(&members);
                Box::new(Forming::new(&self.world, &members, name).map_err(from_engine)?)
            }
        };
        match go_on(&mut forming) {
            Ok(done) => {
                let mut done = Box::new(done);
                place.committed.store(&raw mut *done, Ordering::Release);
                *state = GroupState::Committed(done);
                Ok(())
            }
            Err(Error::Timeout) => {
                *state = GroupState::Forming(members, forming);
                Err(Status::Timeout)
            }
            Err(error) => {
                *state = GroupState::Open(members);
                Err(from_engine(error))
            }
        }
    }

    /// Deletes a group (§6.4.1). Errors: [`Status::ErrInvGroup`] also for `GASPI_GROUP_ALL`; [`Status::ErrActiveColl`] while another thread is in
    /// an operation of the group.
    pub fn group_delete(&self, group: u8) -> Result<()> {
        if group == GROUP_ALL {
            return Err(Status::ErrInvGroup);
        }
        self.place(group)?.clear(&self.reclaimer)
    }

    /// Number of groups (§6.5.1).
    pub fn group_num(&self) -> u32 {
        self.groups
            .iter()
            .filter(|place| !matches!(*place.state(), GroupState::Free))
            .count() as u32
    }

    /// The ranks of a group, ascending (§6.5.3).
    pub fn group_ranks(&self, group: u8) -> Result<Vec<u16>> {
        let state = self.place(group)?.state();
        Ok(state.members()?.iter().map(|rank| *rank as u16).collect())
    }

    pub(crate) fn committed_members(&self, group: u8) -> Result<Vec<u32>> {
        self.with_group(group, |group, _call| Ok(group.members().to_vec()))
    }

    #[inline]
    fn with_group<R>(
        &self,
        group: u8,
        work: impl FnOnce(&RankGroup, Call) -> unipgas_core::Result<R>,
    ) -> Result<R> {
        let call = self.call();
        let committed = self.place(group)?.committed.load(Ordering::Acquire);
        // SAFETY:
        // - null, or a group of `form`. It is not freed before this call ends, and not while an operation of it is in progress.
        match unsafe { committed.as_ref() } {
            Some(group) => work(group, call).map_err(from_engine),
            None => Err(Status::ErrInvGroup),
        }
    }

    /// As [`with_group`](GaspiProcess::with_group), after other threads have left the same operation of the group. The specification leaves concurrent
    /// calls undefined (§11.2.1). Some programs make them, with equal numbers of calls on all members.
    #[inline]
    fn in_turn<R>(
        &self,
        group: u8,
        deadline: Deadline,
        mut work: impl FnMut(&RankGroup, Call) -> unipgas_core::Result<R>,
    ) -> Result<R> {
        match self.with_group(group, &mut work) {
            Err(Status::ErrActiveColl) => self.after_others(group, deadline, work),
            done => done,
        }
    }

    #[cold]
    fn after_others<R>(
        &self,
        group: u8,
        deadline: Deadline,
        mut work: impl FnMut(&RankGroup, Call) -> unipgas_core::Result<R>,
    ) -> Result<R> {
        let waited = self.world.engine().wait(deadline, &mut self.watch(), || {
            match self.with_group(group, &mut work) {
                Err(Status::ErrActiveColl) => Ok(None),
                done => Ok(Some(done)),
            }
        });
        waited.map_err(from_engine)?
    }

    /// Waits until each member has called it (§11.2.1). Errors: [`Status::Timeout`]: call again to resume.
    #[inline]
    pub fn barrier(&self, group: u8, timeout: u64) -> Result<()> {
        self.barrier_until(group, deadline(timeout))
    }

    #[inline]
    pub(crate) fn barrier_until(&self, group: u8, deadline: Deadline) -> Result<()> {
        self.in_turn(group, deadline, |group, call| {
            group.barrier_in(call, deadline)
        })
    }

    /// Reduces `num` elements of each member. Each member gets the result (§11.3.1). The buffers must have `num` elements of the type.
    /// Errors: [`Status::ErrInvNum`] for 0 elements, or more than `gaspi_allreduce_elem_max`; [`Status::ErrInvSize`] for other buffer sizes;
    /// [`Status::Timeout`]: the same call resumes, with the elements of the first call; [`Status::ErrActiveColl`]: another reduction is in progress.
    #[allow(clippy::too_many_arguments)]
    pub fn allreduce(
        &self,
        send: &[u8],
        receive: &mut [u8],
        num: u32,
        operation: ReductionOperation,
        datatype: Datatype,
        group: u8,
        timeout: u64,
    ) -> Result<()> {
        if num == 0 || num > self.config.allreduce_elem_max {
            return Err(Status::ErrInvNum);
        }
        let len = num as usize * datatype.size();
        if send.len() != len || receive.len() != len {
            return Err(Status::ErrInvSize);
        }
        let elements = combined(operation, datatype);
        let place = self.place(group)?;
        if len <= PAYLOAD && !place.is_halfway.load(Ordering::Relaxed) {
            return self.reduce_elements(send, receive, group, deadline(timeout), elements);
        }
        // One part after the other. A retry skips the parts that were complete before the timeout.
        let mut halfway = place.halfway.try_lock().ok_or(Status::ErrActiveColl)?;
        let asked = (operation, datatype);
        let other = |begun: &Halfway| begun.asked != asked || begun.send.len() != len;
        if halfway.as_ref().is_some_and(other) {
            return Err(Status::ErrActiveColl);
        }
        let (deadline, begun) = (deadline(timeout), halfway.take());
        let part = PAYLOAD / datatype.size() * datatype.size();
        let mut done = begun.as_ref().map_or(0, |begun| begun.reduced.len());
        if let Some(begun) = &begun {
            receive[..done].copy_from_slice(&begun.reduced);
        }
        let mut reduced = Ok(());
        while done < len && reduced.is_ok() {
            let range = done..len.min(done + part);
            let send = begun.as_ref().map_or(send, |begun| &begun.send);
            let (send, receive) = (&send[range.clone()], &mut receive[range.clone()]);
            reduced = self.reduce_elements(send, receive, group, deadline, elements);
            if reduced.is_ok() {
                done = range.end;
            }
        }
        if reduced == Err(Status::Timeout) {
            *halfway = Some(Halfway {
                asked,
                send: begun.map_or_else(|| send.into(), |begun| begun.send),
                reduced: receive[..done].to_vec(),
            });
        }
        place.is_halfway.store(halfway.is_some(), Ordering::Relaxed);
        reduced
    }

    /// Reduces with an operation of the program. It must be commutative and associative (§11.4.1). Errors: [`Status::ErrInvSize`] for 0 bytes, or
    /// more than `gaspi_allreduce_buf_size`.
    pub fn allreduce_user(
        &self,
        send: &[u8],
        receive: &mut [u8],
        group: u8,
        timeout: u64,
        combine: &mut Combine<'_>,
    ) -> Result<()> {
        let most = self.config.allreduce_buf_size;
        if send.is_empty() || send.len() as u64 > most || send.len() != receive.len() {
            return Err(Status::ErrInvSize);
        }
        let deadline = deadline(timeout);
        self.in_turn(group, deadline, |group, call| {
            group.all_reduce_in(call, send, receive, combine, deadline)
        })
    }

    fn reduce_elements(
        &self,
        send: &[u8],
        receive: &mut [u8],
        group: u8,
        deadline: Deadline,
        elements: (Combination, ElementType),
    ) -> Result<()> {
        self.in_turn(group, deadline, |group, call| {
            group.all_reduce_elements_in(call, send, receive, elements, deadline)
        })
    }

    /// Name of the next group of exactly these members. All members compute the same name, for two reasons:
    /// - They commit their common groups in the same order (§6.3.3).
    /// - A replacement process is another incarnation: all members count from 0 for it.
    fn name_of_next(&self, members: &[u32]) -> [u64; 2] {
        let known = |rank: &u32| (*rank, self.world.incarnation_of(*rank));
        let processes: Box<[_]> = members.iter().map(known).collect();
        let print = fingerprint(&processes);
        let mut counts = self.group_counts.lock();
        let count = counts.entry(processes).or_insert(0u64);
        *count += 1;
        [print, *count]
    }
}
