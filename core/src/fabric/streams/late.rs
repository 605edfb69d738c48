//! Operations of a channel that wait for earlier ones to the same peer, and what is posted there meanwhile behind them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use parking_lot::Mutex;

use super::issue::Put;
use super::landing::Landing;
use super::link::{Current, Link};
use super::network::After;
use super::own::Own;
use crate::Flags;

/// An operation that waits.
pub(super) struct Late {
    /// Nobody else gets the peer's number meanwhile.
    pub link: Awaited,
    pub what: What,
    pub after: After,
    pub context: u64,
}

/// The link of an operation that waits, which knows that.
pub(super) struct Awaited(Arc<Link>);

impl Awaited {
    pub fn new(link: &Arc<Link>) -> Self {
        link.late.fetch_add(1, Ordering::Relaxed);
        Awaited(link.clone())
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.late.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Awaited {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.0
    }
}

pub(super) enum What {
    /// A request's frame, and where what is answered goes.
    Frame(Vec<u8>, Flags, Option<Landing>),
    /// A put, whose source may be what is read.
    Put(Put),
    /// The network's own on a region that is registered until the word says otherwise; whether it reads.
    Own(Box<dyn Own>, bool, Current),
}

/// Those of one channel, by peers; of those that have some.
pub(super) struct Queue {
    late: Mutex<BTreeMap<u32, VecDeque<Late>>>,
    /// Peers that have some; also while one may get some.
    peers: AtomicUsize,
    /// Channels of the process that have such peers.
    channels: Arc<AtomicUsize>,
}

impl Queue {
    /// Of a channel of the process that counts in `channels` which have some, or may get some.
    pub fn new(channels: &Arc<AtomicUsize>) -> Self {
        Queue {
            late: Mutex::default(),
            peers: AtomicUsize::new(0),
            channels: channels.clone(),
        }
    }

    /// For who has the lock: so many peers have some.
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

    /// Whether there are none, and none is being sent.
    pub fn is_empty(&self) -> bool {
        self.peers.load(Ordering::Acquire) == 0
    }

    /// Keeps what `keep` gives if others of that peer wait, or if it is `held_up`. False: it may leave.
    pub fn keep(
        &self,
        peer: u32,
        held_up: impl Fn() -> bool,
        keep: impl FnOnce() -> crate::Result<Late>,
    ) -> crate::Result<bool> {
        let mut late = self.late.lock();
        // Who ends what holds it up looks for late ones afterwards.
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

    /// Sends those that wait no more; whoever sees that first does it. `send` gives one back that there is no room for now.
    pub fn send(
        &self,
        mut send: impl FnMut(u32, Late) -> Result<(), Late>,
        held_up: impl Fn(u32, &Late) -> bool,
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
