//! GASPI 17.1 on the unipgas engine, in C ([`ffi`], the headers in `include/`) and in Rust ([`safe`]).
//!
//! This crate translates names of segments, queues, groups and notifications to regions, endpoints, groups and words of the engine. It
//! translates errors of the engine to return codes. `unipgas-core` moves the bytes and waits.
//!
//! [`GaspiProcess`] has the procedures of C, with segment names, offsets and milliseconds. Both interfaces use it. Rust programs should use
//! [`safe`].

mod affinity;
pub mod atomics;
mod closed;
pub mod config;
mod environment;
mod explain;
pub mod ffi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod group;
mod interface;
mod links;
pub mod lowlevel;
mod notification;
pub mod passive;
pub mod process;
mod queue;
pub mod queue_group;
pub mod reduce;
pub mod safe;
pub mod segment;
pub mod statistics;
pub mod status;
pub mod threads;
pub mod transfer;
mod watch;

pub use config::Config;
pub use environment::{Current, process as current};
pub use interface::INTERFACE;
pub use process::{GROUP_ALL, GaspiProcess};
pub use reduce::{Datatype, ReductionOperation};
pub use status::{Result, Status};
