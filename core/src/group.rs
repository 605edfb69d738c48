//! Groups of ranks and their collective operations: a resumable walk along a [`schedule`](crate::schedule).
//!
//! An operation that runs into its deadline stays where it is, and the next call goes on from there (GASPI 17.1 §11.1). Flags
//! hold operation numbers, so that nothing has to be reset between operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::exclusive::Exclusive;
use crate::op::{Flags, Local, Notice, Remote};
use crate::region::{Region, RemoteRegion, Rights};
use crate::schedule::{
    Schedule, Step, binomial_broadcast, counting_barrier, dissemination_barrier, doubling_allreduce,
};
use crate::world::World;
use crate::{Deadline, Endpoint, Error, Result};

/// Bytes that a reduction or broadcast moves at most in one operation (GASPI's allreduce buffer is 2040).
pub const PAYLOAD: usize = 2048;
/// Flags and counters have cache lines (pairs of them) of their own.
const LINE: usize = 128;

/// Combines `other` into `held`: same length in bytes, in members' order of no matter.
pub type Combine<'a> = dyn FnMut(&mut [u8], &[u8]) -> Result<()> + 'a;

/// Where an operation's flags and buffers lie in every member's arena.
#[derive(Debug, Clone, Copy)]
struct Area {
    flags: usize,
    /// Two buffers a slot, used in turn: a member can be one operation ahead of another, never two.
    buffers: usize,
    /// What this member sends in each step (kept apart, since a put may be read late).
    outgoing: usize,
    slots: usize,
}

impl Area {
    fn flag(&self, slot: u32) -> usize {
        self.flags + slot as usize * LINE
    }

    fn buffer(&self, slot: u32, number: u32) -> usize {
        self.buffers + (slot as usize * 2 + (number % 2) as usize) * PAYLOAD
    }
}

/// One kind of operation of a group: its schedule, and how far this member is.
struct Walk {
    schedule: Schedule,
    area: Area,
    number: u32,
    at: usize,
    /// The value has been taken; the operation may still have to wait for the one before it.
    begun: bool,
    running: bool,
    met: bool,
    held: Vec<u8>,
}

/// A formed group. Dropping it frees its memory.
pub struct Group {
    world: Arc<World>,
    members: Box<[u32]>,
    arena: Arena,
    peers: Box<[RemoteRegion]>,
    endpoint: Endpoint,
    place: usize,
    barrier: Exclusive<Walk>,
    reduce: Exclusive<Walk>,
    broadcast: Exclusive<Walk>,
}

/// This member's memory for the group's operations.
struct Arena {
    base: *mut u8,
    len: usize,
    desc: u64,
    region: Mutex<Option<Region>>,
}

// SAFETY:
// - shared memory, accessed by atomics and by copies that the flags order; it stays mapped as long as the transport lives.
unsafe impl Send for Arena {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(region: Region) -> Result<Self> {
        let all = region.local(0, region.len())?;
        Ok(Arena {
            base: all.ptr,
            len: region.len(),
            desc: all.desc,
            region: Mutex::new(Some(region)),
        })
    }

