//! Long waits and counters of the ranks, on the board behind the published values.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rustix::mm::MremapFlags;

use super::{Board, H_JOB_ID, SLOT_BYTES, SLOTS_PER_RANK, slots_offset};
use unipgas_base::counters::CounterValues;
use unipgas_base::waits::{self, StatusPage, WaitSlot, Waiting};
use unipgas_base::{Error, Result};

/// Bytes of a rank's status.
pub(super) const TOLD_BYTES: usize = size_of::<StatusPage>();

pub(super) fn told_offset(size: u32) -> usize {
    slots_offset(size) + size as usize * SLOTS_PER_RANK * SLOT_BYTES
}

/// The job and rank of this process's status.
static TOLD: Mutex<Option<(u64, u32)>> = Mutex::new(None);

/// Link target of a board's descriptor.
const TARGET: &str = "/memfd:unipgas-job (deleted)";

/// The boards of jobs on this host that this process may access. They are found in the launcher, or in the rank that made the board.
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
    /// Reports long waits and counters of this process on the board, in the status of `rank`, until it ends. Errors are only logged.
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
        // - pages of the board's own mapping. An old size of 0 makes a second mapping of them, and keeps the first.
        let mapped = unsafe { rustix::mm::mremap(place, 0, len, MremapFlags::MAYMOVE) };
        let mapped = mapped.map_err(|e| Error::os("cannot map a part of the job board", e))?;
        let place = mapped.cast::<u8>().wrapping_add(at - begin).cast();
        // SAFETY:
        // - aligned, since statuses are whole lines behind whole slots. The second mapping is never removed, and is accessed through atomics only.
        // - each bit pattern is a valid status.
        waits::tell_at(unsafe { &*place }, (rank, self.size));
        *told = Some(this);
        Ok(())
    }

    fn told(&self, rank: u32) -> Option<&StatusPage> {
        self.check_rank(rank).ok()?;
        let at = told_offset(self.size) + rank as usize * TOLD_BYTES;
        let place = self.base.as_ptr().wrapping_add(at).cast();
        // SAFETY:
        // - within the board, since the rank is checked, and aligned. It is accessed through atomics only, and each bit pattern is a valid status.
        Some(unsafe { &*place })
    }

    /// Counters of `rank`.
    pub fn counts(&self, rank: u32) -> CounterValues {
        self.told(rank)
            .map(|told| told.counters.read())
            .unwrap_or_default()
    }

    /// The threads of `rank` that wait in calls, the longest wait first.
    pub fn waits(&self, rank: u32) -> Vec<Waiting> {
        let Some(told) = self.told(rank) else {
            return Vec::new();
        };
        let pid = self.pid(rank).unwrap_or(0);
        let held = told.seats.iter().filter(|seat| seat.is_held(pid));
        let mut found: Vec<Waiting> = held.filter_map(WaitSlot::read).collect();
        found.sort_by_key(|wait| std::cmp::Reverse(wait.lasted));
        found
    }
}
