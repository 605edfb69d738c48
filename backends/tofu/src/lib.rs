//! A transport over Tofu interconnects (A64FX), by the machine's own libtofucom.so.
//!
//! TNIs read, write and atomically change memory. A notification is a strongly ordered Put of its word after the data. Other operations go to the
//! target's agent, over streams of Puts into rings. There are no connections: a VCQ reaches all others, and an address is the ID of a VCQ.
//!
//! - [`Tofu`]: the transport; `region`: its memory; `endpoint`: the issue of operations; `unsignaled`: unsignaled writes; `armw`: atomic operations by the
//!   TNI
//! - `net`: streams, their begin (`net/greetings`), completions (`net/reading`), live and lost peers (`net/targets`); `conversation`: a stream to a
//!   peer; `mail`: its messages; `greeting`: the cards and the door for its begin
//! - `lanes`: the VCQs of this process, and completion by notices; `queue`: operations in flight on a VCQ
//! - `edata`: the content of notices
//! - `memory`: STADDs of this process's memory; `blocks`: registered memory in blocks of one size
//! - `gates`: barrier circuits of groups
//! - `library`: libtofucom.so, loaded on demand; `vcq`: a VCQ, the boundary to C; `address`: how peers find a process; `clock`: when to poll
//!
//! ```
//! // Whether this host has what it needs.
//! match unipgas_tofu::probe() {
//!     Ok(()) => println!("it can be used"),
//!     Err(why) => println!("not here: {why}"),
//! }
//! ```

#![warn(missing_docs)]

mod address;
mod armw;
mod backend;
mod blocks;
mod clock;
mod conversation;
mod edata;
mod endpoint;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gates;
mod greeting;
mod lanes;
mod library;
mod mail;
mod memory;
mod net;
mod queue;
mod region;
mod transport;
mod unsignaled;
mod vcq;

pub use backend::BACKEND;
pub use transport::{Tofu, functions, probe};
