//! A member's memory for the operations of a group, and its layout.

use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;

use unipgas_base::Result;
use unipgas_base::cache::PAIR;
use unipgas_engine::Region;
use unipgas_engine::op::Local;
use unipgas_schedule::{PAYLOAD, Schedule, Shapes, dissemination_barrier};

/// Each flag and counter has its own cache lines.
const LINE: usize = PAIR;
/// Payload of a line in bytes. A number follows.
pub(super) const IN_LINE: usize = 56;

/// Offsets of an operation's flags and buffers, the same in all arenas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub flags: usize,
    /// Two lines for each slot, used in turn. They carry short values, with the number of the operation behind.
    pub lines: usize,
    /// Two buffers for each slot, used in turn. A member is at most one operation ahead of another.
    pub buffers: usize,
    /// Buffers of values that this member sends, one for each step. A put may read its source late.
    pub outgoing: usize,
    pub slots: usize,
}

impl Area {
    pub(crate) fn has_buffers(&self) -> bool {
        self.lines != self.buffers
    }

    pub fn flag(&self, slot: u32) -> usize {
        self.flags + slot as usize * LINE
    }

    pub(crate) fn buffer(&self, slot: u32, number: u32) -> usize {
        self.buffers + (slot as usize * 2 + (number % 2) as usize) * PAYLOAD
    }

    pub fn line(&self, slot: u32, number: u32) -> usize {
        self.lines + (slot as usize * 2 + (number % 2) as usize) * LINE / 2
    }
}

/// This member's memory for the operations of the group.
pub(super) struct Arena {
    pub base: *mut u8,
    pub len: usize,
    pub desc: u64,
    pub region: Mutex<Option<Region>>,
}

// SAFETY:
// - shared memory. All accesses are atomic, or copies that the flags order. It stays mapped as long as the transport lives.
unsafe impl Send for Arena {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(region: Region) -> Result<Self> {
        let all = region.local(0, region.len())?;
        Ok(Arena {
            base: all.ptr,
            len: region.len(),
            desc: all.desc,
            region: Mutex::new(Some(region)),
        })
    }

    #[inline(always)]
    pub(crate) fn local(&self, offset: usize, len: usize) -> Result<Local> {
        unipgas_engine::region::check_range(offset, len, self.len)?;
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
        // - in bounds; aligned, since offsets of flags are multiples of a line; mapped while the world lives. All accesses are atomic.
        Ok(unsafe { AtomicU32::from_ptr(local.ptr.cast()) })
    }

    /// The last word of a line: the number.
    #[inline(always)]
    pub(crate) fn behind(&self, line: usize) -> Result<&AtomicU64> {
        let local = self.local(line + IN_LINE, 8)?;
        // SAFETY:
        // - as for `word`. Lines are aligned too.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }
}

/// Offset of the counter of meetings. It has its own pair of lines at the beginning of the arena.
pub(super) const COUNTER: usize = 0;
/// Offset of the number of the last complete meeting, for meetings with a release down a tree.
pub(super) const RELEASE: usize = LINE;
const FLAGS: usize = 2 * LINE;

/// The areas, and the offset of their end.
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
        // A step sends at most once for each slot or child. So slots plus one buffers suffice.
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
    // The counting barrier uses one of these slots.
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
