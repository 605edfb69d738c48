//! The states of ranks, and their processes.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    Board, H_CHANGES, H_DEATHS, HEADER_BYTES, R_PID, R_START, R_STATE, R_WANTED, RANK_BYTES,
    process_start_time,
};
use unipgas_base::{Error, Result};

/// State of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RankState {
    /// Started, or about to start, but not in the job yet.
    Absent = 0,
    /// In the job.
    Joined = 1,
    /// Left the job properly.
    Finalized = 2,
    /// Its process has ended without leaving the job.
    Dead = 3,
}

impl RankState {
    /// An invalid value counts as dead: no wait may depend on it.
    pub(super) fn from_word(word: u32) -> Self {
        match word {
            0 => RankState::Absent,
            1 => RankState::Joined,
            2 => RankState::Finalized,
            _ => RankState::Dead,
        }
    }

    /// Whether waits depend on this rank.
    pub(super) fn counts(self) -> bool {
        matches!(self, RankState::Absent | RankState::Joined)
    }
}

impl Board {
    /// Sets the state of `rank`. A dead rank stays dead.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn set_state(&self, rank: u32, state: RankState) -> Result<()> {
        let word = self.record(rank, R_STATE)?;
        // The old value is not needed: the word is now `state`, or stays dead.
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (RankState::from_word(old) != RankState::Dead).then_some(state as u32)
        });
        self.word(H_CHANGES).fetch_add(1, Ordering::Release);
        self.tell_mirror();
        Ok(())
    }

    /// State of `rank`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn state(&self, rank: u32) -> Result<RankState> {
        Ok(RankState::from_word(
            self.record(rank, R_STATE)?.load(Ordering::Acquire),
        ))
    }

    /// Marks `rank` dead, and then counts it. The launcher calls this if the process of a rank has ended without leaving the
    /// job. A second call for the same process changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn mark_dead(&self, rank: u32) -> Result<()> {
        if self.state(rank)? != RankState::Dead {
            // Counted before the state is visible, and a replacement may begin.
            self.count_death(rank)?;
        }
        let old = self
            .record(rank, R_STATE)?
            .swap(RankState::Dead as u32, Ordering::AcqRel);
        if RankState::from_word(old) != RankState::Dead {
            self.word(H_CHANGES).fetch_add(1, Ordering::Release);
            self.word(H_DEATHS).fetch_add(1, Ordering::Release);
            self.tell_mirror();
        }
        self.ring();
        Ok(())
    }

    /// Number of processes marked dead so far. After a change, the caller checks the [`state`](Board::state)s. One relaxed load.
    #[inline]
    #[cfg(test)]
    pub(crate) fn deaths(&self) -> u32 {
        self.death_count().load(Ordering::Relaxed)
    }

    /// The counter of [`deaths`](Board::deaths).
    pub(crate) fn death_count(&self) -> &AtomicU32 {
        self.word(H_DEATHS)
    }

    /// Number of ranks that have joined, in any state since, or have ended without joining.
    pub fn joined(&self) -> u32 {
        let states = (0..self.size).map(|rank| self.state(rank));
        states
            .filter(|state| *state != Ok(RankState::Absent))
            .count() as u32
    }

    /// Number of changes of a [`state`](Board::state) so far. A process that has read a count sees the states set before it.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.word(H_CHANGES).load(Ordering::Acquire)
    }

    /// Stores the pid of `rank`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn set_pid(&self, rank: u32, pid: u32) -> Result<()> {
        self.record(rank, R_PID)?.store(pid, Ordering::Release);
        Ok(())
    }

    /// Pid of `rank`. 0: not known yet.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn pid(&self, rank: u32) -> Result<u32> {
        Ok(self.record(rank, R_PID)?.load(Ordering::Acquire))
    }

    /// Stores pid and start time of this process for `rank`. For boards on which the ranks watch each other.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range. [`Error::Os`] if /proc cannot be read.
    pub(crate) fn set_this_process(&self, rank: u32) -> Result<()> {
        let pid = std::process::id();
        let start = process_start_time(pid)?;
        self.check_rank(rank)?;
        let offset = HEADER_BYTES + rank as usize * RANK_BYTES;
        self.long(offset + R_START).store(start, Ordering::Relaxed);
        self.set_pid(rank, pid)
    }

    /// Whether the process that called [`set_this_process`](Board::set_this_process) for `rank` has ended. False if no process has called it.
    pub(crate) fn process_has_ended(&self, rank: u32) -> bool {
        let offset = HEADER_BYTES + rank as usize * RANK_BYTES;
        let pid = self.pid(rank).unwrap_or(0);
        if pid == 0 {
            return false;
        }
        let start = self.long(offset + R_START).load(Ordering::Relaxed);
        match process_start_time(pid) {
            Ok(found) => found != start,
            Err(error) => error == Error::PeerDead,
        }
    }

    /// Records that another rank ends `rank` on purpose. Its launcher does not treat this as a failure.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn want_end(&self, rank: u32) -> Result<()> {
        self.record(rank, R_WANTED)?.store(1, Ordering::Release);
        self.tell_mirror();
        Ok(())
    }

    /// Whether a process has called [`want_end`](Board::want_end) for `rank`.
    pub fn end_is_wanted(&self, rank: u32) -> bool {
        self.record(rank, R_WANTED)
            .is_ok_and(|word| word.load(Ordering::Acquire) != 0)
    }
}
