//! A transport between processes that share no memory with each other.
//!
//! Requests and answers go over streams (Unix sockets on one host, TCP between hosts); the target's agent carries them out, and every
//! operation completes later. It is an instrument of the tests: what works over it needs neither mapped memory nor one host. It is
//! not meant to be fast, and no network for users.
//!
//! The requests, their answers and all that is kept of both are the engine's ([`unipgas_core::streams`]). Here are:
//!
//! - [`Opaque`]: this process's place; `network`: what it is made of
//! - [`Options`]: what it is to do without, or badly, so that the tests see the engine make up for it; `window`: the order in which it serves
//! - `stream`: sockets and addresses; `pulse`: whether the hosts of peers answer
//!
//! ```
//! // Whether this host has what it needs.
//! match unipgas_opaque::probe() {
//!     Ok(()) => println!("it can be used"),
//!     Err(why) => println!("not here: {why}"),
//! }
//! ```

#![warn(missing_docs)]

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod network;
mod options;
mod pulse;
mod stream;
mod transport;
mod window;

pub use options::Options;
pub use transport::{Opaque, probe};

#[cfg(test)]
mod tests;
