//! A transport over libfabric, and so over any network that it has a provider for.
//!
//! Memory is read and written by the provider (fi_rma(3)), with a word for the target's completion queue where a notification goes along.
//! Everything else goes to the target's agent, over streams that are made of messages (fi_msg(3)).
//!
//! - [`Ofi`]: this process's place; `region` its memory; `endpoint` the issue of operations; `word`: notifications
//! - `gathered`: operations whose ends are asked for together
//! - `library`: libfabric.so.1, loaded when it is needed; `choice`: which provider; `fabric`: its objects, where C ends
//! - `net`: messages, and what comes of operations; `buffers`, `operations`: what the provider has meanwhile
//! - `conversation`: a stream to a peer; `address`, `wire`: how it begins; `contact`: what keeps it from that; `names`: whom it is with;
//!   `lifeline`: whether somebody is there
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
mod buffers;
pub mod choice;
mod contact;
mod conversation;
mod endpoint;
mod fabric;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gathered;
#[expect(missing_docs, reason = "functions of C, named as there")]
pub mod library;
mod lifeline;
mod names;
mod net;
mod operations;
mod region;
mod riders;
mod transport;
mod wire;
mod word;

pub use transport::{Ofi, probe};

#[cfg(test)]
mod tests;
