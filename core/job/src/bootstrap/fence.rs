//! A fence on a board: waits until all ranks have arrived.

use std::time::Duration;

use crate::job::{Board, RankState};
use unipgas_base::{Deadline, Error, Result};

/// Shortest and longest sleep at a fence. The last rank to arrive wakes the others. With many ranks the first sleep is longer, since each rank checks all.
const NAP: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));
const NAP_EACH: Duration = Duration::from_micros(20);

/// Rank `rank` arrives at fence `epoch`, and waits there for the ranks that `awaited` selects. It calls `look` after each sleep; an error of `look` ends
/// the wait.
pub(super) fn fence(
    board: &Board,
    rank: u32,
    epoch: u32,
    deadline: Deadline,
    awaited: impl Fn(u32) -> bool,
    look: impl Fn() -> Result<()>,
) -> Result<()> {
    board.arrive(rank, epoch)?;
    let mut next = 0;
    let mut poll = || {
        while next < board.size() && (!awaited(next) || board.epoch(next)? >= epoch) {
            next += 1;
        }
        for rank in (next..board.size()).filter(|rank| awaited(*rank)) {
            // A rank that has left an earlier life cycle may return, unless its process has ended.
            let ended = match board.state(rank)? {
                RankState::Dead => true,
                RankState::Finalized => board.is_gone(rank)?,
                _ => false,
            };
            if ended && board.epoch(rank)? < epoch {
                return Err(Error::RankDead(rank));
            }
        }
        Ok((next == board.size()).then_some(()))
    };
    let mut nap = (NAP.0 + NAP_EACH * board.size()).min(NAP.1);
    loop {
        let limit = deadline.remaining().unwrap_or(nap);
        if limit.is_zero() {
            return poll()?.ok_or(Error::Timeout);
        }
        if let Some(all) = board.sleep(limit.min(nap), &mut poll)? {
            return Ok(all);
        }
        look()?;
        nap = (nap * 2).min(NAP.1);
    }
}