    #[inline(always)]
    fn local(&self, offset: usize, len: usize) -> Result<Local> {
        crate::region::check_range(offset, len, self.len)?;
        Ok(Local {
            ptr: self.base.wrapping_add(offset),
            desc: self.desc,
        })
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> Result<&AtomicU32> {
        let local = self.local(offset, 4)?;
        debug_assert!(offset.is_multiple_of(4));
        // SAFETY:
        // - in bounds, aligned (offsets of flags are multiples of a line), mapped while the world lives, used atomically only.
        Ok(unsafe { AtomicU32::from_ptr(local.ptr.cast()) })
    }
}

/// A group that is being formed; see [`Forming::advance`].
pub struct Forming {
    world: Arc<World>,
    members: Box<[u32]>,
    me: u32,
    name: [u64; 2],
    arena: Option<Region>,
    place: usize,
    found: Vec<RemoteRegion>,
    formed: Option<Box<Group>>,
}

/// Offset of the counter at which members meet; its own pair of lines at the beginning of the arena.
const COUNTER: usize = 0;

fn areas(n: u32, me: u32, crowded: bool) -> ([(Schedule, Area); 3], usize) {
    let barrier = if crowded {
        counting_barrier(n)
    } else {
        dissemination_barrier(me, n)
    };
    let mut at = LINE;
    let mut area = |schedule: Schedule, slots: u32, data: bool| {
        let slots = slots as usize;
        let flags = at;
        let buffers = flags + slots * LINE;
        let payload = if data { PAYLOAD } else { 0 };
        let outgoing = buffers + slots * 2 * payload;
        // A step sends at most once per slot or child: as many outgoing buffers as slots plus one.
        at = outgoing + (slots + 1) * payload;
        (
            schedule,
            Area {
                flags,
                buffers,
                outgoing,
                slots,
            },
        )
    };
    let barrier_slots = dissemination_barrier(me, n).slots.max(1);
    let reduce = doubling_allreduce(me, n);
    let reduce_slots = reduce.slots;
    let broadcast_slots = binomial_broadcast(me, n, 0).slots;
    let all = [
        area(barrier, barrier_slots, false),
        area(reduce, reduce_slots, true),
        area(
            Schedule {
                steps: Box::new([]),
                slots: broadcast_slots,
            },
            broadcast_slots,
            true,
        ),
    ];
    (all, at)
}

impl Forming {
    /// Begins to form the group of `members` (ranks in ascending order, this one among them). `name` tells this group from
    /// others that the same members form, and must be the same at all of them.
    pub fn new(world: &Arc<World>, members: &[u32], name: [u64; 2]) -> Result<Self> {
        let me = members
            .iter()
            .position(|rank| *rank == world.rank())
            .ok_or_else(|| {
                Error::InvalidArgument("this process is not a member of the group".into())
            })?;
        if members.iter().any(|rank| *rank >= world.size()) || !members.is_sorted_by(|a, b| a < b) {
            return Err(Error::InvalidArgument(
                "members must be distinct ranks in ascending order".into(),
            ));
        }
        Ok(Forming {
            world: world.clone(),
            members: members.into(),
            me: me as u32,
            name,
            arena: None,
            place: 0,
            found: Vec::new(),
            formed: None,
        })
    }

    /// Goes on until all members have formed the group. Errors: [`Error::Timeout`]: call again; [`Error::RankDead`].
    pub fn advance(&mut self, deadline: Deadline) -> Result<Group> {
        let world = self.world.clone();
        let n = self.members.len() as u32;
        let crowded = world.job().board().is_some_and(|board| n > board.cpus());
        if self.formed.is_none() {
            let (all, len) = areas(n, self.me, crowded);
            if self.arena.is_none() {
                let arena = world.engine().allocate(len, Rights::FULL)?;
                self.place = world.directory().list_group(self.name, &arena.key())?;
                self.arena = Some(arena);
            }
            let mut since = None;
            while self.found.len() < self.members.len() {
                let rank = self.members[self.found.len()];
                let mut pause = 0u32;
                let arena = world.engine().wait(
                    deadline,
                    &mut || world.check_ranks(&[rank], &mut since),
                    || {
                        // The peer does not ring when it lists its arena: look often at first, then now and then.
                        pause += 1;
                        if pause > 64 {
                            std::thread::sleep(std::time::Duration::from_micros(200));
                        }
                        world.find_group(rank, self.name)
                    },
                )?;
                self.found.push(arena);
            }
            let [barrier, reduce, broadcast] = all.map(|(schedule, area)| {
                Exclusive::new(Walk {
                    schedule,
                    area,
                    number: 0,
                    at: 0,
                    begun: false,
                    running: false,
                    met: false,
                    held: Vec::new(),
                })
            });
            self.formed = Some(Box::new(Group {
                endpoint: world.engine().endpoint(u32::MAX)?,
                world: world.clone(),
                members: self.members.clone(),
                arena: Arena::new(self.arena.take().expect("made above"))?,
                peers: std::mem::take(&mut self.found).into(),
                place: self.place,
                barrier,
                reduce,
                broadcast,
            }));
        }
        // Nobody may go (and take its arena along) before everybody has found everybody.
        self.formed
            .as_ref()
            .expect("made above")
            .barrier(deadline)?;
        Ok(*self.formed.take().expect("made above"))
    }
}

impl Drop for Forming {
    fn drop(&mut self) {
        if self.arena.is_some() {
            let _ = self.world.directory().unlist_group(self.place);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.release();
    }
}

impl Group {
    /// Gives the group's memory back. Operations that another thread is still in never end, but by their deadline.
    pub fn release(&self) {
        let mut region = self.arena.region.lock();
        if region.is_none() {
            return;
        }
        // Our own puts read the arena until they are done; what others still have on its way here finds a stale region.
        let _ = self
            .endpoint
            .drain(self.world.engine(), Deadline::Never, &mut || Ok(()));
        let _ = self.world.directory().unlist_group(self.place);
        *region = None;
    }

