//! Operations that a network carries out by itself, among those that are requests.

use std::sync::Arc;

use super::link::Link;
use crate::Result;

/// Names an operation of the network's own that is under way. Without [`end`](Ticket::end) it ends when the peer is lost.
pub struct Ticket {
    pub(super) link: Arc<Link>,
    pub(super) number: u64,
}

impl Ticket {
    /// It has ended, and the network touches nothing of it any more. False: it had ended before, since the peer was lost. From any thread; whoever polls
    /// reports it. Who moves the network on says so afterwards ([`News::ended`](super::News::ended)), since others may wait for it.
    pub fn end(self, result: Result<()>) -> bool {
        self.link.end_own(self.number, result)
    }

    /// As [`end`](Ticket::end) of what has been done; `land` writes first what it has read, if nobody has been told of another end: then the place may be somebody else's.
    pub fn end_with(self, land: impl FnOnce()) -> bool {
        self.link.end_own_with(self.number, land)
    }

    /// The peer.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

/// An operation of the network's own, which may have to wait before it leaves.
pub trait Own: Send {
    /// Hands it to the network; never waits. Errors: [`Error::NotNow`](crate::Error::NotNow) where the network has no room now, and it is tried again when
    /// something has [ended](super::News::ended); others end it. The ticket is worth nothing then.
    fn post(&mut self, ticket: Ticket) -> Result<()>;
}
