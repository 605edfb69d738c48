//! The engine of one process: the contract of a backend, and operations for the layers above.
//!
//! - The contract of a backend: [`transport`], with operations ([`op`]), regions ([`region`]), addresses and keys ([`bundle`]), [`inbox`]es and
//!   collectives of the network ([`circuit`]).
//! - [`Engine`] represents this process. It allocates and registers [`Region`]s, connects to peers by their [`Address`] and opens [`Endpoint`]s.
//! - The target [`agent`] executes requests of peers that cannot access this process's memory.
//! - [`loopback`] is the smallest backend.
//!
//! It depends on `unipgas-base` and `unipgas-schedule`, and knows no job, rank or interface.
//!
//! ```
//! use std::sync::Arc;
//! use unipgas_engine::loopback::{Loopback, LoopbackNet};
//! use unipgas_base::Rights;
//! use unipgas_engine::{Engine, Flags, Local, Remote};
//!
//! let net = Arc::new(LoopbackNet::default());
//! let here = Engine::new(vec![Arc::new(Loopback::join(&net))])?;
//! let there = Engine::new(vec![Arc::new(Loopback::join(&net))])?;
//! let memory = there.allocate(4096, Rights::FULL)?;
//!
//! let region = here.connect(&there.address()?)?.import(&memory.key())?;
//! let endpoint = here.endpoint(16)?;
//! let bytes = *b"hello";
//! let from = Local { ptr: bytes.as_ptr().cast_mut(), desc: 0 };
//! let to = Remote { region: &region, offset: 64 };
//! // SAFETY: over this network the operation is complete when the call returns; the bytes live until then.
//! unsafe { endpoint.put(from, to, bytes.len(), Flags::empty(), 0)? };
//! // SAFETY: in bounds; no thread writes there now.
//! let received = unsafe { std::slice::from_raw_parts(memory.base().add(64), bytes.len()) };
//! assert_eq!(received, b"hello");
//! # Ok::<(), unipgas_base::Error>(())
//! ```

pub mod agent;
pub mod batch;
pub mod bundle;
pub mod circuit;
pub mod deferred_op;
pub mod directory;
pub mod endpoint;
pub mod engine;
pub(crate) mod executor;
pub mod fast_path;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzz;
pub mod host;
pub mod inbox;
pub mod kernel_copy;
pub(crate) mod limited;
mod local_region;
pub mod loopback;
pub mod mapped;
pub mod notification;
pub mod op;
pub(crate) mod operands;
pub mod pending_fetch;
pub mod region;
pub(crate) mod registration;
pub mod service;
pub mod transport;
pub mod wait_point;
pub mod watcher;

use unipgas_base::copy::copy;
#[cfg(all(any(test, fuzzing), not(loom)))]
use unipgas_base::fenced;
use unipgas_base::post_counter;
use unipgas_base::{
    AtomicOp, AtomicType, Deadline, Error, Result, Rights, atomic, bell, cache, copy, descriptor,
    driver, issue_totals, lines, liveness_timer, log, own_thread, pages, polled_line, prefetch,
    process, sync, tell, trace, user_memory, userfaultfd, variables, wait, waits,
};
use unipgas_schedule as schedule;

pub use batch::{Batch, MoreBatch};
pub use bundle::{Address, RegionKey};
pub use endpoint::Endpoint;
pub use engine::{Connection, Engine};
pub use fast_path::{FastPath, Posting};
pub use local_region::Region;
pub use notification::NotificationArray;
pub use op::{AtomicRequest, Completion, Flags, Local, Notice, Outcome, Remote};
pub use region::RemoteRegion;
pub use registration::LISTENER;
pub use service::Service;