    /// The ranks of the members, ascending.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// This process's number among the members.
    pub fn index(&self) -> u32 {
        self.members
            .iter()
            .position(|rank| *rank == self.world.rank())
            .unwrap_or_default() as u32
    }

    /// Ends when every member has called it. Errors: [`Error::Timeout`] (call again to go on), [`Error::RankDead`],
    /// [`Error::Busy`] while another thread is in the same operation (GASPI 17.1 §11.2.1).
    #[inline]
    pub fn barrier(&self, deadline: Deadline) -> Result<()> {
        self.barrier
            .with(|walk| self.walk(walk, deadline, &mut |_, _| Ok(())))
    }

    /// Combines every member's `value` (at most [`PAYLOAD`] bytes, the same length everywhere) into everyone's `value`.
    /// `combine` must be commutative and associative. The first call of an operation takes the value; calls after a
    /// [`Error::Timeout`] go on with it. Errors as [`Group::barrier`]; what `combine` returns ends the operation here.
    pub fn all_reduce(
        &self,
        value: &[u8],
        result: &mut [u8],
        combine: &mut Combine<'_>,
        deadline: Deadline,
    ) -> Result<()> {
        check_payload(value.len())?;
        if value.len() != result.len() {
            return Err(Error::InvalidArgument(
                "value and result must have the same length".into(),
            ));
        }
        self.reduce.with(|walk| {
            if !walk.begun {
                walk.held.clear();
                walk.held.extend_from_slice(value);
                walk.begun = true;
            }
            self.walk(walk, deadline, combine)?;
            if walk.held.len() != result.len() {
                return Err(Error::InvalidArgument(
                    "the operation was begun with another length".into(),
                ));
            }
            result.copy_from_slice(&walk.held);
            Ok(())
        })
    }

