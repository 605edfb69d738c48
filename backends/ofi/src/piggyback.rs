//! Held-back pieces of streams: answers without a known waiter. They leave with the next message to the same process.
//!
//! After a message from a peer, a program often sends that peer a message at once. Then this message carries the answer, too. Like delayed
//! acknowledgements of TCP, pieces are held back only if the program has recently behaved so.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::wire::{self, Along, Head};

/// Maximum number of held-back bytes per process.
pub const MOST: usize = 512;
/// Rounds of progress after which pieces leave by themselves.
pub const TURNS: u32 = 8;
/// Bound of the account of a process.
const ACCOUNT: i32 = 8;

/// Result for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rides {
    /// It must leave now.
    No,
    /// It is held back, as the only one.
    First,
    /// It is held back with others.
    Also,
}

/// The held-back pieces of one process.
#[derive(Default)]
pub(crate) struct Piggyback {
    waiting: Mutex<Vec<u8>>,
    /// There are held-back pieces.
    any: AtomicBool,
    /// Round of the first piece, or of a piece that left at once. 0: the next message does not count as a follow-up.
    since: AtomicU32,
    /// Number of pieces with a prompt follow-up, less those without.
    account: AtomicI32,
}

impl Piggyback {
    /// Holds back a piece of a stream in round `turn`, which is not 0. If the piece must leave now, the caller reports this by
    /// [`passed`](Piggyback::passed).
    pub fn wait(&self, turn: u32, head: Head, body: &[u8]) -> Rides {
        let mut waiting = self.waiting.lock();
        let fits = waiting.len() + wire::along(body.len()) <= MOST;
        let holds = self.account.load(Ordering::Relaxed) >= 0 && fits;
        if !holds {
            // The piece's own message does not count as a follow-up.
            self.since.store(0, Ordering::Relaxed);
            return Rides::No;
        }
        let first = waiting.is_empty();
        if first {
            self.since.store(turn, Ordering::Relaxed);
        }
        let along = Along {
            len: body.len() as u32,
            pad: 0,
        };
        let head = Head {
            kind: wire::ALONG,
            ..head
        };
        waiting.extend_from_slice(bytemuck::bytes_of(&head));
        waiting.extend_from_slice(bytemuck::bytes_of(&along));
        waiting.extend_from_slice(body);
        self.any.store(true, Ordering::Release);
        if first { Rides::First } else { Rides::Also }
    }

    /// Notes that a piece was not held back, and left in round `turn`.
    pub fn passed(&self, turn: u32) {
        self.since.store(turn, Ordering::Relaxed);
    }

    /// Takes the pieces before a message to the process in round `turn`. They must leave before it, or with it.
    pub fn board(&self, turn: u32) -> Option<PiggybackGuard<'_>> {
        let since = self.since.load(Ordering::Relaxed);
        if since != 0 {
            self.since.store(0, Ordering::Relaxed);
            if turn.wrapping_sub(since) < TURNS {
                self.judge(1);
            }
        }
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let waiting = self.waiting.lock();
        (!waiting.is_empty()).then(|| PiggybackGuard(self, waiting))
    }

    /// Takes the pieces if they were held back long enough without a message. `late`: the program does not make progress, so they leave now.
    pub fn leave(&self, turn: u32, late: bool) -> Option<PiggybackGuard<'_>> {
        let waiting = self.waiting.lock();
        let age = turn.wrapping_sub(self.since.load(Ordering::Relaxed));
        if waiting.is_empty() || !late && age < TURNS {
            return None;
        }
        self.since.store(0, Ordering::Relaxed);
        self.judge(if late { -4 } else { -1 });
        Some(PiggybackGuard(self, waiting))
    }

    fn judge(&self, change: i32) {
        let account = self.account.load(Ordering::Relaxed) + change;
        self.account
            .store(account.clamp(-ACCOUNT, ACCOUNT), Ordering::Relaxed);
    }

    /// Whether pieces are held back.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}

/// Pieces that leave with a message. Its lock keeps new pieces and other messages away until it is dropped.
pub(crate) struct PiggybackGuard<'a>(&'a Piggyback, MutexGuard<'a, Vec<u8>>);

impl PiggybackGuard<'_> {
    /// The bytes to send before the message.
    pub fn bytes(&self) -> &[u8] {
        &self.1
    }

    /// Removes the pieces after they have left.
    pub fn gone(mut self) {
        self.1.clear();
        self.0.any.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head {
        conversation: 3,
        kind: wire::BYTES,
        cookie: 4,
    };

    fn waiting(piggyback: &Piggyback, turn: u32) -> usize {
        piggyback.board(turn).map_or(0, |all| all.bytes().len())
    }

    #[test]
    fn they_leave_with_a_message_whole_and_in_their_order() {
        let piggyback = Piggyback::default();
        assert_eq!(piggyback.wait(1, HEAD, &[1, 2]), Rides::First);
        assert_eq!(piggyback.wait(2, HEAD, &[3]), Rides::Also);
        let all = piggyback.board(2).expect("two");
        let (head, rest) = wire::split::<Head>(all.bytes()).unwrap();
        assert_eq!((head.kind, head.cookie), (wire::ALONG, 4));
        let (body, rest) = wire::ride(rest).unwrap();
        assert_eq!(body, [1, 2]);
        let (_, rest) = wire::split::<Head>(rest).unwrap();
        assert_eq!(wire::ride(rest).unwrap(), (&[3][..], &[][..]));
        // The message found no room.
        drop(all);
        assert!(piggyback.any());
        piggyback.board(2).unwrap().gone();
        assert!(!piggyback.any() && piggyback.board(2).is_none());
    }

    #[test]
    fn they_leave_by_themselves_after_some_turns() {
        let piggyback = Piggyback::default();
        assert_eq!(piggyback.wait(5, HEAD, &[1]), Rides::First);
        assert!(piggyback.leave(5, false).is_none());
        assert!(piggyback.leave(4 + TURNS, false).is_none());
        assert!(piggyback.leave(5 + TURNS, false).is_some());
        assert!(waiting(&piggyback, 6 + TURNS) > 0);
    }

    #[test]
    fn where_nothing_follows_nothing_waits_until_something_does() {
        let piggyback = Piggyback::default();
        assert_eq!(piggyback.wait(1, HEAD, &[1]), Rides::First);
        piggyback.leave(1, true).unwrap().gone();
        let passes = |turn| {
            assert_eq!(piggyback.wait(turn, HEAD, &[1]), Rides::No);
            // The piece's own message.
            assert!(piggyback.board(turn).is_none());
            piggyback.passed(turn);
        };
        (2..20).for_each(passes);
        // The message comes too late.
        assert!(piggyback.board(19 + TURNS).is_none());
        for turn in 40..44 {
            passes(turn);
            assert!(piggyback.board(turn).is_none());
        }
        assert_eq!(piggyback.wait(50, HEAD, &[1]), Rides::First);
    }

    #[test]
    fn what_finds_no_room_does_not_wait() {
        let piggyback = Piggyback::default();
        assert_eq!(piggyback.wait(1, HEAD, &[0; MOST]), Rides::No);
        assert!(piggyback.board(1).is_none());
        while piggyback.wait(1, HEAD, &[0; 60]) != Rides::No {}
        assert!(waiting(&piggyback, 1) <= MOST);
    }
}
