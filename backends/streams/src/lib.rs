//! A transport between processes that share no memory with each other.
//!
//! Requests and answers go over streams: Unix sockets on one host, TCP between hosts. The target's agent carries them out, and all operations
//! complete later. Programs that run over it need neither mapped memory nor a common host. It serves tests, and reaches hosts without libfabric. It is slow.
//!
//! The engine ([`unipgas_core::streams`]) implements requests, answers and their state. This crate contains:
//!
//! - [`SocketStreams`]: the transport; `network`: its sockets
//! - [`StreamsOptions`]: restrictions and faults, so that tests see the engine compensate for them; `window`: the order of execution
//! - `stream`: sockets and addresses; `pulse`: detection of dead hosts
//!
//! ```
//! // Whether this host has what it needs.
//! match unipgas_streams_backend::probe() {
//!     Ok(()) => println!("it can be used"),
//!     Err(why) => println!("not here: {why}"),
//! }
//! ```

#![warn(missing_docs)]

mod backend;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod network;
mod options;
mod pulse;
mod stream;
mod transport;
mod window;

pub use backend::BACKEND;
pub use network::SocketStreams;
pub use options::StreamsOptions;
pub use transport::probe;

#[cfg(test)]
mod tests;
