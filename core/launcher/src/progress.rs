//! A word about a start that takes long.

use std::time::{Duration, Instant};

use unipgas_core::job::Board;

/// How long nothing is said, and between two words.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches ranks join. Programs that join no job, and those of which some ranks never do, hear little of it.
pub(super) struct Progress {
    /// `None`: all have joined.
    next: Option<Instant>,
    told: u32,
}

impl Progress {
    pub fn new(now: Instant) -> Self {
        Progress {
            next: now.checked_add(PATIENCE),
            told: 0,
        }
    }

    /// When to ask for [`news`](Progress::news) again.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// How many ranks have joined so far, if that is worth a word now.
    pub fn news(&mut self, board: &Board, now: Instant) -> Option<u32> {
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
