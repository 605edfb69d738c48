//! A message about a slow start.

use std::time::{Duration, Instant};

use unipgas_core::job::Board;

/// Time before the first message, and between messages.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches the ranks join. There is no message for programs that join no job, and none while the number of joined ranks stays the same.
pub(super) struct Progress {
    /// `None`: all have joined.
    next: Option<Instant>,
    told: u32,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Progress {
            next: now.checked_add(PATIENCE),
            told: 0,
        }
    }

    /// Time of the next call of [`news`](Progress::news).
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Number of ranks that have joined, if a message is due.
    pub(crate) fn news(&mut self, board: &Board, now: Instant) -> Option<u32> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        let joined = board.joined();
        if joined == board.size() {
            self.next = None;
            return None;
        }
        self.next = now.checked_add(PATIENCE);
        if joined == self.told {
            return None;
        }
        self.told = joined;
        Some(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unipgas_core::job::RankState;

    #[test]
    fn a_start_that_takes_long_is_told_while_it_gets_on() {
        let (board, _fd) = Board::create(3).unwrap();
        let mut now = Instant::now();
        let mut progress = Progress::new(now);
        board.set_state(0, RankState::Joined).unwrap();
        assert_eq!(progress.news(&board, now), None, "too soon");
        let mut later = |progress: &mut Progress| {
            now += PATIENCE;
            progress.news(&board, now)
        };
        assert_eq!(later(&mut progress), Some(1));
        assert_eq!(later(&mut progress), None, "said already");
        board.mark_dead(1).unwrap();
        assert_eq!(later(&mut progress), Some(2));
        board.set_state(2, RankState::Joined).unwrap();
        assert_eq!(later(&mut progress), None);
        assert_eq!(progress.next(), None, "all have joined");
        let mut nobody = Progress::new(now);
        let (board, _fd) = Board::create(2).unwrap();
        assert_eq!(nobody.news(&board, now + PATIENCE), None);
        assert!(nobody.next().is_some());
    }
}
