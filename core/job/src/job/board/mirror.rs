//! The board of a job on several hosts. Each host has a board, and their launchers exchange the writes of the ranks.
//!
//! A rank that is *afar* runs on another host. Its writes arrive here by [`Board::take`], in their original order. A process that sees the rank's arrival
//! at a fence also sees the values published before it.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use super::{
    Board, H_EVERYWHERE, H_HOSTS, H_MIRRORED, H_NEWS, MAX_KEY, MAX_VALUE, R_AFAR, R_DEATHS,
    R_ENDED, R_EPOCH, R_PRESENT, R_PUBLISHED, R_STATE, RankState, SLOTS_PER_RANK, slot::S_SEQ,
};
use unipgas_base::{Result, sync::futex};

/// Part of a rank's record that has been sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentRecord {
    state: u32,
    epoch: u32,
    ended: u32,
    died: u32,
    present: u32,
    slots: [u32; SLOTS_PER_RANK],
}

/// Bytes before the published values: rank, state, epoch, whether the process has ended, number of deaths, and present incarnation.
const HEAD: usize = 24;
/// Limit of deaths of a rank.
const MANY: u32 = 1 << 20;

impl Board {
    /// Makes later writes wake [`await_news`](Board::await_news).
    pub fn begin_mirror(&self) {
        self.word(H_MIRRORED).store(1, Ordering::Relaxed);
    }

    /// Records that `rank` runs on another host. Must precede queries of the rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](unipgas_base::Error::InvalidArgument) for a rank out of range.
    pub fn set_afar(&self, rank: u32) -> Result<()> {
        self.record(rank, R_AFAR)?.store(1, Ordering::Release);
        Ok(())
    }

    /// Records that `rank` now runs on this host.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](unipgas_base::Error::InvalidArgument) for a rank out of range.
    pub fn set_here(&self, rank: u32) -> Result<()> {
        self.record(rank, R_AFAR)?.store(0, Ordering::Release);
        Ok(())
    }

    /// Whether `rank` runs on another host. Its pid has no meaning here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](unipgas_base::Error::InvalidArgument) for a rank out of range.
    pub fn is_afar(&self, rank: u32) -> Result<bool> {
        Ok(self.record(rank, R_AFAR)?.load(Ordering::Acquire) != 0)
    }

    /// Sets the number of hosts on which ranks may run. Must precede the start of ranks.
    pub fn set_hosts(&self, hosts: u32) {
        self.word(H_HOSTS).store(hosts, Ordering::Relaxed);
    }

    /// Sets the number that identifies this job on all of its hosts.
    pub fn set_everywhere(&self, id: u64) {
        self.long(H_EVERYWHERE).store(id, Ordering::Relaxed);
    }

    /// A number that identifies this job, the same on all of its hosts. Each host has another board.
    pub fn everywhere(&self) -> u64 {
        self.long(H_EVERYWHERE).load(Ordering::Relaxed)
    }

    /// Number of hosts on which ranks may run. It is the same for all ranks, and never changes.
    pub(crate) fn hosts(&self) -> u32 {
        self.word(H_HOSTS).load(Ordering::Relaxed).max(1)
    }

    /// Number of ranks on this host.
    pub(crate) fn here(&self) -> u32 {
        let ranks = 0..self.size();
        ranks
            .filter(|rank| self.is_afar(*rank) == Ok(false))
            .count() as u32
    }

    /// Records that the process of `rank` has ended, as seen by its launcher.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](unipgas_base::Error::InvalidArgument) for a rank out of range.
    pub fn set_ended(&self, rank: u32) -> Result<()> {
        self.record(rank, R_ENDED)?.store(1, Ordering::Release);
        self.tell_mirror();
        Ok(())
    }

    /// Whether the process of `rank` has ended, so that it will not return.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](unipgas_base::Error::InvalidArgument) for a rank out of range.
    pub(crate) fn is_gone(&self, rank: u32) -> Result<bool> {
        let told = self.record(rank, R_ENDED)?.load(Ordering::Acquire) != 0;
        if told || self.is_afar(rank)? {
            return Ok(told);
        }
        let process = unipgas_base::process::named(self.pid(rank)?);
        Ok(process.is_none_or(|process| rustix::process::test_kill_process(process).is_err()))
    }

    pub(super) fn tell_mirror(&self) {
        if self.word(H_MIRRORED).load(Ordering::Relaxed) != 0 {
            self.nudge_mirror();
        }
    }

    /// Ends a sleep in [`await_news`](Board::await_news).
    pub fn nudge_mirror(&self) {
        self.word(H_NEWS).fetch_add(1, Ordering::Release);
        futex::wake_all(self.word(H_NEWS));
    }

    /// Number of writes so far. The caller reads it before it looks at the board.
    pub fn news(&self) -> u32 {
        self.word(H_NEWS).load(Ordering::Acquire)
    }

    /// Sleeps until a write after `seen`, at most for a second.
    pub fn await_news(&self, seen: u32) {
        // The caller checks again after each kind of return.
        futex::wait(self.word(H_NEWS), seen, Duration::from_secs(1));
    }

