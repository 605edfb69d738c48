//! Two-sided messages: sends and receives that are matched by source, context and tag, over one-sided operations.
//!
//! A [`Mailbox`] is registered memory with a lane for each peer. Peers put lines into their lanes. A line is a cache line that announces a message and carries
//! its first 32 bytes. Longer payloads go through the data ring of the lane. Still longer payloads stay with the sender until the message is matched. Then
//! the receiver fetches them, or a waiting sender streams them. A payload is copied at most twice, and no copy waits for memory of the peer.
//!
//! The receiver matches. It takes messages of one peer and context in the order of their sending. A mailbox never waits.
//!
//! [`Collectives`] are operations of groups of peers, by messages of a mailbox. [`OpenRequests`] are open sends and receives of a caller; sends run in order. An
//! [`MessageInbox`] has receives for several calls that take any message.
//!
//! It depends on `unipgas-base`, `unipgas-engine` and `unipgas-schedule`, and knows no rank and no interface.

mod abandon;
mod collective;
mod fast_path;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod inbox;
mod layout;
mod mailbox;
mod outgoing;
mod pool;
mod receiving;
mod requests;
mod sending;
mod several;
mod staging;
mod state;
mod window;

pub use collective::{
    Collective, CollectiveEnd, CollectiveGroup, CollectivePlan, CollectiveUser, Collectives,
    GroupCalls, GroupMember,
};
pub use inbox::{InboxMessage, MessageInbox};
pub use layout::Shape;
pub use mailbox::{Mailbox, PeerMailbox, Peers};
pub use pool::{Drawn, Pool, PoolTicket, Wanted};
pub use requests::{OpenRequestResult, OpenRequests, RequestEnd, RequestTicket};
pub use sending::Multicast;
pub use state::{
    ANY_TAG, APART, Envelope, MARK, Mode, Pattern, Precedence, ReceiveTicket, Received, SendTicket,
    Share,
};
pub use window::Window;
