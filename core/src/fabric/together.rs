//! Operations that leave together: by as few calls of their network as can be. Whoever waits, on any thread, lets leave what is held meanwhile.

use crate::endpoint::Endpoint;
use crate::region::RemoteRegion;
use crate::transport::Channel;

/// Several operations to one peer, which leave together when this is dropped.
pub struct Together<'a> {
    channel: &'a dyn Channel,
    to: &'a RemoteRegion,
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        self.channel.let_go(self.to, false);
    }
}

/// Whether both belong to one peer.
fn is_with(one: &RemoteRegion, other: &RemoteRegion) -> bool {
    one.route() == other.route() && one.parts().peer == other.parts().peer
}

impl Endpoint {
    /// What is posted to the owner of `to` while this lives leaves by as few calls of its network as can be.
    pub fn together<'a>(&'a self, to: &'a RemoteRegion) -> Together<'a> {
        let channel = self.channel(to);
        channel.hold(to);
        Together { channel, to }
    }
}

/// Operations of one call to several peers: those to each leave together when this is dropped.
#[derive(Default)]
pub(crate) struct Several<'a>(Vec<Together<'a>>);

impl<'a> Several<'a> {
    /// There are some to the owner of `to`.
    pub fn with(&mut self, endpoint: &'a Endpoint, to: &'a RemoteRegion) {
        // Mostly the last one again.
        if !self.0.iter().rev().any(|known| is_with(known.to, to)) {
            self.0.push(endpoint.together(to));
        }
    }
}

/// Calls of which each may promise another one: what is posted with the promise stays until something is posted without, or anybody waits.
#[derive(Default)]
pub struct Staying {
    /// For whom there is a call now.
    now: Option<RemoteRegion>,
    stayed: Vec<RemoteRegion>,
}

impl Staying {
    /// Whether anything may have stayed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.stayed.is_empty()
    }

    /// Operations to the owner of `to` are posted, until the [end](Staying::end) of the call.
    pub fn begin(&mut self, endpoint: &Endpoint, to: RemoteRegion) {
        self.let_go(endpoint, false);
        endpoint.channel(&to).hold(&to);
        self.now = Some(to);
    }

    /// They have been. `more` is promised; otherwise all leaves that has stayed.
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
        endpoint.channel(&to).let_go(&to, more);
        // Where peers take turns one is there again and again, which costs little.
        if more && !self.stayed.last().is_some_and(|last| is_with(last, &to)) {
            self.stayed.push(to);
        }
    }

    /// No more comes.
    pub fn leave(&mut self, endpoint: &Endpoint) {
        for to in self.stayed.drain(..) {
            drop(endpoint.together(&to));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::inbox::Record;
    use crate::op::{
        AtomicRequest, Completion, Flags, Inbox, Local, Notice, Outcome, Remote, Reply,
    };
    use crate::region::{RemoteParts, Rights};
    use crate::{Error, Result};

    /// Tells to which peer a call was made, and what it said.
    struct Told(Arc<Mutex<Vec<(u32, &'static str)>>>);

    impl Told {
        fn say(&self, to: &RemoteRegion, what: &'static str) {
            self.0.lock().push((to.parts().peer, what));
        }
    }

    impl Channel for Told {
        fn hold(&self, to: &RemoteRegion) {
            self.say(to, "holds");
        }

        fn let_go(&self, to: &RemoteRegion, more: bool) {
            self.say(to, if more { "stays" } else { "leaves" });
        }

        unsafe fn put(
            &self,
            _: Local,
            _: Remote<'_>,
            _: usize,
            _: Flags,
            _: u64,
        ) -> Result<Outcome> {
            Err(Error::Unsupported)
        }

        unsafe fn get(
            &self,
            _: Local,
            _: Remote<'_>,
            _: usize,
            _: Flags,
            _: u64,
        ) -> Result<Outcome> {
            Err(Error::Unsupported)
        }

        fn notify(&self, _: Notice<'_>, _: Flags, _: u64) -> Result<Outcome> {
            Err(Error::Unsupported)
        }

        unsafe fn put_notify(
            &self,
            _: Local,
            _: Remote<'_>,
            _: usize,
            _: Notice<'_>,
            _: Flags,
            _: u64,
        ) -> Result<Outcome> {
            Err(Error::Unsupported)
        }

        unsafe fn atomic(
            &self,
            _: Remote<'_>,
            _: &AtomicRequest,
            _: u64,
            _: Flags,
            _: u64,
        ) -> Result<Outcome> {
            Err(Error::Unsupported)
        }

        fn deliver(&self, _: Inbox<'_>, _: Record, _: Flags, _: u64) -> Result<Outcome> {
            Err(Error::Unsupported)
        }

        fn active_message(
            &self,
            _: Remote<'_>,
            _: &[u8],
            _: Reply,
            _: Flags,
            _: u64,
        ) -> Result<Outcome> {
            Err(Error::Unsupported)
        }

        fn poll(&self, _: &mut dyn FnMut(Completion)) {}

        fn pending(&self) -> usize {
            0
        }
    }

    fn region(peer: u32) -> RemoteRegion {
        let parts = RemoteParts {
            base: std::ptr::null_mut(),
            len: 8,
            generation: std::ptr::null(),
            expected: 0,
            rights: Rights::FULL,
            bell: std::ptr::null(),
            locks: std::ptr::null(),
            peer,
            detail: [0; 4],
        };
        // SAFETY:
        // - all is null.
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
            let mut staying = Staying::default();
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
