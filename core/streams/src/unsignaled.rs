//! Unsignaled operations of a network. Each costs the network one call; a later operation confirms all of them.

use std::sync::atomic::Ordering;

use super::completion::Kind;
use super::issue::Issue;
use super::link::{Ends, Waiting};
use super::network::After;
use super::own::{NetworkOp, Ticket};
use super::registration::{Imported, imported};
use unipgas_base::{Error, Result};
use unipgas_engine::op::Outcome;
use unipgas_engine::region::RemoteRegion;

/// Maximum of pending gathered operations to a peer. They use no memory beside their count.
const MOST: usize = 4096;
/// Attempts of a write, with progress in between, before it is deferred.
const TRIES: usize = 16;
/// Writes per poll.
const SPELL: u32 = 16;
const KIND: Kind = Kind {
    own: true,
    reads: false,
};

impl Drop for Issue {
    fn drop(&mut self) {
        // These operations have no user any more.
        while let Some(peer) = self.completions().next_gathering() {
            if let Some((link, number)) = std::mem::take(&mut *self.completions().gathered(peer)).of
            {
                link.forget_own(number);
            }
        }
    }
}

impl Issue {
    /// Posts an unsignaled write of the network's own, by `post`, to the peer with the network's name `to`. `post` takes the bytes; the write is
    /// [gathered](unipgas_engine::op::Flags::GATHERED). Such writes of a channel to a peer become visible in order, and before later requests. Makes progress
    /// while there is no room, and at times if `polls`. `None`: the write has to wait, or the gathered writes have another context; post it as an own
    /// operation. `acknowledge`: as for [`ask_for_gathered`](Issue::ask_for_gathered). Errors: as for [`post_own`](Issue::post_own).
    #[inline]
    pub fn gather<O: NetworkOp>(
        &self,
        region: &RemoteRegion,
        (to, after, context): (u64, After, u64),
        post: impl Fn() -> Result<()>,
        acknowledge: impl Fn(u64) -> O,
        polls: impl FnOnce() -> bool,
    ) -> Option<Result<Outcome>> {
        for _ in 0..TRIES {
            let count = match self.try_gather(region, to, after, context, &post)? {
                Err(Error::NotNow) => {
                    self.make_room_by(&acknowledge);
                    continue;
                }
                Err(error) => return Some(Err(error)),
                Ok(count) => count,
            };
            if count >= self.most_gathered {
                self.ask_for_gathered(acknowledge);
            }
            if count.is_multiple_of(SPELL) && polls() {
                // A thread that posts often also polls, since wakes of the progress thread cost more.
                self.make_room();
            }
            return Some(Ok(Outcome::Pending));
        }
        None
    }

    #[cold]
    fn make_room_by<O: NetworkOp>(&self, acknowledge: impl Fn(u64) -> O) {
        self.ask_for_gathered(acknowledge);
        self.make_room();
    }

    /// One try of [`gather`](Issue::gather). Returns the number of gathered writes. Errors: also [`Error::NotNow`].
    pub(super) fn try_gather(
        &self,
        region: &RemoteRegion,
        to: u64,
        after: After,
        context: u64,
        post: impl FnOnce() -> Result<()>,
    ) -> Option<Result<u32>> {
        let Some(imported) = imported(region) else {
            return Some(Err(Error::PeerDead));
        };
        let link = &imported.link;
        let peer = region.parts().peer;
        if self.has_late() || self.is_held_up(link, peer, after) {
            return None;
        }
        let completions = self.completions();
        if let Err(full) = completions.begin_gathered(peer, MOST) {
            return Some(Err(full));
        }
        let gathered = self.gather_to(imported, peer, (to, context), post);
        if !matches!(gathered, Ok(Some(_))) {
            completions.take_back_gathered(peer, 1);
        }
        gathered.transpose()
    }

    fn gather_to(
        &self,
        imported: &Imported,
        peer: u32,
        (to, context): (u64, u64),
        post: impl FnOnce() -> Result<()>,
    ) -> Result<Option<u32>> {
        let (completions, link) = (self.completions(), &imported.link);
        link.check()?;
        // The lock is held until the operation has left: a confirmation posted meanwhile would not cover it.
        let mut gathered = completions.gathered(peer);
        if imported.current.load(Ordering::Acquire) == 0 {
            return Err(Error::StaleRegion);
        }
        let first = gathered.of.is_none();
        if !first && gathered.context != context {
            return Ok(None);
        }
        if first {
            self.node.count(link);
            let waiting = Waiting {
                completions: completions.clone(),
                peer,
                context,
                kind: KIND,
                landing: None,
                ends: Ends::Gathering,
            };
            let number = link.begin_own(waiting, &imported.current)?;
            gathered.of = Some((link.clone(), number));
            gathered.to = to;
            gathered.context = context;
        }
        completions.leaves(peer, KIND);
        if let Err(error) = post() {
            completions.mark_done(peer, KIND);
            if gathered.count == 0
                && let Some((link, number)) = gathered.of.take()
            {
                link.forget_own(number);
            }
            return Err(error);
        }
        gathered.count += 1;
        let count = gathered.count;
        drop(gathered);
        if first {
            completions.gathers(peer);
        }
        Ok(Some(count))
    }

    /// Asks for the completion of all gathered writes. `acknowledge` makes the operation for a peer. It must end when all earlier writes are visible there.
    pub fn ask_for_gathered<O: NetworkOp>(&self, acknowledge: impl Fn(u64) -> O) {
        while let Some(peer) = self.completions().next_gathering() {
            if !self.ask_for_those_to(peer, &acknowledge) {
                // Another call asks again.
                self.completions().gathers(peer);
                break;
            }
        }
    }

    /// False: the network has no room now.
    fn ask_for_those_to<O: NetworkOp>(&self, peer: u32, acknowledge: impl Fn(u64) -> O) -> bool {
        let mut gathered = self.completions().gathered(peer);
        let Some((link, number)) = gathered.of.take() else {
            return true;
        };
        if !link.ends_with(number, Ends::Gathered(gathered.count)) {
            // The stream has ended. The thread that closes it ends the writes too.
            gathered.of = Some((link, number));
            return true;
        }
        let ticket = Ticket {
            link: link.clone(),
            number,
        };
        match acknowledge(gathered.to).post(ticket) {
            Ok(()) => gathered.count = 0,
            Err(Error::NotNow) if link.ends_with(number, Ends::Gathering) => {
                gathered.of = Some((link, number));
                return false;
            }
            // The close has ended them.
            Err(Error::NotNow) => gathered.count = 0,
            Err(error) => {
                gathered.count = 0;
                link.end_own(number, Err(error));
            }
        }
        true
    }
}
