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
    peers: Mutex<Vec<OfPeer>>,
    /// The most that may be pending to one peer.
    depth: usize,
}

/// Operations to one peer.
#[derive(Clone, Copy, Default)]
struct OfPeer {
    pending: usize,
    /// Those whose bytes have not come.
    reads: usize,
}

impl Completions {
    /// Of an endpoint that may have so many operations to a peer pending.
    pub fn new(depth: usize) -> Self {
        Completions {
            ended: SegQueue::new(),
            pending: AtomicUsize::new(0),
            peers: Mutex::default(),
            depth,
        }
    }

    /// An operation is posted. Errors: [`Error::NotNow`].
    pub fn begin(&self, peer: u32) -> Result<()> {
        let mut peers = self.peers.lock();
        let peer = peer as usize;
        if peers.len() <= peer {
            peers.resize(peer + 1, OfPeer::default());
        }
        if peers[peer].pending >= self.depth {
            return Err(Error::NotNow);
        }
        peers[peer].pending += 1;
        self.pending.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// It was not posted after all, or has been reported.
    pub fn take_back(&self, peer: u32) {
        self.peers.lock()[peer as usize].pending -= 1;
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }

    /// One that has begun reads: what is to come after it there waits for [`landed`](Completions::landed).
    pub fn reads(&self, peer: u32) {
        self.peers.lock()[peer as usize].reads += 1;
    }

    /// What an operation reads has come, or never will.
    pub fn landed(&self, peer: u32) {
        self.peers.lock()[peer as usize].reads -= 1;
    }

    /// Whether an operation that reads there is under way.
    pub fn is_reading(&self, peer: u32) -> bool {
        let peers = self.peers.lock();
        peers.get(peer as usize).is_some_and(|peer| peer.reads > 0)
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
