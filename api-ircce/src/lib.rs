//! RCCE V1.0.13 and iRCCE 2.0 on the unipgas engine, in C ([`ffi`], the headers in `include/`) and in Rust ([`Ue`]).
//!
//! This crate translates: message-passing buffers (MPBs), flags, locks, registers and communicators to the engine's regions, notices,
//! atomics and groups, and its errors to return codes. Whatever moves bytes or waits lives in `unipgas-core`. "Manual" is the iRCCE
//! manual, version 2.0.

mod air;
mod collective;
pub mod comm;
pub mod environment;
mod extents;
pub mod ffi;
pub mod flag;
pub mod launch;
mod lock;
pub mod message;
pub mod mpb;
pub mod power;
pub mod process;
pub mod request;
mod shared;
pub mod status;
mod through_mpb;

pub use collective::Reduction;
pub use comm::{Comm, Communicator};
pub use environment::current;
pub use flag::Flag;
pub use message::Source;
pub use mpb::Place;
pub use process::Ue;
pub use status::{Code, Failure, Result};
pub use through_mpb::Channel;
