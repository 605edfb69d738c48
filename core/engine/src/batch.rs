//! Batches: operations that leave with as few network calls as possible. A wait on any thread sends held-back operations.

use crate::endpoint::Endpoint;
use crate::region::RemoteRegion;
use crate::transport::Channel;

/// A batch of operations to one peer. Its drop sends the rest of them.
pub struct Batch<'a> {
    channel: &'a dyn Channel,
    to: &'a RemoteRegion,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.channel.end_batch(self.to, false);
    }
}

/// Whether both regions belong to one peer, on the same route.
fn is_with(one: &RemoteRegion, other: &RemoteRegion) -> bool {
    one.route() == other.route() && one.parts().peer == other.parts().peer
}

impl Endpoint {
    /// Begins a batch: operations to the owner of `to` leave with as few network calls as possible, until the result is dropped.
    pub fn together<'a>(&'a self, to: &'a RemoteRegion) -> Batch<'a> {
        let channel = self.channel(to);
        channel.begin_batch(to);
        Batch { channel, to }
    }
}

/// Batches of one call with operations to several peers, one batch for each peer. The drop ends them.
#[derive(Default)]
pub struct Several<'a>(Vec<Batch<'a>>);

impl<'a> Several<'a> {
    /// Begins a batch to the owner of `to`, unless there is one.
    pub fn with(&mut self, endpoint: &'a Endpoint, to: &'a RemoteRegion) {
        // The last peer is the most likely one.
        if !self.0.iter().rev().any(|known| is_with(known.to, to)) {
            self.0.push(endpoint.together(to));
        }
    }
}

/// Batches of calls that may promise another call. The network holds back operations with a promise until a call without one, or until a thread waits.
#[derive(Default)]
pub struct MoreBatch {
    /// A region of the current call's peer.
    now: Option<RemoteRegion>,
    stayed: Vec<RemoteRegion>,
}

impl MoreBatch {
    /// Whether no operations have been held back.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.stayed.is_empty()
    }

    /// Begins a call with operations to the owner of `to`. [`end`](MoreBatch::end) ends it.
    pub fn begin(&mut self, endpoint: &Endpoint, to: RemoteRegion) {
        self.let_go(endpoint, false);
        endpoint.channel(&to).begin_batch(&to);
        self.now = Some(to);
    }

    /// Ends the call. `more`: the caller promises another one. Otherwise all held-back operations leave.
    pub fn end(&mut self, endpoint: &Endpoint, more: bool) {
        self.let_go(endpoint, more);
        if !more {
            self.leave(endpoint);
        }
    }

    fn let_go(&mut self, endpoint: &Endpoint, more: bool) {
        let Some(to) = self.now.take() else {
            return;
        };
        endpoint.channel(&to).end_batch(&to, more);
        // Peers that take turns are listed repeatedly, which costs little.
        if more && !self.stayed.last().is_some_and(|last| is_with(last, &to)) {
            self.stayed.push(to);
        }
    }

    /// Sends all held-back operations, as no other call follows.
    pub fn leave(&mut self, endpoint: &Endpoint) {
        for to in self.stayed.drain(..) {
            drop(endpoint.together(&to));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ptr::{null, null_mut};
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::Rights;
    use crate::region::RemoteParts;

    /// Notes each call, and its peer.
    struct Told(Arc<Mutex<Vec<(u32, &'static str)>>>);

    impl Told {
        fn say(&self, to: &RemoteRegion, what: &'static str) {
            self.0.lock().push((to.parts().peer, what));
        }
    }

    impl Channel for Told {
        fn begin_batch(&self, to: &RemoteRegion) {
            self.say(to, "holds");
        }

        fn end_batch(&self, to: &RemoteRegion, more: bool) {
            self.say(to, if more { "stays" } else { "leaves" });
        }
    }

    fn region(peer: u32) -> RemoteRegion {
        let parts = RemoteParts {
            peer,
            ..RemoteParts::here(null_mut(), 8, Rights::FULL, null(), null())
        };
        // SAFETY:
        // - all pointers are null.
        unsafe { RemoteRegion::new(parts, Arc::new(())) }
    }

    type Calls = Vec<(u32, &'static str)>;

    fn told(what: impl FnOnce(&Endpoint, &mut dyn FnMut() -> Calls)) {
        let all = Arc::<Mutex<Calls>>::default();
        let channel: Box<dyn Channel> = Box::new(Told(all.clone()));
        let endpoint = Endpoint::new(Box::new([channel]), None, true, 1, None);
        what(&endpoint, &mut || std::mem::take(&mut *all.lock()));
    }

    #[test]
    fn each_of_several_peers_is_held_once() {
        let peers = [0, 1, 2].map(region);
        told(|endpoint, calls| {
            let mut several = Several::default();
            for nth in [0, 0, 1, 0, 2, 1] {
                several.with(endpoint, &peers[nth]);
            }
            assert_eq!(calls(), [(0, "holds"), (1, "holds"), (2, "holds")]);
            drop(several);
            assert_eq!(calls(), [(0, "leaves"), (1, "leaves"), (2, "leaves")]);
        });
    }

    #[test]
    fn what_has_stayed_leaves_with_the_last_one_whoever_that_is_for() {
        told(|endpoint, calls| {
            let mut staying = MoreBatch::default();
            let mut post = |peer, more| {
                staying.begin(endpoint, region(peer));
                staying.end(endpoint, more);
                staying.is_empty()
            };
            assert!(post(7, false));
            assert_eq!(calls(), [(7, "holds"), (7, "leaves")]);
            assert!(!post(7, true) && !post(7, true) && !post(8, true));
            let held = [7, 7, 8].map(|peer| [(peer, "holds"), (peer, "stays")]);
            assert_eq!(calls(), held.concat());
            assert!(post(9, false));
            let leave = [9, 7, 8].map(|peer| [(peer, "holds"), (peer, "leaves")]);
            assert_eq!(calls(), leave.concat());
        });
    }
}
