//! Late operations: they wait for earlier operations to the same peer, or behind late ones.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use parking_lot::Mutex;

use super::issue::Put;
use super::landing::Landing;
use super::link::{Current, Link};
use super::network::After;
use super::own::NetworkOp;
use unipgas_engine::Flags;

/// An operation that waits.
pub(super) struct PostponedOp {
    /// It keeps the peer's index in use.
    pub link: WaitingLink,
    pub what: What,
    pub after: After,
    pub context: u64,
}

/// The link of a waiting operation, which counts it.
pub(super) struct WaitingLink(Arc<Link>);

impl WaitingLink {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        link.late.fetch_add(1, Ordering::Relaxed);
        WaitingLink(link.clone())
    }
}

impl Drop for WaitingLink {
    fn drop(&mut self) {
        self.0.late.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for WaitingLink {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.0
    }
}

pub(super) enum What {
    /// The frame of a request, its flags, and the destination of the answer.
    Frame(Vec<u8>, Flags, Option<Landing>),
    /// A put. An earlier read may still write to its source.
    Put(Put),
    /// An operation of the network's own, whether it reads, and the validity of its region.
    Own(Box<dyn NetworkOp>, bool, Current),
}

/// The late operations of a channel, by peer. Peers without late operations have no entry.
pub(super) struct Queue {
    late: Mutex<BTreeMap<u32, VecDeque<PostponedOp>>>,
    /// Number of peers with late operations. [`keep`](Queue::keep) raises it before it decides.
    peers: AtomicUsize,
    /// Number of channels of the process with such peers.
    channels: Arc<AtomicUsize>,
}

impl Queue {
    /// `channels`: counts the channels of the process with late operations.
    pub(crate) fn new(channels: &Arc<AtomicUsize>) -> Self {
        Queue {
            late: Mutex::default(),
            peers: AtomicUsize::new(0),
            channels: channels.clone(),
        }
    }

    /// Sets the number of peers. The caller holds the lock.
    fn count(&self, peers: usize) {
        let before = self.peers.load(Ordering::Relaxed);
        if before == 0 && peers > 0 {
            self.channels.fetch_add(1, Ordering::SeqCst);
        }
        self.peers.store(peers, Ordering::SeqCst);
        if before > 0 && peers == 0 {
            self.channels.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether there are no late operations. An operation that is being sent counts.
    pub fn is_empty(&self) -> bool {
        self.peers.load(Ordering::Acquire) == 0
    }

    /// Keeps the operation if others of that peer wait, or if it is `held_up`. False: it may leave.
    pub(crate) fn keep(
        &self,
        peer: u32,
        held_up: impl Fn() -> bool,
        keep: impl FnOnce() -> unipgas_base::Result<PostponedOp>,
    ) -> unipgas_base::Result<bool> {
        let mut late = self.late.lock();
        // A thread that ends an obstacle looks for late operations afterwards. The count comes before the check: one of both threads sees the other.
        self.count(late.len() + 1);
        fence(Ordering::SeqCst);
        let kept = match late.contains_key(&peer) || held_up() {
            false => Ok(false),
            true => keep().map(|what| {
                late.entry(peer).or_default().push_back(what);
                true
            }),
        };
        self.count(late.len());
        kept
    }

    /// Sends the operations that no longer have to wait. Any thread may call. `send` gives an operation back if there is no room for it.
    pub fn send(
        &self,
        mut send: impl FnMut(u32, PostponedOp) -> Result<(), PostponedOp>,
        held_up: impl Fn(u32, &PostponedOp) -> bool,
    ) {
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return;
        }
        let mut late = self.late.lock();
        late.retain(|peer, late| {
            while let Some(next) = late.pop_front() {
                let next = match held_up(*peer, &next) {
                    true => Err(next),
                    false => send(*peer, next),
                };
                if let Err(next) = next {
                    late.push_front(next);
                    break;
                }
            }
            !late.is_empty()
        });
        self.count(late.len());
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.count(0);
    }
}
