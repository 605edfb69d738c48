//! A transport over InfiniBand verbs: adapters of InfiniBand and RoCE.
//!
//! The device reads and writes memory by itself; a notification is a write of its word after that of the data, by one doorbell, with an immediate that wakes
//! whoever sleeps. Everything else goes to the target's agent, over streams that are made of messages. Each stream has a reliable connection, on
//! which all accesses to the peer's memory go, too: so they are in order.
//!
//! - [`Verbs`]: this process's place; `region`: its memory; `endpoint`: the issue of operations
//! - `net`: connections, and what comes of what they have posted (`net/reading`); `connection`: a stream to a peer; `posting`: its send queue; `quick`: what is posted
//!   with the least that is needed; `staged`: what leaves by one doorbell;
//!   `native`: atomic operations by the device
//! - `desk`: how connections begin (`desk/contact`); `wire`: what is said then, and with each message; `address`: how a process is found
//! - `receive`, `buffers`: messages that come and go
//! - `choice`: which device, which port; `library`: libibverbs.so.1, loaded when it is needed; `device`, `queues`: its objects, where C ends
//! - [`counts`]: what the device has been asked to do
//!
//! ```
//! // Whether this host has what it needs.
//! match unipgas_verbs::probe() {
//!     Ok(()) => println!("it can be used"),
//!     Err(why) => println!("not here: {why}"),
//! }
//! ```

#![warn(missing_docs)]

mod address;
mod buffers;
mod choice;
mod connection;
pub mod counts;
mod desk;
mod device;
mod endpoint;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod library;
mod native;
mod net;
mod posting;
mod queues;
mod quick;
mod receive;
mod region;
mod staged;
mod transport;
mod wire;

pub use transport::{Verbs, probe};
