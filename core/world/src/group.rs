//! Groups of ranks and their collective operations: resumable walks along a [`schedule`](unipgas_schedule).
//!
//! An operation that runs into its deadline keeps its state, and the next call continues it (GASPI 17.1 §11.1). Flags hold operation numbers, so no flag needs
//! a reset between operations.

mod arena;
mod forming;
mod gates;
mod meet;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use arena::{Area, Arena, IN_LINE};
pub use forming::Forming;
use gates::Way;

use crate::world::World;
use unipgas_base::combine::{Combination, ElementType, combine};
use unipgas_base::exclusive::Exclusive;
use unipgas_base::{Deadline, Error, Result};
use unipgas_engine::Endpoint;
use unipgas_engine::op::{Flags, Local, Notice, Remote};
use unipgas_engine::pending_fetch::PendingFetch;
use unipgas_engine::region::RemoteRegion;
use unipgas_schedule::{PAYLOAD, Schedule, Shapes, Step};

/// Number before the first operation. The numbers pass 2^31 in each program, so faults there show early.
const FIRST: u32 = (1 << 31) - 20;
/// Operations between two updates of unused flags.
const OFTEN: u32 = 1 << 20;
/// Longest wait for a member that does not answer, before memory is given back.
const PATIENCE: Duration = Duration::from_millis(100);

/// Combines `other` into `held`, which has the same length in bytes. The order of members is not defined.
pub type Combine<'a> = dyn FnMut(&mut [u8], &[u8]) -> Result<()> + 'a;

/// Operations of one kind: their schedule, and the progress of this member.
struct Walk {
    schedule: Schedule,
    area: Area,
    number: u32,
    at: usize,
    /// The operation has taken the value. It may still wait for the previous operation.
    begun: bool,
    running: bool,
    /// In [`RankGroup::meet`]: this member's count in progress, and whether it is done.
    counting: Option<PendingFetch>,
    met: bool,
    /// In [`RankGroup::meet`], if this member was the last one: number of members that it has released.
    tells: Option<u32>,
    /// Number of children that it has released.
    passed: usize,
    /// Whether the operations use gates of the network.
    way: Way,
    held: Vec<u8>,
    /// The own value, while the value of another member is held.
    kept: Vec<u8>,
}

/// A formed group. A drop frees its memory.
pub struct RankGroup {
    world: Arc<World>,
    members: Box<[u32]>,
    /// The members' processes.
    incarnations: Box<[u32]>,
    name: [u64; 2],
    shapes: Shapes,
    arena: Arena,
    /// The imported arenas of members. Collective operations use only some members of many.
    peers: Box<[OnceBox<RemoteRegion>]>,
    endpoint: Endpoint,
    place: usize,
    /// The directory still lists the group.
    listed: AtomicBool,
    barrier: Exclusive<Walk>,
    reduce: Exclusive<Walk>,
    broadcast: Exclusive<Walk>,
}

impl Drop for RankGroup {
    fn drop(&mut self) {
        if !self.release_within(Deadline::after(PATIENCE)) {
            // A member does not answer. The memory lives as long as this process.
            std::mem::forget(self.arena.region.lock().take());
        }
    }
}

impl RankGroup {
    /// Gives the group's memory back, now or at the drop: own puts may be in flight to a member that is dead or does not answer. An operation of another thread
    /// then ends only by its deadline; [`RankGroup::close`] detects one.
    pub fn release(&self) {
        self.release_within(Deadline::Now);
    }

    /// False: own puts still read the memory. Other members' puts in flight find a stale region, or memory that is not in use.
    fn release_within(&self, deadline: Deadline) -> bool {
        let mut region = self.arena.region.lock();
        if region.is_none() {
            return true;
        }
        if self.listed.swap(false, Ordering::AcqRel) {
            let _ = self.world.directory().unlist_group(self.place);
        }
        let engine = self.world.engine();
        let drained = self
            .endpoint
            .drain(engine, deadline, &mut self.world.watch_lives());
        if drained == Err(Error::Timeout) {
            return false;
        }
        *region = None;
        true
    }

