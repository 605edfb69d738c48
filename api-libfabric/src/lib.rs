//! A libfabric provider on the unipgas engine ([`ffi`]), and the same objects in Rust.
//!
//! This crate translates: domains, address vectors, endpoints, memory keys, completion queues and counters to the engine's
//! endpoints, regions, key rings, inboxes and mailboxes. Remote memory is reached by the initiator alone: a target that never calls
//! the library serves all the same. The pages are those of libfabric 1.8 (`fi_atomic(3)` and its neighbours).

pub mod atomics;
pub mod av;
pub mod completion;
pub mod counter;
pub mod domain;
pub mod endpoint;
mod fast_path;
pub mod ffi;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod memory;
pub mod messages;
pub mod name;
pub mod operation;
pub mod process;
pub mod rma;
pub mod service;
mod state;
pub mod status;
mod tally;
mod target;
mod trigger;
mod watcher;

pub use av::AddressVector;
pub use completion::{CompletionQueue, Entry, Failure};
pub use counter::Counter;
pub use domain::{Domain, DomainOptions};
pub use endpoint::{Endpoint, EndpointOptions};
pub use memory::MemoryRegion;
pub use name::{Called, Name};
pub use service::{Server, Service};
pub use status::{Errno, Result};
pub use unipgas_libfabric_sys as sys;
