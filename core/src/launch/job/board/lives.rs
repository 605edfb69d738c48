//! Where the ranks are in their lives, and which processes they are.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    Board, H_CHANGES, H_DEATHS, HEADER_BYTES, R_PID, R_START, R_STATE, R_WANTED, RANK_BYTES,
    process_start_time,
};
use crate::{Error, Result};

/// Where a rank is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RankState {
    /// Started (or about to be), but not in the job yet.
    Absent = 0,
    /// In the job.
    Joined = 1,
    /// Has left the job in order.
    Finalized = 2,
    /// Its process has ended without leaving the job.
    Dead = 3,
}

impl RankState {
    /// A value that nobody of ours wrote counts as dead: no wait may depend on it.
    pub(super) fn from_word(word: u32) -> Self {
        match word {
            0 => RankState::Absent,
            1 => RankState::Joined,
            2 => RankState::Finalized,
            _ => RankState::Dead,
        }
    }

    /// Whether waits must still count on this rank.
    pub(super) fn counts(self) -> bool {
        matches!(self, RankState::Absent | RankState::Joined)
    }
}

impl Board {
    /// Sets where `rank` is in its life. A dead rank stays dead.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn set_state(&self, rank: u32, state: RankState) -> Result<()> {
        let word = self.record(rank, R_STATE)?;
        // The value that was there is not of interest: with either outcome the word is final or ours.
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (RankState::from_word(old) != RankState::Dead).then_some(state as u32)
        });
        self.word(H_CHANGES).fetch_add(1, Ordering::Release);
        self.tell_mirror();
        Ok(())
    }

    /// Where `rank` is in its life.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn state(&self, rank: u32) -> Result<RankState> {
        Ok(RankState::from_word(
            self.record(rank, R_STATE)?.load(Ordering::Acquire),
        ))
    }

    /// Marks `rank` dead and then counts it in [`deaths`](Board::deaths). The launcher does this when the process of a
    /// rank has ended without having left the job. Once per process: a second call changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn mark_dead(&self, rank: u32) -> Result<()> {
        if self.state(rank)? != RankState::Dead {
            // Before the state is seen, and another process begins in its place.
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

    /// How many processes have been marked dead so far; when it changes, look at the [`state`](Board::state)s. One relaxed load.
    #[inline]
    pub fn deaths(&self) -> u32 {
        self.death_count().load(Ordering::Relaxed)
    }

    /// Where [`deaths`](Board::deaths) are counted.
    pub fn death_count(&self) -> &AtomicU32 {
        self.word(H_DEATHS)
    }

    /// Ranks that have joined, whatever has become of them since, or have ended without it.
    pub fn joined(&self) -> u32 {
        let states = (0..self.size).map(|rank| self.state(rank));
        states
            .filter(|state| *state != Ok(RankState::Absent))
            .count() as u32
    }

    /// How often a [`state`](Board::state) has been set so far. Who has seen a count has seen the states that were set before.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.word(H_CHANGES).load(Ordering::Acquire)
    }

    /// Stores the pid of the process that is `rank`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn set_pid(&self, rank: u32, pid: u32) -> Result<()> {
        self.record(rank, R_PID)?.store(pid, Ordering::Release);
        Ok(())
    }

    /// Pid of the process that is `rank`; 0 while it is not known.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn pid(&self, rank: u32) -> Result<u32> {
        Ok(self.record(rank, R_PID)?.load(Ordering::Acquire))
    }

    /// Stores pid and start time of the process that is `rank`, for boards whose ranks look at each other's processes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range; [`Error::Os`] where /proc does not tell the start time.
    pub fn set_this_process(&self, rank: u32) -> Result<()> {
        let pid = std::process::id();
        let start = process_start_time(pid)?;
        self.check_rank(rank)?;
        let offset = HEADER_BYTES + rank as usize * RANK_BYTES;
        self.long(offset + R_START).store(start, Ordering::Relaxed);
        self.set_pid(rank, pid)
    }

    /// Whether the process that [said](Board::set_this_process) it is `rank` has ended; not known, and so not, of one that has not said.
    pub fn process_has_ended(&self, rank: u32) -> bool {
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

    /// Says that another rank ends `rank` on purpose: its launcher does not take that for a failure.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn want_end(&self, rank: u32) -> Result<()> {
        self.record(rank, R_WANTED)?.store(1, Ordering::Release);
        self.tell_mirror();
        Ok(())
    }

    /// Whether somebody has [wanted the end](Board::want_end) of `rank`.
    pub fn end_is_wanted(&self, rank: u32) -> bool {
        self.record(rank, R_WANTED)
            .is_ok_and(|word| word.load(Ordering::Acquire) != 0)
    }
}
