//! A libfabric provider on the unipgas engine ([`ffi`]), and the same objects in Rust.
//!
//! This crate maps domains, address vectors, endpoints, memory keys, completion queues and counters to the engine's endpoints, regions,
//! key rings, inboxes and mailboxes. Only the initiator acts on remote memory: the target need not call the library. The manual pages are
//! of libfabric 1.8 (`fi_atomic(3)` and its neighbours).
//!
//! ```
//! use std::sync::Arc;
//! use unipgas_core::Engine;
//! use unipgas_core::loopback::{Loopback, LoopbackNet};
//! use unipgas_libfabric::completion::Wait;
//! use unipgas_libfabric::sys::FI_RMA;
//! use unipgas_libfabric::{AddressVector, CompletionQueue, Domain, DomainOptions, Endpoint, EndpointOptions};
//!
//! let net = Arc::new(LoopbackNet::default());
//! let engine = Arc::new(Engine::new(vec![Arc::new(Loopback::join(&net))])?);
//! let domain = Domain::on(engine, DomainOptions::default())?;
//! let av = Arc::new(AddressVector::new(&domain));
//! let queue = CompletionQueue::new(&domain, 0, Wait::Call)?;
//! let options = EndpointOptions { caps: FI_RMA, ..EndpointOptions::default() };
//! let endpoint = Endpoint::new(&domain, options)?;
//! endpoint.bind_av(&av)?;
//! endpoint.bind_queue(&queue, true, true, false)?;
//! endpoint.enable()?;
//! // Who has this name reaches it.
//! println!("{}", endpoint.called());
//! endpoint.detach();
//! # Ok::<(), unipgas_libfabric::Errno>(())
//! ```

pub mod atomics;
pub mod av;
pub mod collectives;
pub mod completion;
pub mod counter;
pub mod domain;
pub mod endpoint;
mod fast_path;
pub mod ffi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod interface;
pub mod memory;
pub mod messages;
pub mod name;
pub mod operation;
pub mod process;
pub mod rma;
pub mod service;
mod state;
pub mod status;
mod target;
mod trigger;
mod waits;

pub use av::AddressVector;
pub use collectives::{AvSet, Collective};
pub use completion::{CompletionQueue, CqEntry, CqErrorEntry};
pub use counter::Counter;
pub use domain::{Domain, DomainOptions};
pub use endpoint::{Endpoint, EndpointOptions};
pub use interface::INTERFACE;
pub use memory::MemoryRegion;
pub use name::{Called, EndpointName};
pub use service::{Server, ServiceName};
pub use status::{Errno, Result};
pub use unipgas_libfabric_sys as sys;
