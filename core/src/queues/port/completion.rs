//! Completions of a port, in the order in which its commands were posted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::notice::Fault;

/// Commands that a port can have posted whose completions have not been looked at.
pub const DEPTH: usize = 4096;

/// One completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// The context given with the command.
    pub context: u64,
    /// Why the command was not sent, if it was not.
    pub fault: Option<Fault>,
}

/// How many completions there are; anybody may look.
#[derive(Default)]
pub struct Counts {
    first: AtomicUsize,
    next: AtomicUsize,
    /// What commands have moved, and do.
    bytes: AtomicU64,
}

impl Counts {
    #[inline(always)]
    pub fn unread(&self) -> usize {
        self.next
            .load(Ordering::Relaxed)
            .wrapping_sub(self.first.load(Ordering::Relaxed))
    }

    /// A command that moves so many bytes.
    #[inline(always)]
    pub fn moved(&self, bytes: usize) {
        let before = self.bytes.load(Ordering::Relaxed);
        let now = before.wrapping_add(bytes as u64);
        self.bytes.store(now, Ordering::Relaxed);
    }

    /// Commands so far, as far as they have completions, and their bytes.
    pub fn so_far(&self) -> (u64, u64) {
        let commands = self.next.load(Ordering::Relaxed) as u64;
        (commands, self.bytes.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub fn has_room(&self, commands: usize) -> bool {
        self.unread() + commands <= DEPTH
    }
}

/// A ring of completions. One place is taken by every command, whether or not it asks for a completion (uTofu guide §3.7). Only
/// whoever holds it changes the counts.
pub struct Completions {
    ring: Box<[(u64, u64); DEPTH]>,
}

const SILENT: u64 = 0;
const WANTED: u64 = 1;

impl Completions {
    pub fn new() -> Self {
        let ring = vec![(0, SILENT); DEPTH].into_boxed_slice();
        Completions {
            ring: ring.try_into().expect("as many as the array has"),
        }
    }

    #[inline(always)]
    pub fn push(&mut self, counts: &Counts, context: u64, wanted: bool, fault: Option<Fault>) {
        let state = match fault {
            None => u64::from(wanted),
            Some(fault) => WANTED + fault as u64,
        };
        let next = counts.next.load(Ordering::Relaxed);
        self.ring[next % DEPTH] = (context, state);
        counts.next.store(next.wrapping_add(1), Ordering::Relaxed);
    }

    /// The next one that somebody wants to know of; frees the places up to it.
    #[inline(always)]
    pub fn take(&mut self, counts: &Counts) -> Option<Completed> {
        let next = counts.next.load(Ordering::Relaxed);
        let mut first = counts.first.load(Ordering::Relaxed);
        let mut found = None;
        while first != next {
            let (context, state) = self.ring[first % DEPTH];
            first = first.wrapping_add(1);
            if state != SILENT {
                found = Some(Completed {
                    context,
                    fault: Fault::from_bits((state - WANTED) as u8),
                });
                break;
            }
        }
        counts.first.store(first, Ordering::Relaxed);
        found
    }
}

/// Commands that the program wants to be held back for a moment.
pub type Delayed = VecDeque<(super::Command, u64)>;
/// More are started at once.
pub const MOST_DELAYED: usize = 64;
