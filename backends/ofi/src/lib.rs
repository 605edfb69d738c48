//! A transport over libfabric, and so over any network with a libfabric provider.
//!
//! The provider reads and writes memory (fi_rma(3)). A notification goes with a write as a word for the target's completion queue. The target's agent
//! carries out all other operations, by streams made of messages (fi_msg(3)).
//!
//! - [`Ofi`]: the transport; `region`: registered memory; `endpoint`: issue of operations; `word`: notifications
//! - `confirm_target`: unsignaled writes and their confirmation
//! - `library`: libfabric.so.1, loaded on demand; `choice`: selection of the provider; `fabric`: its objects, and all calls of C
//! - `net`: messages and completions; `buffers`, `operations`: memory that the provider uses
//! - `conversation`: a stream to a peer; `address`, `wire`: its beginning; `contact`: reasons for its failure; `names`: peers in the address vector;
//!   `liveness_listener`: detection of dead peers; `piggyback`: pieces of streams that are held back
//!
//! ```
//! // Whether this host has what it needs.
//! match unipgas_ofi::probe(true) {
//!     Ok(()) => println!("it can be used"),
//!     Err(why) => println!("not here: {why}"),
//! }
//! ```

#![warn(missing_docs)]

mod address;
mod backend;
mod buffers;
pub mod choice;
mod confirm_target;
mod contact;
mod conversation;
mod endpoint;
mod fabric;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[expect(missing_docs, reason = "functions of C, named as there")]
pub mod library;
mod liveness_listener;
mod names;
mod net;
mod operations;
mod piggyback;
mod region;
mod transport;
mod wire;
mod word;

pub use backend::BACKEND;
pub use transport::{Ofi, probe};

#[cfg(test)]
mod tests;
