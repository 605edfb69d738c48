//! Completions. The thread that ends an operation hands them to the thread that polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crossbeam::queue::SegQueue;
use once_cell::race::OnceBox;
use parking_lot::{Mutex, MutexGuard};

use super::link::Link;
use super::network::After;
use unipgas_base::{Error, Result};
use unipgas_engine::op::Completion;

/// The completions of one channel. No call waits. Only calls for gathered operations lock.
pub struct Completions {
    /// The peer, the completion, and the number of gathered operations that it stands for.
    ended: SegQueue<(u32, Completion, Option<u32>)>,
    /// Peers with gathered operations.
    gathered: Mutex<Vec<u32>>,
    gathering: AtomicUsize,
    /// Operations that are posted and not reported.
    pending: AtomicUsize,
    /// Indexed by peer: the first 8, the next 16, the next 32, ...
    peers: [OnceBox<Box<[OfPeer]>>; PARTS],
    /// Maximum of pending operations to a peer.
    depth: usize,
}

/// Indices of peers have 32 bits.
const PARTS: usize = 30;
const FIRST: usize = 8;

/// Operations to a peer.
#[derive(Default)]
struct OfPeer {
    pending: AtomicUsize,
    /// Reads that wait for their data.
    reads: AtomicU32,
    /// Requests without an answer.
    requests: AtomicU32,
    /// The network's own operations in progress.
    own: AtomicU32,
    /// Gathered operations that are posted and not reported. [`pending`](OfPeer::pending) counts the others.
    many: AtomicUsize,
    gathered: Mutex<Gathered>,
}

/// Unsignaled operations of a network, which have left. A later operation confirms them when all are visible. A poll requests it.
#[derive(Default)]
pub(super) struct Gathered {
    /// The stream to the peer, and their number there.
    pub of: Option<(Arc<Link>, u64)>,
    /// The network's name of the peer.
    pub to: u64,
    /// Number of the operations.
    pub count: u32,
    /// Context of each operation.
    pub context: u64,
}

/// Whether the network executes an operation itself, and whether the operation writes to the caller's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub own: bool,
    pub reads: bool,
}

impl OfPeer {
    fn counted(&self, kind: Kind) -> impl Iterator<Item = &AtomicU32> {
        let how = if kind.own { &self.own } else { &self.requests };
        std::iter::once(how).chain(kind.reads.then_some(&self.reads))
    }
}

impl Completions {
    /// Completions of a channel that allows `depth` pending operations to a peer.
    pub fn new(depth: usize) -> Self {
        Completions {
            ended: SegQueue::new(),
            gathered: Mutex::default(),
            gathering: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            peers: std::array::from_fn(|_| OnceBox::new()),
            depth,
        }
    }

    fn of(&self, peer: u32) -> &OfPeer {
        let at = peer as usize + FIRST;
        let part = (at / FIRST).ilog2();
        let len = FIRST << part;
        let peers = self.peers[part as usize].get_or_init(|| {
            let all = (0..len).map(|_| OfPeer::default());
            Box::new(all.collect())
        });
        &peers[at - len]
    }

