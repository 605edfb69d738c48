//! Replacements of dead processes. The processes of a rank have numbers from 0, their *incarnations*.
//!
//! The incarnations of a rank below [`died`](Board::died) are dead. The rank's state is the state of the latest one.

use std::sync::atomic::Ordering;

use super::{Board, H_CHANGES, R_DEATHS, R_ENDED, R_PRESENT, R_STATE, R_WANTED, RankState};
use unipgas_base::Result;

impl Board {
    pub(super) fn count_death(&self, rank: u32) -> Result<()> {
        self.record(rank, R_DEATHS)?.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Number of processes of `rank` that have died: the number of the incarnation that lives, or is to come.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](unipgas_base::Error::InvalidArgument) for a rank out of range.
    pub fn died(&self, rank: u32) -> Result<u32> {
        Ok(self.record(rank, R_DEATHS)?.load(Ordering::Acquire))
    }

    /// The last incarnation of `rank` that has published its data for the other ranks.
    ///
    /// # Errors
    /// As [`died`](Board::died).
    pub(crate) fn present(&self, rank: u32) -> Result<u32> {
        Ok(self.record(rank, R_PRESENT)?.load(Ordering::Acquire))
    }

    /// Sets [`present`](Board::present), which only grows.
    ///
    /// # Errors
    /// As [`died`](Board::died).
    pub(crate) fn set_present(&self, rank: u32, incarnation: u32) -> Result<()> {
        self.record(rank, R_PRESENT)?
            .fetch_max(incarnation, Ordering::AcqRel);
        self.word(H_CHANGES).fetch_add(1, Ordering::Release);
        self.tell_mirror();
        self.ring();
        Ok(())
    }

    /// Frees a dead rank for a replacement process. Returns whether the rank was dead. Only one of several callers gets true.
    ///
    /// # Errors
    /// As [`died`](Board::died).
    pub fn begin_again(&self, rank: u32) -> Result<bool> {
        if self.state(rank)? != RankState::Dead {
            return Ok(false);
        }
        self.record(rank, R_ENDED)?.store(0, Ordering::Release);
        self.record(rank, R_WANTED)?.store(0, Ordering::Release);
        let (dead, absent) = (RankState::Dead as u32, RankState::Absent as u32);
        let state = self.record(rank, R_STATE)?;
        let won = state.compare_exchange(dead, absent, Ordering::AcqRel, Ordering::Acquire);
        self.word(H_CHANGES).fetch_add(1, Ordering::Release);
        self.tell_mirror();
        Ok(won.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_lives_again_once_for_each_death() {
        let (board, _fd) = Board::create(2).unwrap();
        board.set_state(1, RankState::Joined).unwrap();
        assert!(!board.begin_again(1).unwrap(), "it lives");
        assert_eq!((board.died(1), board.present(1)), (Ok(0), Ok(0)));
        board.mark_dead(1).unwrap();
        board.mark_dead(1).unwrap();
        assert_eq!((board.died(1), board.deaths()), (Ok(1), 1));
        assert!(board.begin_again(1).unwrap());
        assert!(!board.begin_again(1).unwrap(), "one process is enough");
        board.set_state(1, RankState::Joined).unwrap();
        assert_eq!(
            (board.state(1), board.present(1)),
            (Ok(RankState::Joined), Ok(0))
        );
        board.set_present(1, 1).unwrap();
        board.mark_dead(1).unwrap();
        assert_eq!(
            (board.died(1), board.present(1), board.deaths()),
            (Ok(2), Ok(1), 2)
        );
        assert_eq!(board.died(0), Ok(0));
    }
}
