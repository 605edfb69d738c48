//! The ends of operations, between whoever learns of them and whoever polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crossbeam::queue::SegQueue;
use once_cell::race::OnceBox;
use parking_lot::{Mutex, MutexGuard};

use super::link::Link;
use super::network::After;
use crate::op::Completion;
use crate::{Error, Result};

/// Those of one channel. No call locks or waits.
pub struct Completions {
    /// With the peer, and how many that are gathered end like that.
    ended: SegQueue<(u32, Completion, Option<u32>)>,
    /// Peers that have gathered operations.
    gathered: Mutex<Vec<u32>>,
    gathering: AtomicUsize,
    /// Posted, and not reported.
    pending: AtomicUsize,
    /// By the peers' indices: the first 8, the next 16, the next 32, ...
    peers: [OnceBox<Box<[OfPeer]>>; PARTS],
    /// The most that may be pending to one peer.
    depth: usize,
}

/// Peers have indices of 32 bits.
const PARTS: usize = 30;
const FIRST: usize = 8;

/// Operations to one peer.
#[derive(Default)]
struct OfPeer {
    pending: AtomicUsize,
    /// Those whose bytes have not come.
    reads: AtomicU32,
    /// Those that have not been answered.
    requests: AtomicU32,
    /// The network's own.
    own: AtomicU32,
    /// Of what is posted, and not reported, that which is gathered; the rest are [`pending`](OfPeer::pending).
    many: AtomicUsize,
    gathered: Mutex<Gathered>,
}

/// Operations of the network's own that have left, of which no end is told: one that comes after them all, and ends when they are visible, is asked
/// for when somebody polls.
#[derive(Default)]
pub(super) struct Gathered {
    /// The stream to the peer, and by which number it knows them.
    pub of: Option<(Arc<Link>, u64)>,
    /// By which the network knows the peer.
    pub to: u64,
    /// How many.
    pub count: u32,
    /// Of each of them.
    pub context: u64,
}

/// How an operation is carried out, and whether it writes what the operation's caller reads.
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
    /// Of a channel that may have so many operations to a peer pending.
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

    /// An operation is posted. Errors: [`Error::NotNow`].
    pub fn begin(&self, peer: u32) -> Result<()> {
        let more = |pending| (pending < self.depth).then_some(pending + 1);
        let pending = &self.of(peer).pending;
        pending
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .map_err(|_| Error::NotNow)?;
        self.pending.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// One that is gathered is posted, so many of which may be pending. Errors: [`Error::NotNow`].
    pub(super) fn begin_gathered(&self, peer: u32, most: usize) -> Result<()> {
        let many = &self.of(peer).many;
        if many.fetch_add(1, Ordering::AcqRel) >= most {
            many.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::NotNow);
        }
        self.pending.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// So many that are gathered were not posted after all, or have been reported.
    pub(super) fn take_back_gathered(&self, peer: u32, count: usize) {
        self.of(peer).many.fetch_sub(count, Ordering::AcqRel);
        self.pending.fetch_sub(count, Ordering::AcqRel);
    }

    /// It was not posted after all, or has been reported.
    pub fn take_back(&self, peer: u32) {
        self.of(peer).pending.fetch_sub(1, Ordering::AcqRel);
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }

    /// One that has begun leaves.
    pub(super) fn leaves(&self, peer: u32, kind: Kind) {
        for count in self.of(peer).counted(kind) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What it does has been done, or never will be.
    pub(super) fn is_done(&self, peer: u32, kind: Kind) {
        for count in self.of(peer).counted(kind) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether earlier operations to the peer are under way that one has to come `after`.
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

    /// It has ended.
    pub fn end(&self, peer: u32, context: u64, result: Result<()>) {
        self.ended
            .push((peer, Completion { context, result }, None));
    }

    /// So many gathered ones have.
    pub(super) fn end_gathered(&self, peer: u32, count: u32, context: u64, result: Result<()>) {
        if count == 0 {
            return;
        }
        self.of(peer).own.fetch_sub(count, Ordering::SeqCst);
        self.ended
            .push((peer, Completion { context, result }, Some(count)));
    }

    /// Those to the peer.
    pub(super) fn gathered(&self, peer: u32) -> MutexGuard<'_, Gathered> {
        self.of(peer).gathered.lock()
    }

    /// The peer has some now.
    pub(super) fn gathers(&self, peer: u32) {
        let mut peers = self.gathered.lock();
        peers.push(peer);
        self.gathering.store(peers.len(), Ordering::Release);
    }

    /// A peer that may have some, which is not listed any more.
    pub(super) fn next_gathering(&self) -> Option<u32> {
        if self.gathering.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut peers = self.gathered.lock();
        let peer = peers.pop();
        self.gathering.store(peers.len(), Ordering::Release);
        peer
    }

    /// Operations that have not been reported.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Reports those that have ended.
    pub fn report(&self, sink: &mut dyn FnMut(Completion)) {
        while let Some((peer, completion, count)) = self.ended.pop() {
            for _ in 1..count.unwrap_or(1) {
                sink(completion.clone());
            }
            sink(completion);
            // Only now: who sees that nothing is pending has been told everything.
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
            completions.is_done(3, kind);
            assert!(!completions.hold_up(3, After::all()));
        }
    }
}
