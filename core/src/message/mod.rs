//! Two-sided messages: sends and receives that are matched by source, context and tag, over one-sided operations.
//!
//! A [`Mailbox`] is registered memory that peers put lines into, one lane for each peer: a line is a cache line that announces a message
//! and carries its first 32 bytes. Longer payloads travel through the lane's data ring; yet longer ones stay where they are until
//! they are matched, and are then fetched by the receiver, or streamed by a sender that waits for it. So there are at most two
//! copies, and none that waits for the other side's memory.
//!
//! Matching is the receiver's work. Messages of one peer and context that a receive could take are taken in the order of their sending.
//! Nothing here waits; [`Messenger`] does.

mod abandon;
mod fast_path;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod layout;
mod mailbox;
mod messenger;
mod outgoing;
mod pool;
mod receiving;
mod sending;
mod several;
mod staging;
mod state;
mod window;

pub use layout::Shape;
pub use mailbox::{Mailbox, PeerMailbox, Peers};
pub use messenger::{Lane, Messenger, Needs};
pub use pool::{Drawn, Pool, PoolTicket, Wanted};
pub use sending::Multicast;
pub use state::{
    ANY_TAG, APART, Envelope, MARK, Mode, Pattern, Precedence, ReceiveTicket, Received, SendTicket,
    Share,
};