    /// Writes of `rank` since `told`, for [`take`](Board::take). `None`: no writes, or a write is in progress, after which more news comes.
    pub fn give(&self, rank: u32, told: &mut SentRecord) -> Option<Vec<u8>> {
        let word = |field| {
            self.record(rank, field)
                .map(|w: &AtomicU32| w.load(Ordering::Acquire))
        };
        // Read before the slots: the slots then include all values published before these words were written.
        let mut now = SentRecord {
            ended: word(R_ENDED).ok()?,
            state: word(R_STATE).ok()?,
            died: word(R_DEATHS).ok()?,
            epoch: word(R_EPOCH).ok()?,
            present: word(R_PRESENT).ok()?,
            slots: told.slots,
        };
        let dead = RankState::from_word(now.state) == RankState::Dead;
        let mut published = Vec::new();
        let sequences = || {
            let slots = 0..SLOTS_PER_RANK;
            slots.map(|index| self.slot(rank, index).0[S_SEQ].load(Ordering::Acquire))
        };
        let before: Vec<u32> = sequences().collect();
        for (index, sequence) in before.iter().enumerate() {
            if *sequence == told.slots[index] {
                continue;
            }
            if !sequence.is_multiple_of(2) {
                if dead {
                    // Its last write is incomplete, and stays so.
                    continue;
                }
                return None;
            }
            let slot = self.slot(rank, index);
            published.push((slot.order(), slot.read_unguarded()?));
            now.slots[index] = *sequence;
        }
        // A later change must not be sent before an earlier one. So all changes are of one moment, and in their order.
        fence(Ordering::Acquire);
        if !sequences().eq(before) || now == *told {
            return None;
        }
        let last = word(R_PUBLISHED).ok()?;
        published.sort_by_key(|(order, _)| Reverse(last.wrapping_sub(*order)));
        let mut bytes = Vec::with_capacity(HEAD);
        for word in [rank, now.state, now.epoch, now.ended, now.died, now.present] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for (_, (key, value)) in published {
            // At most MAX_KEY and MAX_VALUE, so the lengths fit.
            bytes.push(key.len() as u8);
            bytes.extend((value.len() as u16).to_le_bytes());
            bytes.extend(key);
            bytes.extend(value);
        }
        *told = now;
        Some(bytes)
    }

    /// Applies news from [`give`](Board::give) on another host. Returns whether they are valid. If the head is invalid, nothing is written.
    pub fn take(&self, bytes: &[u8]) -> bool {
        self.take_some(bytes).is_some()
    }

    /// Marks a rank on a lost host dead, unless its process had ended. Returns whether it ran on another host.
    pub fn lose(&self, rank: u32) -> bool {
        if self.is_afar(rank) != Ok(true) {
            return false;
        }
        if self.is_gone(rank) == Ok(false) {
            // Cannot fail: the rank is on the board.
            let _ = self.set_ended(rank);
            let _ = self.mark_dead(rank);
        }
        true
    }

    /// Records that `died` processes of `rank` have died, and that it is in `state`.
    fn take_deaths(&self, rank: u32, died: u32, state: RankState) -> Result<()> {
        while self.died(rank)? < died {
            self.begin_again(rank)?;
            self.mark_dead(rank)?;
        }
        match state {
            RankState::Dead => self.mark_dead(rank),
            _ => self.begin_again(rank).map(drop),
        }
    }

