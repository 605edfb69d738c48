//! A transport over Tofu interconnects (A64FX), by the machine's own libtofucom.so.
//!
//! TNIs read, write and atomically change memory by themselves; a notification is a strongly ordered Put of its word after the data. Everything else
//! goes to the target's agent, over streams that are made of Puts into rings. Nothing is connected: a VCQ reaches every other one, and an address is the ID of
//! one.
//!
//! - [`Tofu`]: this process's place; `region`: its memory; `endpoint`: the issue of operations; `quick`: what is posted with the least that is
//!   needed; `armw`: atomic operations by the TNI
//! - `net`: streams, how they begin (`net/greetings`), what comes of what has been posted (`net/reading`), who is reached and who is lost (`net/targets`);
//!   `conversation`: a stream to a peer; `mail`: its messages; `greeting`: the cards and the door by which it begins
//! - `lanes`: the VCQs of this process, and what ends with the notices that come there; `queue`: what is under way by one
//! - `edata`: what notices say of it
//! - `memory`: what VCQs call memory of this process; `blocks`: registered memory in pieces of one size
//! - `gates`: circuits in which groups meet
//! - `library`: libtofucom.so, loaded when it is needed; `vcq`: a VCQ, where C ends; `address`: how a process is found; `clock`: when to look
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
mod blocks;
mod clock;
mod conversation;
mod edata;
mod endpoint;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gates;
mod greeting;
mod lanes;
mod library;
mod mail;
mod memory;
mod net;
mod queue;
mod quick;
mod region;
mod transport;
mod vcq;

pub use transport::{Tofu, functions, probe};
