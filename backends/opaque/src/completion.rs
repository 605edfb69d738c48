//! The ends of operations, between the agent and whoever polls.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::SegQueue;
use unipgas_core::{Completion, Result};

/// Those of one endpoint.
#[derive(Default)]
pub struct Completions {
    ended: SegQueue<Completion>,
    /// Posted, and not reported.
    pending: AtomicUsize,
    /// Those whose bytes have not come.
    reads: AtomicUsize,
}

impl Completions {
    /// An operation has been posted.
    pub fn begin(&self) {
        self.pending.fetch_add(1, Ordering::AcqRel);
    }

    /// It was not posted after all.
    pub fn take_back(&self) {
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }

    /// It reads: what is to come after it waits for [`landed`](Completions::landed).
    pub fn reads(&self) {
        self.reads.fetch_add(1, Ordering::AcqRel);
    }

    /// What an operation reads has come, or never will.
    pub fn landed(&self) {
        self.reads.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether an operation that reads is under way.
    pub fn is_reading(&self) -> bool {
        self.reads.load(Ordering::Acquire) > 0
    }

    /// It has ended.
    pub fn end(&self, context: u64, result: Result<()>) {
        self.ended.push(Completion { context, result });
    }

    /// Operations that have not been reported.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Reports those that have ended.
    pub fn report(&self, sink: &mut dyn FnMut(Completion)) {
        while let Some(completion) = self.ended.pop() {
            sink(completion);
            // Only now: who sees that nothing is pending has been told everything.
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
