//! What ranks tell of their long waits, and of what they have done: on the board, behind the values that they publish.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rustix::mm::MremapFlags;

use super::{Board, H_JOB_ID, SLOT_BYTES, SLOTS_PER_RANK, slots_offset};
use crate::tally::Counts;
use crate::waits::{self, Seat, Told, Waiting};
use crate::{Error, Result};

/// Bytes of what a rank tells.
pub(super) const TOLD_BYTES: usize = size_of::<Told>();

pub(super) fn told_offset(size: u32) -> usize {
    slots_offset(size) + size as usize * SLOTS_PER_RANK * SLOT_BYTES
}

/// The job and the rank whose seats this process has.
static TOLD: Mutex<Option<(u64, u32)>> = Mutex::new(None);

/// What the descriptor of a board leads to.
const TARGET: &str = "/memfd:unipgas-job (deleted)";

/// The boards of jobs that run on this host, of all that this process may look at: of those whose launcher, or first rank, made them.
pub fn boards() -> Vec<Board> {
    let numbers = |name: &str| -> Vec<u32> {
        let entries = std::fs::read_dir(name).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        names.collect()
    };
    let mut found = Vec::new();
    for pid in numbers("/proc") {
        for fd in numbers(&format!("/proc/{pid}/fd")) {
            let target = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
            if target.is_ok_and(|target| target.as_os_str() == TARGET)
                && let Ok(start) = super::process_start_time(pid)
                && let Ok(board) = Board::attach(&format!("{pid}:{start}:{fd}"))
            {
                found.push(board);
                break;
            }
        }
    }
    found.sort_by_key(Board::launcher_pid);
    found
}

impl Board {
    /// Has long waits of this process, and what it has done, told on the board, as those of `rank`, as long as it runs. Where that cannot be, nothing else is different.
    pub(crate) fn tell_waits(&self, rank: u32) {
        if let Err(error) = self.try_to_tell_waits(rank) {
            tracing::debug!("long waits are not told: {error}");
        }
    }

    fn try_to_tell_waits(&self, rank: u32) -> Result<()> {
        self.check_rank(rank)?;
        let this = (self.long(H_JOB_ID).load(Ordering::Relaxed), rank);
        let mut told = TOLD.lock();
        if *told == Some(this) {
            return Ok(());
        }
        let (page, at) = (
            rustix::param::page_size(),
            told_offset(self.size) + rank as usize * TOLD_BYTES,
        );
        let begin = at / page * page;
        let len = (at + TOLD_BYTES).next_multiple_of(page) - begin;
        let place = self.base.as_ptr().wrapping_add(begin).cast();
        // SAFETY:
        // - pages of the board's own mapping, of which there is another one then (an old size of 0 leaves the first one as it is).
        let mapped = unsafe { rustix::mm::mremap(place, 0, len, MremapFlags::MAYMOVE) };
        let mapped = mapped.map_err(|e| Error::os("cannot map a part of the job board", e))?;
        let place = mapped.cast::<u8>().wrapping_add(at - begin).cast();
        // SAFETY:
        // - aligned, as ranks have whole lines behind whole slots; it stays mapped as long as the process, and is accessed through atomics only;
        // - whatever is there is what a rank tells.
        waits::tell_at(unsafe { &*place }, (rank, self.size));
        *told = Some(this);
        Ok(())
    }

    fn told(&self, rank: u32) -> Option<&Told> {
        self.check_rank(rank).ok()?;
        let at = told_offset(self.size) + rank as usize * TOLD_BYTES;
        let place = self.base.as_ptr().wrapping_add(at).cast();
        // SAFETY:
        // - in the board, as the rank is; aligned; accessed through atomics only; whatever is there is what a rank tells.
        Some(unsafe { &*place })
    }

    /// What `rank` has done.
    pub fn counts(&self, rank: u32) -> Counts {
        self.told(rank)
            .map(|told| told.ledger.read())
            .unwrap_or_default()
    }

    /// The threads of `rank` that wait in calls, the longest first.
    pub fn waits(&self, rank: u32) -> Vec<Waiting> {
        let Some(told) = self.told(rank) else {
            return Vec::new();
        };
        let pid = self.pid(rank).unwrap_or(0);
        let held = told.seats.iter().filter(|seat| seat.is_held(pid));
        let mut found: Vec<Waiting> = held.filter_map(Seat::read).collect();
        found.sort_by_key(|wait| std::cmp::Reverse(wait.lasted));
        found
    }
}
