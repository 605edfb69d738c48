//! A transport between processes that share no memory with each other.
//!
//! Requests and answers go over streams (Unix sockets on one host, TCP between hosts); the target's agent carries them out, and every
//! operation completes later. It is an instrument of the tests: what works over it needs neither mapped memory nor one host. It is
//! not meant to be fast, and no network for users.
//!
//! - [`Opaque`]: this process's place; `region` its memory; `endpoint` the issue of operations; `completion` their ends
//! - [`Options`]: what it is to do without, or badly, so that the tests see the engine make up for it
//! - `stream`: sockets, addresses and the secret without which nobody gets an answer; `pulse`: whether the hosts of peers answer
//! - `release`: the end of a registration that peers know
//! - `link`: the stream to a peer, with what has been asked there; `envelope`: what goes ahead of each frame; `agent`: the thread that serves, and
//!   takes answers; `window`: the order in which it serves

#![warn(missing_docs)]

mod agent;
mod completion;
mod endpoint;
mod envelope;
mod link;
mod options;
mod pulse;
mod region;
mod release;
mod stream;
mod transport;
mod window;

pub use options::Options;
pub use transport::{Opaque, probe};

#[cfg(test)]
mod tests;