    /// Gives everyone the bytes that member number `root` has in `value` (at most [`PAYLOAD`]); ends when all have them. Errors as
    /// [`Group::barrier`].
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
                walk.schedule = binomial_broadcast(self.index(), self.size(), root);
                walk.held.clear();
                walk.held.extend_from_slice(value);
                walk.begun = true;
            }
            self.walk(walk, deadline, &mut |_, _| Ok(()))?;
            value.copy_from_slice(&walk.held);
            Ok(())
        })
    }

    fn walk(&self, walk: &mut Walk, deadline: Deadline, combine: &mut Combine<'_>) -> Result<()> {
        if !walk.running {
            // The outgoing buffers are about to be used again.
            self.settle(deadline)?;
            walk.number = walk.number.wrapping_add(1);
            walk.at = 0;
            walk.met = false;
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
            Step::Signal { to, slot } => self.signal(to, area.flag(slot), number),
            Step::Await { slot } => self.await_flag(area.flag(slot), number, deadline),
            Step::Send { to, slot } => {
                let len = walk.held.len();
                // The step's own buffer: several sends of one operation may be on their way at once.
                let nth = walk.schedule.steps[..walk.at]
                    .iter()
                    .filter(|s| matches!(s, Step::Send { .. }))
                    .count();
                let source = self
                    .arena
                    .local(area.outgoing + nth % (area.slots + 1) * PAYLOAD, len)?;
                // SAFETY:
                // - `len` bytes of the own arena that only this operation uses; `settle` has made sure that earlier puts are done.
                unsafe { std::ptr::copy_nonoverlapping(walk.held.as_ptr(), source.ptr, len) };
                let region = self.peer(to);
                // SAFETY:
                // - the source lies in the arena, which is freed only after the endpoint is drained or dropped.
                unsafe {
                    self.endpoint.put_notify(
                        source,
                        Remote {
                            region,
                            offset: area.buffer(slot, number),
                        },
                        len,
                        Notice {
                            slot: Remote {
                                region,
                                offset: area.flag(slot),
                            },
                            value: number,
                        },
                        Flags::empty(),
                        0,
                    )
                }
                .map_err(|e| self.blame(to, e))?;
                Ok(())
            }
            Step::Combine { slot } => {
                self.await_flag(area.flag(slot), number, deadline)?;
                let incoming = self.incoming(area.buffer(slot, number), walk.held.len())?;
                combine(&mut walk.held, incoming)
            }
            Step::Take { slot } => {
                self.await_flag(area.flag(slot), number, deadline)?;
                let incoming = self.incoming(area.buffer(slot, number), walk.held.len())?;
                walk.held.copy_from_slice(incoming);
                Ok(())
            }
            Step::Meet { slot } => self.meet(walk, area.flag(slot), deadline),
        }
    }

    fn meet(&self, walk: &mut Walk, flag: usize, deadline: Deadline) -> Result<()> {
        let n = u64::from(self.size());
        if !walk.met {
            let counter = Remote {
                region: self.peer(0),
                offset: COUNTER,
            };
            let before = self
                .endpoint
                .fetch_add(self.world.engine(), counter, 1, deadline)
                .map_err(|e| self.blame(0, e))?;
            walk.met = true;
            if before % n == n - 1 {
                for member in 0..self.size() {
                    self.signal(member, flag, walk.number)?;
                }
                return Ok(());
            }
        }
        self.await_flag(flag, walk.number, deadline)
    }

    #[inline]
    fn peer(&self, member: u32) -> &RemoteRegion {
        &self.peers[member as usize]
    }

    #[inline]
    fn signal(&self, to: u32, flag: usize, number: u32) -> Result<()> {
        let slot = Remote {
            region: self.peer(to),
            offset: flag,
        };
        self.endpoint
            .notify(
                Notice {
                    slot,
                    value: number,
                },
                Flags::empty(),
                0,
            )
            .map(|_| ())
            .map_err(|e| self.blame(to, e))
    }

    /// Flags only grow (in the sense of wrapping numbers): a member that is an operation ahead does no harm.
    #[inline]
    fn await_flag(&self, flag: usize, number: u32, deadline: Deadline) -> Result<()> {
        let word = self.arena.word(flag)?;
        let mut since: Option<Instant> = None;
        self.world.engine().wait_for(
            deadline,
            &mut || self.world.check_ranks(&self.members, &mut since),
            || {
                if word.load(Ordering::Acquire).wrapping_sub(number) as i32 >= 0 {
                    return Some(());
                }
                self.endpoint.progress();
                None
            },
        )
    }

    fn incoming(&self, offset: usize, len: usize) -> Result<&[u8]> {
        let local = self.arena.local(offset, len)?;
        // SAFETY:
        // - in bounds of the arena; the sender has finished (its flag was awaited) and does not write this buffer again before this
        //   member has begun the operation after the next.
        Ok(unsafe { std::slice::from_raw_parts(local.ptr, len) })
    }

    fn settle(&self, deadline: Deadline) -> Result<()> {
        if !self.world.engine().asynchronous() {
            return Ok(());
        }
        self.endpoint
            .drain(self.world.engine(), deadline, &mut || Ok(()))
    }

    fn blame(&self, member: u32, error: Error) -> Error {
        match error {
            // An arena goes only with its process.
            Error::StaleRegion | Error::PeerDead => Error::RankDead(self.members[member as usize]),
            other => other,
        }
    }
}

fn check_payload(len: usize) -> Result<()> {
    if len > PAYLOAD {
        return Err(Error::InvalidArgument(format!(
            "a collective moves at most {PAYLOAD} bytes at a time, not {len}"
        )));
    }
    Ok(())
}
