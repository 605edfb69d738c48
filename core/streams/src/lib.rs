//! Streams with an agent, for networks that carry bytes in order, but have no remote memory access, or not for all operations.
//!
//! Operations become [`Request`](unipgas_engine::agent::Request)s. A [`Stream`] carries them to the peer, and its agent executes them. They end with its answers. A
//! backend implements the streams and their progress ([`Network`]). This module has the rest: served peers, requests and their answers, order, imports and
//! releases, and the death and leave of peers. A network posts the operations that it executes itself among the requests ([`NetworkOp`]). Order and completion
//! include both kinds.
//!
//! - [`Network`], [`Stream`]: implemented by a backend. [`Faults`]: injected by tests
//! - [`StreamBackend`]: a backend over streams, and [`StreamTransport`] its `Transport`
//! - [`StreamNode`]: the state that all streams of a process share. Its agent serves guests and hears hosts (`agent`, `inbound_peer`). [`Link`]: the stream to a peer
//! - [`Requests`]: a channel of requests and of the network's own operations. `postponed`: operations that wait. `unsignaled`: operations that one later operation confirms
//! - [`Registration`]: memory that peers may import
//! - [`Operands`]: the names of registered memory in operations. [`Departed`]: processes that have gone
//! - [`StreamState`]: the state of a stream that the network opens by itself
//! - [`greeting`], [`envelope`]: the first bytes of a stream, and the bytes before each frame

mod agent;
mod channel;
mod completion;
mod departed;
pub mod envelope;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod greeting;
mod heap;
mod inbound_peer;
mod issue;
mod landing;
mod link;
mod network;
mod numbered;
mod operands;
mod outgoing;
mod own;
mod polls;
mod postponed;
mod registration;
mod release;
mod stream_node;
mod stream_state;
mod stream_transport;
#[cfg(test)]
mod tests;
mod timer;
mod unsignaled;

pub use completion::Completions;
pub use departed::Departed;
pub use issue::{Issue, Requests};
pub use link::Link;
pub use network::{
    Accepted, After, Begun, Faults, Network, Order, ProgressEvents, Stream, StreamEnded,
    TransitState, pull_from,
};
pub use operands::{Operand, Operands};
pub use own::{NetworkOp, Ticket};
pub use registration::{OwnPart, Registration};
pub use stream_node::StreamNode;
pub use stream_state::StreamState;
pub use stream_transport::{EventReceiver, StreamBackend, StreamTransport, taken};
