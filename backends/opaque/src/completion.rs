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
