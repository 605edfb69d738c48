//! The ends of operations, between the agent and whoever polls.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::SegQueue;
use parking_lot::Mutex;
use unipgas_core::{Completion, Error, Result};

/// Those of one endpoint.
pub struct Completions {
    /// With the peer.
    ended: SegQueue<(u32, Completion)>,
    /// Posted, and not reported.
    pending: AtomicUsize,
    /// The same for each peer.
    of_peer: Mutex<Vec<usize>>,
    /// The most of those.
    depth: usize,
    /// Those whose bytes have not come.
    reads: AtomicUsize,
}

impl Completions {
    /// Of an endpoint that may have so many operations to a peer pending.
    pub fn new(depth: usize) -> Self {
        Completions {
            ended: SegQueue::new(),
            pending: AtomicUsize::new(0),
            of_peer: Mutex::default(),
            depth,
            reads: AtomicUsize::new(0),
        }
    }

    /// An operation is posted. Errors: [`Error::NotNow`].
    pub fn begin(&self, peer: u32) -> Result<()> {
        let mut of_peer = self.of_peer.lock();
        let peer = peer as usize;
        if of_peer.len() <= peer {
            of_peer.resize(peer + 1, 0);
        }
        if of_peer[peer] >= self.depth {
            return Err(Error::NotNow);
        }
        of_peer[peer] += 1;
        self.pending.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// It was not posted after all, or has been reported.
    pub fn take_back(&self, peer: u32) {
        self.of_peer.lock()[peer as usize] -= 1;
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
    pub fn end(&self, peer: u32, context: u64, result: Result<()>) {
        self.ended.push((peer, Completion { context, result }));
    }

    /// Operations that have not been reported.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Reports those that have ended.
    pub fn report(&self, sink: &mut dyn FnMut(Completion)) {
        while let Some((peer, completion)) = self.ended.pop() {
            sink(completion);
            // Only now: who sees that nothing is pending has been told everything.
            self.take_back(peer);
        }
    }
}
