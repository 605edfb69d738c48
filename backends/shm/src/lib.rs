//! The shared-memory backend of unipgas: processes of one node.
//!
//! A process owns a [pool]: one sparse memfd with its control block and the regions that the library allocates. Peers open it through
//! `/proc/<pid>/fd`, map it once, and from then on put, get, notify and use atomics by plain loads, stores and
//! CPU atomics. Memory of the user is adopted in place where that can be proved safe, else reached by the kernel's
//! cross-process copies, with atomics done by the owner's agent.
//!
//! ```no_run
//! use std::sync::Arc;
//! use unipgas_core::{Engine, Rights};
//!
//! // A process that will see about three others on this host.
//! let engine = Engine::new(vec![Arc::new(unipgas_shm::Shm::open(3)?)])?;
//! let memory = engine.allocate(1 << 20, Rights::FULL)?;
//! // PeerTable need both, by whatever way.
//! let told = (engine.address()?, memory.key());
//! # Ok::<(), unipgas_core::Error>(())
//! ```

pub mod adopt;
mod agent;
mod backend;
mod channel;
pub mod control;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod mirror;
mod peer;
pub mod pool;
mod registration;
mod transport;

pub use backend::BACKEND;
pub use transport::{Shm, adoption, probe};
