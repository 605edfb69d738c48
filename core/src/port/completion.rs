//! Completions of a port, in the order in which its commands were posted.

use std::collections::VecDeque;

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

/// A ring of completions. One place is taken by every command, whether or not it asks for a completion (uTofu guide §3.7).
pub struct Completions {
    ring: Box<[(u64, u32)]>,
    first: usize,
    next: usize,
}

const SILENT: u32 = 0;
const WANTED: u32 = 1;

impl Completions {
    pub fn new() -> Self {
        Completions {
            ring: vec![(0, SILENT); DEPTH].into(),
            first: 0,
            next: 0,
        }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.next - self.first
    }

    #[inline(always)]
    pub fn has_room(&self, commands: usize) -> bool {
        self.len() + commands <= DEPTH
    }

    #[inline(always)]
    pub fn push(&mut self, context: u64, wanted: bool, fault: Option<Fault>) {
        let state = match fault {
            None if wanted => WANTED,
            None => SILENT,
            Some(fault) => 1 + fault as u32,
        };
        self.ring[self.next % DEPTH] = (context, state);
        self.next += 1;
    }

    /// The next one that somebody wants to know of; frees the places up to it.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Completed> {
        while self.first != self.next {
            let (context, state) = self.ring[self.first % DEPTH];
            self.first += 1;
            if state != SILENT {
                return Some(Completed {
                    context,
                    fault: Fault::from_bits((state - 1) as u8),
                });
            }
        }
        None
    }
}

/// Commands that the program wants to be held back for a moment.
pub type Delayed = VecDeque<(super::Command, u64)>;
/// More are started at once.
pub const MOST_DELAYED: usize = 64;