    /// Counts a posted operation. Errors: [`Error::NotNow`].
    pub fn begin(&self, peer: u32) -> Result<()> {
        let more = |pending| (pending < self.depth).then_some(pending + 1);
        let pending = &self.of(peer).pending;
        pending
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .map_err(|_| Error::NotNow)?;
        self.pending.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Counts a posted gathered operation, of which `most` may be pending. Errors: [`Error::NotNow`].
    pub(super) fn begin_gathered(&self, peer: u32, most: usize) -> Result<()> {
        let many = &self.of(peer).many;
        if many.fetch_add(1, Ordering::AcqRel) >= most {
            many.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::NotNow);
        }
        self.pending.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Takes `count` gathered operations back: they have been reported, or were not posted.
    pub(super) fn take_back_gathered(&self, peer: u32, count: usize) {
        self.of(peer).many.fetch_sub(count, Ordering::AcqRel);
        self.pending.fetch_sub(count, Ordering::AcqRel);
    }

    /// Takes an operation back: it has been reported, or was not posted.
    pub(crate) fn take_back(&self, peer: u32) {
        self.of(peer).pending.fetch_sub(1, Ordering::AcqRel);
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }

    /// An operation leaves.
    pub(super) fn leaves(&self, peer: u32, kind: Kind) {
        for count in self.of(peer).counted(kind) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// An operation has taken effect, or never will.
    pub(super) fn mark_done(&self, peer: u32, kind: Kind) {
        for count in self.of(peer).counted(kind) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether operations to the peer are in progress that an operation with this `after` must wait for.
    pub(super) fn hold_up(&self, peer: u32, after: After) -> bool {
        let of = self.of(peer);
        [
            (After::READS, &of.reads),
            (After::ANSWERED, &of.requests),
            (After::OWN, &of.own),
        ]
        .into_iter()
        .any(|(what, count)| after.contains(what) && count.load(Ordering::SeqCst) > 0)
    }

    /// Ends an operation.
    pub fn end(&self, peer: u32, context: u64, result: Result<()>) {
        self.ended
            .push((peer, Completion { context, result }, None));
    }

    /// Ends `count` gathered operations.
    pub(super) fn end_gathered(&self, peer: u32, count: u32, context: u64, result: Result<()>) {
        if count == 0 {
            return;
        }
        self.of(peer).own.fetch_sub(count, Ordering::SeqCst);
        self.ended
            .push((peer, Completion { context, result }, Some(count)));
    }

    /// The gathered operations to the peer.
    pub(super) fn gathered(&self, peer: u32) -> MutexGuard<'_, Gathered> {
        self.of(peer).gathered.lock()
    }

    /// Lists the peer: it has gathered operations.
    pub(super) fn gathers(&self, peer: u32) {
        let mut peers = self.gathered.lock();
        peers.push(peer);
        self.gathering.store(peers.len(), Ordering::Release);
    }

    /// Takes a peer off the list. It may have gathered operations.
    pub(super) fn next_gathering(&self) -> Option<u32> {
        if self.gathering.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut peers = self.gathered.lock();
        let peer = peers.pop();
        self.gathering.store(peers.len(), Ordering::Release);
        peer
    }

    /// Number of operations that have not been reported.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Reports the completions.
    pub(crate) fn report(&self, sink: &mut dyn FnMut(Completion)) {
        while let Some((peer, completion, count)) = self.ended.pop() {
            for _ in 1..count.unwrap_or(1) {
                sink(completion.clone());
            }
            sink(completion);
            // After the report: a caller that sees no pending operation has got all reports.
            match count {
                None => self.take_back(peer),
                Some(count) => self.take_back_gathered(peer, count as usize),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_a_depth_of_its_own() {
        let completions = Completions::new(2);
        let peers = [0, 7, 8, 23, 24, 1000, 100_000];
        for peer in peers {
            assert_eq!(completions.begin(peer), Ok(()));
            assert_eq!(completions.begin(peer), Ok(()));
            assert_eq!(completions.begin(peer), Err(Error::NotNow));
        }
        assert_eq!(completions.pending(), 2 * peers.len());
        completions.end(1000, 5, Ok(()));
        let mut contexts = Vec::new();
        completions.report(&mut |end| contexts.push(end.context));
        assert_eq!(contexts, [5]);
        assert_eq!(completions.begin(1000), Ok(()));
        assert_eq!(completions.begin(24), Err(Error::NotNow));
    }

    #[test]
    fn what_is_under_way_holds_up_what_comes_after_it() {
        let completions = Completions::new(9);
        let kind = |own, reads| Kind { own, reads };
        for (kind, held_up) in [
            (kind(false, false), After::ANSWERED),
            (kind(false, true), After::ANSWERED | After::READS),
            (kind(true, false), After::OWN),
            (kind(true, true), After::OWN | After::READS),
        ] {
            completions.leaves(3, kind);
            for after in [After::READS, After::ANSWERED, After::OWN] {
                assert_eq!(completions.hold_up(3, after), held_up.contains(after));
                assert!(!completions.hold_up(2, after));
            }
            completions.mark_done(3, kind);
            assert!(!completions.hold_up(3, After::all()));
        }
    }
}
