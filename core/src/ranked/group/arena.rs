//! A member's memory for the operations of a group, and what lies where in it.

use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;

use super::PAYLOAD;
use crate::Result;
use crate::cache::PAIR;
use crate::op::Local;
use crate::region::Region;
use crate::schedule::{Schedule, Shapes, dissemination_barrier};

/// Flags and counters have cache lines of their own.
const LINE: usize = PAIR;
/// What a line holds beside a number.
pub(super) const IN_LINE: usize = 56;

/// Where an operation's flags and buffers lie in every member's arena.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub flags: usize,
    /// Two lines a slot, used in turn as the buffers: few bytes travel with the number of their operation behind them.
    pub lines: usize,
    /// Two buffers a slot, used in turn: a member can be one operation ahead of another, never two.
    pub buffers: usize,
    /// What this member sends in each step (kept apart, since a put may be read late).
    pub outgoing: usize,
    pub slots: usize,
}

impl Area {
    pub fn has_buffers(&self) -> bool {
        self.lines != self.buffers
    }

    pub fn flag(&self, slot: u32) -> usize {
        self.flags + slot as usize * LINE
    }

    pub fn buffer(&self, slot: u32, number: u32) -> usize {
        self.buffers + (slot as usize * 2 + (number % 2) as usize) * PAYLOAD
    }

    pub fn line(&self, slot: u32, number: u32) -> usize {
        self.lines + (slot as usize * 2 + (number % 2) as usize) * LINE / 2
    }
}

/// This member's memory for the group's operations.
pub(super) struct Arena {
    pub base: *mut u8,
    pub len: usize,
    pub desc: u64,
    pub region: Mutex<Option<Region>>,
}

// SAFETY:
// - shared memory, accessed by atomics and by copies that the flags order; it stays mapped as long as the transport lives.
unsafe impl Send for Arena {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new(region: Region) -> Result<Self> {
        let all = region.local(0, region.len())?;
        Ok(Arena {
            base: all.ptr,
            len: region.len(),
            desc: all.desc,
            region: Mutex::new(Some(region)),
        })
    }

    #[inline(always)]
    pub fn local(&self, offset: usize, len: usize) -> Result<Local> {
        crate::region::check_range(offset, len, self.len)?;
        Ok(Local {
            ptr: self.base.wrapping_add(offset),
            desc: self.desc,
        })
    }

    #[inline(always)]
    pub fn word(&self, offset: usize) -> Result<&AtomicU32> {
        let local = self.local(offset, 4)?;
        debug_assert!(offset.is_multiple_of(4));
        // SAFETY:
        // - in bounds, aligned (offsets of flags are multiples of a line), mapped while the world lives, used atomically only.
        Ok(unsafe { AtomicU32::from_ptr(local.ptr.cast()) })
    }

    /// The last word of a line.
    #[inline(always)]
    pub fn behind(&self, line: usize) -> Result<&AtomicU64> {
        let local = self.local(line + IN_LINE, 8)?;
        // SAFETY:
        // - as for `word`; lines are aligned, too.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }
}

/// Offset of the counter at which members meet; its own pair of lines at the beginning of the arena.
pub(super) const COUNTER: usize = 0;
/// Offset of the number of the last meeting that all have come to, where that is told down a tree.
pub(super) const RELEASE: usize = LINE;
const FLAGS: usize = 2 * LINE;

/// The areas, and where they end.
pub(super) fn areas(n: u32, me: u32, shapes: Shapes) -> ([(Schedule, Area); 3], usize) {
    let barrier = shapes.barrier.schedule(me, n);
    let mut at = FLAGS;
    let mut area = |schedule: Schedule, slots: u32, data: bool| {
        let slots = slots as usize;
        let flags = at;
        let lines = flags + slots * LINE;
        let (payload, line) = if data { (PAYLOAD, LINE) } else { (0, 0) };
        let buffers = lines + slots * line;
        let outgoing = buffers + slots * 2 * payload;
        // A step sends at most once per slot or child: as many outgoing buffers as slots plus one.
        at = outgoing + (slots + 1) * payload;
        (
            schedule,
            Area {
                flags,
                lines,
                buffers,
                outgoing,
                slots,
            },
        )
    };
    // A barrier that counts uses one of them.
    let barrier_slots = dissemination_barrier(me, n).slots.max(barrier.slots).max(1);
    let reduce = shapes.all_reduce.schedule(me, n);
    let reduce_slots = reduce.slots;
    let broadcast_slots = shapes.broadcast.schedule(me, n, 0).slots;
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