    fn take_some(&self, bytes: &[u8]) -> Option<()> {
        let (head, mut rest) = bytes.split_at_checked(HEAD)?;
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let (rank, state, epoch, ended) = (word(0)?, word(4)?, word(8)?, word(12)?);
        let (died, present) = (word(16)?, word(20)?);
        if self.is_afar(rank) != Ok(true) {
            return None;
        }
        while let [key, low, high, more @ ..] = rest {
            let (key_len, value_len) = (*key, u16::from_le_bytes([*low, *high]));
            let (key_len, value_len) = (usize::from(key_len), usize::from(value_len));
            if key_len > MAX_KEY || value_len > MAX_VALUE {
                return None;
            }
            let (key, more) = more.split_at_checked(key_len)?;
            let (value, more) = more.split_at_checked(value_len)?;
            self.publish(rank, std::str::from_utf8(key).ok()?, value)
                .ok()?;
            rest = more;
        }
        if !rest.is_empty() {
            return None;
        }
        // A process that sees the arrival at a fence also sees the incarnation that arrived.
        if self.present(rank) != Ok(present) {
            self.set_present(rank, present).ok()?;
        }
        self.arrive(rank, epoch).ok()?;
        let state = RankState::from_word(state);
        self.take_deaths(rank, died.min(MANY), state).ok()?;
        if ended != 0 {
            self.set_ended(rank).ok()?;
        }
        if self.state(rank) != Ok(state) {
            self.set_state(rank, state).ok()?;
        }
        // A process may wait for these values, or for the rank's next life cycle.
        self.ring();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rank_writes_is_on_the_other_board() {
        let (home, _a) = Board::create(2).unwrap();
        let (other, _b) = Board::create(2).unwrap();
        other.set_afar(1).unwrap();
        let mut told = SentRecord::default();
        assert_eq!(home.give(1, &mut told), None, "nothing yet");
        home.publish(1, "place", b"here").unwrap();
        home.set_state(1, RankState::Joined).unwrap();
        home.arrive(1, 3).unwrap();
        let news = home.give(1, &mut told).unwrap();
        assert_eq!(home.give(1, &mut told), None, "told once");
        assert!(other.take(&news));
        assert_eq!(other.fetch(1, "place").unwrap().unwrap(), b"here");
        assert_eq!(other.epoch(1), Ok(3));
        assert_eq!(other.state(1), Ok(RankState::Joined));
        let longest = [9; MAX_VALUE];
        home.publish(1, "longest", &longest).unwrap();
        assert!(other.take(&home.give(1, &mut told).unwrap()));
        assert_eq!(other.fetch(1, "longest").unwrap().unwrap(), longest);
        home.publish(1, "place", b"there").unwrap();
        home.mark_dead(1).unwrap();
        home.set_ended(1).unwrap();
        assert!(other.take(&home.give(1, &mut told).unwrap()));
        assert_eq!(other.fetch(1, "place").unwrap().unwrap(), b"there");
        assert_eq!((other.deaths(), other.is_gone(1)), (1, Ok(true)));
        home.begin_again(1).unwrap();
        home.set_state(1, RankState::Joined).unwrap();
        assert!(other.take(&home.give(1, &mut told).unwrap()));
        assert_eq!(other.state(1), Ok(RankState::Joined));
        assert_eq!((other.died(1), other.present(1)), (Ok(1), Ok(0)));
        home.mark_dead(1).unwrap();
        home.begin_again(1).unwrap();
        home.set_state(1, RankState::Joined).unwrap();
        home.set_present(1, 2).unwrap();
        assert!(other.take(&home.give(1, &mut told).unwrap()));
        assert_eq!(other.state(1), Ok(RankState::Joined));
        assert_eq!((other.deaths(), other.is_gone(1)), (2, Ok(false)));
        assert_eq!((other.died(1), other.present(1)), (Ok(2), Ok(2)));
    }

    #[test]
    fn keys_are_told_in_the_order_in_which_they_were_written() {
        let (home, _a) = Board::create(1).unwrap();
        home.publish(0, "turn", b"1").unwrap();
        let mut told = SentRecord::default();
        assert!(home.give(0, &mut told).is_some());
        home.publish(0, "said", b"word").unwrap();
        home.publish(0, "turn", b"2").unwrap();
        let news = home.give(0, &mut told).unwrap();
        let at = |key: &[u8]| news.windows(4).position(|bytes| bytes == key).unwrap();
        assert!(at(b"said") < at(b"turn"));
    }

    #[test]
    fn a_rank_that_is_lost_is_dead_and_one_that_has_left_is_not() {
        let (home, _a) = Board::create(3).unwrap();
        let (other, _b) = Board::create(3).unwrap();
        other.set_afar(1).unwrap();
        other.set_afar(2).unwrap();
        home.set_state(1, RankState::Finalized).unwrap();
        home.set_ended(1).unwrap();
        assert!(other.take(&home.give(1, &mut SentRecord::default()).unwrap()));
        assert!(other.lose(1) && other.lose(2));
        assert_eq!(other.state(1), Ok(RankState::Finalized));
        assert_eq!(other.state(2), Ok(RankState::Dead));
        assert_eq!((other.deaths(), other.is_gone(2)), (1, Ok(true)));
        assert!(!other.lose(0) && !other.lose(3), "it runs here, or nowhere");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (home, _a) = Board::create(2).unwrap();
        let (other, _b) = Board::create(2).unwrap();
        other.set_afar(1).unwrap();
        home.publish(1, "place", b"here").unwrap();
        let news = home.give(1, &mut SentRecord::default()).unwrap();
        for len in 0..news.len() {
            assert_eq!(other.take(&news[..len]), len == HEAD, "{len} bytes");
        }
        let mut of_a_rank_here = news.clone();
        of_a_rank_here[0] = 0;
        assert!(!other.take(&of_a_rank_here));
        let mut of_nobody = news.clone();
        of_nobody[3] = 77;
        assert!(!other.take(&of_nobody));
        let mut too_long = news.clone();
        too_long[HEAD] = 200;
        assert!(!other.take(&too_long));
    }

    #[test]
    fn a_dead_writer_keeps_nobody_from_being_told() {
        let (home, _a) = Board::create(1).unwrap();
        home.publish(0, "whole", b"1").unwrap();
        home.slot(0, 1).0[S_SEQ].store(1, Ordering::Release);
        let mut told = SentRecord::default();
        assert_eq!(home.give(0, &mut told), None, "it is just writing");
        home.mark_dead(0).unwrap();
        assert!(home.give(0, &mut told).is_some());
        assert_eq!(home.give(0, &mut told), None);
    }
}