    /// Begins no more operations. False: an operation is in progress, and the group is unchanged.
    pub fn close(&self) -> bool {
        let parts = [&self.barrier, &self.reduce, &self.broadcast];
        let closed = parts.iter().take_while(|part| part.close()).count();
        if closed < parts.len() {
            parts[..closed].iter().for_each(|part| part.open());
        }
        closed == parts.len()
    }

    /// Whether a member's process has been replaced. Then the group is unusable.
    pub fn is_outdated(&self) -> bool {
        let replaced = self.world.first_replaced(&self.members, &self.incarnations);
        replaced.is_some()
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn memory(&self) -> (*mut u8, usize) {
        (self.arena.base, self.arena.len)
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn meets_by_gates(&self) -> bool {
        let by_gates = |walk: &mut Walk| Ok(matches!(walk.way, Way::Gates(..)));
        self.barrier.with(by_gates).is_ok_and(|by_gates| by_gates)
    }

    /// The ranks of the members, ascending.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// Number of this process among the members.
    pub fn index(&self) -> u32 {
        self.members
            .iter()
            .position(|rank| *rank == self.world.rank())
            .unwrap_or_default() as u32
    }

    /// Waits until each member has called it. Errors: [`Error::Timeout`] (call again to continue), [`Error::RankDead`], [`Error::Busy`] while another thread is
    /// in the same operation (GASPI 17.1 §11.2.1).
    #[inline]
    pub fn barrier(&self, deadline: Deadline) -> Result<()> {
        self.barrier_in((), deadline)
    }

    /// [`RankGroup::barrier`] in the [call](unipgas_base::calls::Call) that has found the group. The call ends when the operation has begun.
    /// [`RankGroup::close`] sees the operation then.
    #[inline]
    pub fn barrier_in<C>(&self, call: C, deadline: Deadline) -> Result<()> {
        self.barrier.with(|walk| {
            drop(call);
            match walk.way {
                Way::Schedule => self.walk(walk, deadline, &mut |_, _| Ok(())),
                _ => self.pass(walk, deadline),
            }
        })
    }

    /// Combines the `value` of all members into `result` at each member. Values have the same length, at most [`PAYLOAD`] bytes. `combine` must be commutative
    /// and associative. The first call of an operation takes the value. Calls after an [`Error::Timeout`] continue with that value. Errors: as
    /// [`RankGroup::barrier`]; an error of `combine` ends this call, and the next call repeats that combination.
    pub fn all_reduce(
        &self,
        value: &[u8],
        result: &mut [u8],
        combine: &mut Combine<'_>,
        deadline: Deadline,
    ) -> Result<()> {
        self.all_reduce_in((), value, result, combine, deadline)
    }

    /// [`RankGroup::all_reduce`] in a call, as [`RankGroup::barrier_in`].
    pub fn all_reduce_in<C>(
        &self,
        call: C,
        value: &[u8],
        result: &mut [u8],
        combine: &mut Combine<'_>,
        deadline: Deadline,
    ) -> Result<()> {
        self.reduce(call, value, result, (None, combine), deadline)
    }

    /// [`RankGroup::all_reduce_in`] for elements of a type. It uses gates of the network if they support it. All members must pass the same combination and type.
    pub fn all_reduce_elements_in<C>(
        &self,
        call: C,
        value: &[u8],
        result: &mut [u8],
        (how, element): (Combination, ElementType),
        deadline: Deadline,
    ) -> Result<()> {
        let mut each = |held: &mut [u8], other: &[u8]| {
            combine(how, element, held, other);
            Ok(())
        };
        self.reduce(
            call,
            value,
            result,
            (Some((how, element)), &mut each),
            deadline,
        )
    }

    fn reduce<C>(
        &self,
        call: C,
        value: &[u8],
        result: &mut [u8],
        (elements, combine): (Option<(Combination, ElementType)>, &mut Combine<'_>),
        deadline: Deadline,
    ) -> Result<()> {
        check_payload(value.len())?;
        if value.len() != result.len() {
            return Err(Error::InvalidArgument(
                "value and result must have the same length".into(),
            ));
        }
        self.reduce.with(|walk| {
            drop(call);
            if !walk.begun {
                walk.held.clear();
                walk.held.extend_from_slice(value);
                walk.begun = true;
            }
            match walk.way {
                Way::Schedule => self.walk(walk, deadline, combine)?,
                _ => self.reduce_held(walk, elements, combine, deadline)?,
            }
            if walk.held.len() != result.len() {
                return Err(begun_otherwise());
            }
            result.copy_from_slice(&walk.held);
            Ok(())
        })
    }

    /// Copies the `value` of member number `root` (at most [`PAYLOAD`] bytes) to all members. It ends when all have the value. Errors: as [`RankGroup::barrier`].
    pub fn broadcast(&self, value: &mut [u8], root: u32, deadline: Deadline) -> Result<()> {
        check_payload(value.len())?;
        if root >= self.size() {
            return Err(Error::InvalidArgument(format!(
                "the root must be below {}",
                self.size()
            )));
        }
        self.broadcast.with(|walk| {
            if !walk.begun {
                let broadcast = self.shapes.broadcast;
                walk.schedule = broadcast.schedule(self.index(), self.size(), root);
                walk.held.clear();
                walk.held.extend_from_slice(value);
                walk.begun = true;
            }
            self.walk(walk, deadline, &mut |_, _| Ok(()))?;
            if walk.held.len() != value.len() {
                return Err(begun_otherwise());
            }
            value.copy_from_slice(&walk.held);
            Ok(())
        })
    }

    fn walk(&self, walk: &mut Walk, deadline: Deadline, combine: &mut Combine<'_>) -> Result<()> {
        if !walk.running {
            let often = walk.number.is_multiple_of(OFTEN);
            // This operation reuses the outgoing buffers. An operation without payload needs none; its notices complete over time.
            if often || walk.area.has_buffers() {
                self.settle(deadline)?;
            }
            if often {
                self.keep_up(walk)?;
            }
            walk.number = walk.number.wrapping_add(1);
            walk.at = 0;
            walk.met = false;
            walk.tells = None;
            walk.passed = 0;
            walk.running = true;
        }
        while walk.at < walk.schedule.steps.len() {
            let step = walk.schedule.steps[walk.at];
            self.step(step, walk, deadline, combine)?;
            walk.at += 1;
        }
        walk.running = false;
        walk.begun = false;
        Ok(())
    }

    /// Unused flags and lines must not look like a later operation when numbers have advanced by 2^31.
    #[cold]
    fn keep_up(&self, walk: &Walk) -> Result<()> {
        let (area, number) = (walk.area, walk.number);
        for slot in 0..area.slots as u32 {
            let flag = self.arena.word(area.flag(slot))?;
            let seen = flag.load(Ordering::Acquire);
            if !is_reached(seen, number) {
                // The exchange fails if a member has begun the next operation.
                let _ = flag.compare_exchange(seen, number, Ordering::AcqRel, Ordering::Acquire);
            }
            for parity in [0, 1] {
                if !area.has_buffers() {
                    break;
                }
                let behind = self.arena.behind(area.line(slot, parity))?;
                let seen = behind.load(Ordering::Acquire);
                if !is_reached(seen as u32, number) {
                    let now = u64::from(number);
                    let _ = behind.compare_exchange(seen, now, Ordering::AcqRel, Ordering::Acquire);
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn step(
        &self,
        step: Step,
        walk: &mut Walk,
        deadline: Deadline,
        combine: &mut Combine<'_>,
    ) -> Result<()> {
        let (area, number) = (walk.area, walk.number);
        match step {
            Step::Signal { to, slot } => self.signal(to, area.flag(slot), number, deadline),
            Step::Await { slot } => self.await_flag(area.flag(slot), number, deadline),
            Step::Send { to, slot } => match self.send_fast(to, slot, walk) {
                true => Ok(()),
                false => self.send_slowly(to, slot, walk, deadline),
            },
            Step::Combine { slot } => {
                let incoming = self.receive(slot, walk, deadline)?;
                combine(&mut walk.held, incoming)
            }
            Step::Take { slot } => {
                let incoming = self.receive(slot, walk, deadline)?;
                walk.held.copy_from_slice(incoming);
                Ok(())
            }
            Step::Keep => {
                walk.kept.clone_from(&walk.held);
                Ok(())
            }
            Step::CombineKept => combine(&mut walk.held, &walk.kept),
            Step::Meet { slot } => self.meet(walk, area.flag(slot), deadline),
        }
    }

    /// The arena of a member. The first use looks it up.
    #[inline]
    fn peer(&self, member: u32, deadline: Deadline) -> Result<&RemoteRegion> {
        match self.peers[member as usize].get() {
            Some(region) => Ok(region),
            None => self
                .find(member, deadline)?
                .ok_or(Error::RankDead(self.members[member as usize])),
        }
    }

    /// `None`: the member has not begun to form the group, or has given it up.
    #[cold]
    fn find(&self, member: u32, deadline: Deadline) -> Result<Option<&RemoteRegion>> {
        let rank = self.members[member as usize];
        let found = self.world.find_group(rank, self.name, deadline)?;
        Ok(found.map(|region| self.peers[member as usize].get_or_init(|| Box::new(region))))
    }

    #[inline]
    fn signal(&self, to: u32, flag: usize, number: u32, deadline: Deadline) -> Result<()> {
        if let Some(region) = self.peers[to as usize].get() {
            let slot = region.at(flag);
            let notice = Notice {
                slot,
                value: number,
            };
            if self.endpoint.fast_path().notify(notice) {
                return Ok(());
            }
        }
        self.signal_slowly(to, flag, number, deadline)
    }

    #[cold]
    fn signal_slowly(&self, to: u32, flag: usize, number: u32, deadline: Deadline) -> Result<()> {
        let slot = self.peer(to, deadline)?.at(flag);
        let notice = Notice {
            slot,
            value: number,
        };
        // The caller does not wait for its completion. A notice of the next operation must not overtake it, or the flag would fall back.
        let outcome = self.endpoint.notify(notice, Flags::ORDERED, 0);
        outcome.map(|_| ()).map_err(|e| self.blame(to, e))
    }

    /// Sends if the send can complete in the call. False: nothing was sent.
    #[inline]
    fn send_fast(&self, to: u32, slot: u32, walk: &Walk) -> bool {
        let Some(region) = self.peers[to as usize].get() else {
            return false;
        };
        let (area, number, held) = (walk.area, walk.number, &walk.held[..]);
        if held.len() <= IN_LINE {
            let mut line = [0; 8];
            bytemuck::bytes_of_mut(&mut line)[..held.len()].copy_from_slice(held);
            line[7] = u64::from(number);
            let offset = area.line(slot, number);
            return (self.endpoint.fast_path()).put_line(&line, Remote { region, offset });
        }
        let (dst, notice) = sent(region, area, slot, number);
        let source = Local::unregistered(held.as_ptr().cast_mut());
        // SAFETY:
        // - `held` belongs to the walk and is only read. The operation has ended when the call returns.
        unsafe { (self.endpoint.fast_path()).put_notify(source, dst, held.len(), notice) }
    }

    #[cold]
    fn send_slowly(&self, to: u32, slot: u32, walk: &Walk, deadline: Deadline) -> Result<()> {
        let (area, len) = (walk.area, walk.held.len());
        // Each step has its own buffer: several sends of one operation may be in flight.
        let nth = walk.schedule.steps[..walk.at]
            .iter()
            .filter(|s| matches!(s, Step::Send { .. }))
            .count();
        let source = self
            .arena
            .local(area.outgoing + nth % (area.slots + 1) * PAYLOAD, len)?;
        // SAFETY:
        // - `len` bytes of the own arena that only this operation uses. `settle` has waited for earlier puts.
        unsafe { std::ptr::copy_nonoverlapping(walk.held.as_ptr(), source.ptr, len) };
        let (dst, notice) = sent(self.peer(to, deadline)?, area, slot, walk.number);
        // SAFETY:
        // - the source is in the arena, which lives until the endpoint is drained or dropped.
        let outcome = unsafe {
            self.endpoint
                .put_notify(source, dst, len, notice, Flags::empty(), 0)
        };
        outcome.map(|_| ()).map_err(|e| self.blame(to, e))
    }

    #[inline]
    fn await_flag(&self, flag: usize, number: u32, deadline: Deadline) -> Result<()> {
        let word = self.arena.word(flag)?;
        self.await_one(deadline, || {
            is_reached(word.load(Ordering::Acquire), number).then_some(())
        })
    }

    /// Waits for the value in `slot`.
    #[inline]
    fn receive(&self, slot: u32, walk: &Walk, deadline: Deadline) -> Result<&[u8]> {
        let (area, number, len) = (walk.area, walk.number, walk.held.len());
        let (line, buffer) = (area.line(slot, number), area.buffer(slot, number));
        let (flag, behind) = (self.arena.word(area.flag(slot))?, self.arena.behind(line)?);
        let in_line = || is_reached(behind.load(Ordering::Acquire) as u32, number);
        let from = self.await_one(deadline, || {
            if in_line() {
                return Some(line);
            }
            let told = is_reached(flag.load(Ordering::Acquire), number);
            // The flag may belong to the next operation, and the line of this one may have arrived just before.
            told.then(|| if in_line() { line } else { buffer })
        })?;
        let local = self.arena.local(from, len)?;
        // SAFETY:
        // - in bounds of the arena. The sender has finished, since its number is here. It writes there again only after this member has begun the operation
        //   after the next.
        Ok(unsafe { std::slice::from_raw_parts(local.ptr, len) })
    }

    #[inline]
    fn await_one<T>(&self, deadline: Deadline, look: impl Fn() -> Option<T>) -> Result<T> {
        let mut since: Option<Instant> = None;
        self.world
            .engine()
            .wait_for(deadline, &mut || self.check(&mut since), || {
                let found = look();
                if found.is_none() {
                    self.endpoint.report();
                }
                found
            })
    }

    /// Errors: a member has gone.
    fn check(&self, since: &mut Option<Instant>) -> Result<()> {
        let world = &self.world;
        world.check_processes(&self.members, &self.incarnations, since)
    }

    fn settle(&self, deadline: Deadline) -> Result<()> {
        if !self.world.engine().is_driven() {
            return Ok(());
        }
        self.endpoint
            .drain(self.world.engine(), deadline, &mut self.world.watch_lives())
            .map_err(|error| {
                let members = self.members.iter().copied();
                self.world.name_the_gone(members, error)
            })
    }

    fn blame(&self, member: u32, error: Error) -> Error {
        match error {
            // A member keeps its arena while others need it, unless its process has gone.
            Error::StaleRegion | Error::PeerDead => self.world.dead(self.members[member as usize]),
            other => other,
        }
    }
}

/// The buffer and the notice of operation `number` in a slot of a member with this arena.
#[inline(always)]
fn sent(region: &RemoteRegion, area: Area, slot: u32, number: u32) -> (Remote<'_>, Notice<'_>) {
    let at = |offset| Remote { region, offset };
    let notice = Notice {
        slot: at(area.flag(slot)),
        value: number,
    };
    (at(area.buffer(slot, number)), notice)
}

/// Flags only grow (as wrapping numbers), so a member that is an operation ahead does no harm.
#[inline(always)]
fn is_reached(seen: u32, number: u32) -> bool {
    seen.wrapping_sub(number) as i32 >= 0
}

#[cold]
fn begun_otherwise() -> Error {
    Error::InvalidArgument("the operation was begun with another length".into())
}

fn check_payload(len: usize) -> Result<()> {
    if len > PAYLOAD {
        return Err(Error::InvalidArgument(format!(
            "a collective moves at most {PAYLOAD} bytes at a time, not {len}"
        )));
    }
    Ok(())
}
