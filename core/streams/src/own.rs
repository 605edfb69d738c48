//! Operations that a network executes itself, among requests.

use std::sync::Arc;

use super::link::Link;
use unipgas_base::Result;

/// An operation of the network's own, in progress. It ends by [`end`](Ticket::end), or when the peer is lost.
pub struct Ticket {
    pub(super) link: Arc<Link>,
    pub(super) number: u64,
}

impl Ticket {
    /// Ends the operation. The network no longer uses its memory. False: it had ended before, because the peer was lost. Any thread may call. A poll reports
    /// the completion. The thread that makes progress then reports [`ProgressEvents::ended`](super::ProgressEvents::ended): other operations may wait for this one.
    pub fn end(self, result: Result<()>) -> bool {
        self.link.end_own(self.number, result)
    }

    /// Ends the operation with success. `land` first writes the data that was read. If the operation had ended before, `land` is not called: the memory may
    /// have another user.
    pub fn end_with(self, land: impl FnOnce()) -> bool {
        self.link.end_own_with(self.number, land)
    }

    /// The peer.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

/// An operation of the network's own. It may have to wait before it leaves.
pub trait NetworkOp: Send {
    /// Hands the operation to the network, without a wait. Errors: [`Error::NotNow`](unipgas_base::Error::NotNow) if the network has no room now; another try follows
    /// when an operation has [ended](super::ProgressEvents::ended). Other errors end the operation. The ticket is invalid after an error.
    fn post(&mut self, ticket: Ticket) -> Result<()>;
}
