//! A transport over InfiniBand verbs: adapters of InfiniBand and RoCE.
//!
//! The device reads and writes memory. A notification is a write of its word after the data, by one doorbell. Its immediate wakes sleepers. Other
//! operations go to the target's agent, over streams of messages. Each stream has a reliable connection. All accesses to the peer's memory use it too,
//! so they are in order.
//!
//! - [`Verbs`]: the transport; `region`: its memory; `endpoint`: the issue of operations
//! - `net`: connections, and their completions (`net/reading`); `connection`: a stream to a peer; `posting`: its send queue; `unsignaled`: unsignaled writes;
//!   `staged`: work requests that share a doorbell; `native`: atomic operations by the device
//! - `desk`: the begin of connections (`desk/contact`); `wire`: its messages, and the immediates; `address`: how peers find a process
//! - `receive`, `buffers`: messages that arrive and leave
//! - `choice`: device and port; `library`: libibverbs.so.1, loaded on demand; `device`, `queues`: its objects, the boundary to C
//! - [`counts`]: counters of device work
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
mod backend;
mod buffers;
mod choice;
mod connection;
pub mod counts;
mod desk;
mod device;
mod endpoint;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod library;
mod native;
mod net;
mod posting;
mod queues;
mod receive;
mod region;
mod staged;
mod transport;
mod unsignaled;
mod wire;

pub use backend::BACKEND;
pub use transport::{Verbs, probe};
