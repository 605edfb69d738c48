//! Short pieces of streams that wait for a message to the same process, to travel along with it: answers for which nobody is known to wait.
//!
//! A program that is told something by a peer often tells that peer something at once. Then the answer to the one and the other are one message. As
//! with delayed acknowledgements of TCP, pieces are held back only where programs have lately done so.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::wire::{self, Along, Head};

/// Bytes that may wait for one process.
pub const MOST: usize = 512;
/// So often the network is moved on before they leave by themselves.
pub const TURNS: u32 = 8;
/// The best and the worst account of a process.
const ACCOUNT: i32 = 8;

/// What becomes of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rides {
    /// It does not wait.
    No,
    /// It is the only one that waits.
    First,
    /// Others do, too.
    Also,
}

/// Those to one process.
#[derive(Default)]
pub struct Riders {
    waiting: Mutex<Vec<u8>>,
    /// There are some.
    any: AtomicBool,
    /// The turn in which the first of them came, or one that did not wait, if it has not been seen whether anything followed; 0: it has.
    since: AtomicU32,
    /// How often something followed soon, less how often nothing did.
    account: AtomicI32,
}

impl Riders {
    /// A piece of a stream comes in this `turn`, which is not 0. Where it does not wait it is [told](Riders::passed) that it has left.
    pub fn wait(&self, turn: u32, head: Head, body: &[u8]) -> Rides {
        let mut waiting = self.waiting.lock();
        let fits = waiting.len() + wire::along(body.len()) <= MOST;
        let holds = self.account.load(Ordering::Relaxed) >= 0 && fits;
        if !holds {
            // Its own message is nothing that follows.
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

    /// A piece that did not wait has left in this `turn`.
    pub fn passed(&self, turn: u32) {
        self.since.store(turn, Ordering::Relaxed);
    }

    /// A message goes there in this `turn`; it does so after everything that is waiting.
    pub fn board(&self, turn: u32) -> Option<Boarding<'_>> {
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
        (!waiting.is_empty()).then(|| Boarding(self, waiting))
    }

    /// Nothing has gone there meanwhile: what waits is taken to leave by itself. `None`: nothing waits, or it may do so longer. `late`: the program does not
    /// look at the network.
    pub fn leave(&self, turn: u32, late: bool) -> Option<Boarding<'_>> {
        let waiting = self.waiting.lock();
        let age = turn.wrapping_sub(self.since.load(Ordering::Relaxed));
        if waiting.is_empty() || !late && age < TURNS {
            return None;
        }
        self.since.store(0, Ordering::Relaxed);
        self.judge(if late { -4 } else { -1 });
        Some(Boarding(self, waiting))
    }

    fn judge(&self, change: i32) {
        let account = self.account.load(Ordering::Relaxed) + change;
        self.account
            .store(account.clamp(-ACCOUNT, ACCOUNT), Ordering::Relaxed);
    }

    /// Whether any are waiting.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}

/// Those that leave with a message. Until this is dropped none come, and no other message leaves with them.
pub struct Boarding<'a>(&'a Riders, MutexGuard<'a, Vec<u8>>);

impl Boarding<'_> {
    /// What goes ahead of the message.
    pub fn bytes(&self) -> &[u8] {
        &self.1
    }

    /// They have left.
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

    fn waiting(riders: &Riders, turn: u32) -> usize {
        riders.board(turn).map_or(0, |all| all.bytes().len())
    }

    #[test]
    fn they_leave_with_a_message_whole_and_in_their_order() {
        let riders = Riders::default();
        assert_eq!(riders.wait(1, HEAD, &[1, 2]), Rides::First);
        assert_eq!(riders.wait(2, HEAD, &[3]), Rides::Also);
        let all = riders.board(2).expect("two");
        let (head, rest) = wire::split::<Head>(all.bytes()).unwrap();
        assert_eq!((head.kind, head.cookie), (wire::ALONG, 4));
        let (body, rest) = wire::ride(rest).unwrap();
        assert_eq!(body, [1, 2]);
        let (_, rest) = wire::split::<Head>(rest).unwrap();
        assert_eq!(wire::ride(rest).unwrap(), (&[3][..], &[][..]));
        // There was no room for the message.
        drop(all);
        assert!(riders.any());
        riders.board(2).unwrap().gone();
        assert!(!riders.any() && riders.board(2).is_none());
    }

    #[test]
    fn they_leave_by_themselves_after_some_turns() {
        let riders = Riders::default();
        assert_eq!(riders.wait(5, HEAD, &[1]), Rides::First);
        assert!(riders.leave(5, false).is_none());
        assert!(riders.leave(4 + TURNS, false).is_none());
        assert!(riders.leave(5 + TURNS, false).is_some());
        assert!(waiting(&riders, 6 + TURNS) > 0);
    }

    #[test]
    fn where_nothing_follows_nothing_waits_until_something_does() {
        let riders = Riders::default();
        assert_eq!(riders.wait(1, HEAD, &[1]), Rides::First);
        riders.leave(1, true).unwrap().gone();
        let passes = |turn| {
            assert_eq!(riders.wait(turn, HEAD, &[1]), Rides::No);
            // Its own message.
            assert!(riders.board(turn).is_none());
            riders.passed(turn);
        };
        (2..20).for_each(passes);
        // Too late.
        assert!(riders.board(19 + TURNS).is_none());
        for turn in 40..44 {
            passes(turn);
            assert!(riders.board(turn).is_none());
        }
        assert_eq!(riders.wait(50, HEAD, &[1]), Rides::First);
    }

    #[test]
    fn what_finds_no_room_does_not_wait() {
        let riders = Riders::default();
        assert_eq!(riders.wait(1, HEAD, &[0; MOST]), Rides::No);
        assert!(riders.board(1).is_none());
        while riders.wait(1, HEAD, &[0; 60]) != Rides::No {}
        assert!(waiting(&riders, 1) <= MOST);
    }
}
