//! Completions of a port, in posting order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::notice::Fault;

/// Maximum number of posted commands with unread completions.
pub const DEPTH: usize = 4096;

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// The context of the command.
    pub context: u64,
    /// Reason, if the command was not sent.
    pub fault: Option<Fault>,
}

/// Counters of completions. Any thread may read them.
#[derive(Default)]
pub struct CompletionCounters {
    first: AtomicUsize,
    next: AtomicUsize,
    /// Bytes moved by commands, including commands in flight.
    bytes: AtomicU64,
}

impl CompletionCounters {
    #[inline(always)]
    pub(crate) fn unread(&self) -> usize {
        self.next
            .load(Ordering::Relaxed)
            .wrapping_sub(self.first.load(Ordering::Relaxed))
    }

    /// Counts a command that moves `bytes` bytes.
    #[inline(always)]
    pub(crate) fn moved(&self, bytes: usize) {
        let before = self.bytes.load(Ordering::Relaxed);
        let now = before.wrapping_add(bytes as u64);
        self.bytes.store(now, Ordering::Relaxed);
    }

    /// Number of commands that have completions, and the bytes of all commands.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let commands = self.next.load(Ordering::Relaxed) as u64;
        (commands, self.bytes.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn has_room(&self, commands: usize) -> bool {
        self.unread() + commands <= DEPTH
    }
}

/// A ring of completions. Each command takes a slot, with or without [`COMPLETION`](super::CommandFlags::COMPLETION) (uTofu guide §3.7). Only the thread that
/// holds the queues changes the counters.
pub struct CompletionRing {
    ring: Box<[(u64, u64); DEPTH]>,
}

const SILENT: u64 = 0;
const WANTED: u64 = 1;

impl CompletionRing {
    pub fn new() -> Self {
        let ring = vec![(0, SILENT); DEPTH].into_boxed_slice();
        CompletionRing {
            ring: ring.try_into().expect("as many as the array has"),
        }
    }

    #[inline(always)]
    pub fn push(
        &mut self,
        counts: &CompletionCounters,
        context: u64,
        wanted: bool,
        fault: Option<Fault>,
    ) {
        let state = match fault {
            None => u64::from(wanted),
            Some(fault) => WANTED + fault as u64,
        };
        let next = counts.next.load(Ordering::Relaxed);
        self.ring[next % DEPTH] = (context, state);
        counts.next.store(next.wrapping_add(1), Ordering::Relaxed);
    }

    /// The next requested completion, or the next fault. Frees the slots up to it.
    #[inline(always)]
    pub fn take(&mut self, counts: &CompletionCounters) -> Option<Completed> {
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

/// Commands that the program has posted with delay.
pub(crate) type Delayed = VecDeque<(super::Command, u64)>;
/// Limit of delayed commands. A further one is started at once.
pub(crate) const MOST_DELAYED: usize = 64;
