//! The engine of unipgas: registered regions, ordered queues, remote-completion notifications, atomics and
//! collective schedules over any [`transport`].
//!
//! An [`Engine`] represents one process. It allocates and registers [`Region`]s, connects to other processes by their
//! [`Address`] and opens [`Endpoint`]s. Operations of an endpoint move bytes between regions. A [`World`] adds the needs of
//! programs with ranks.
//!
//! ```
//! use std::sync::Arc;
//! use unipgas_core::loopback::{Loopback, LoopbackNet};
//! use unipgas_core::{Engine, Flags, Local, Remote, Rights};
//!
//! // Two processes, both played by this one.
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
//! // SAFETY: the bytes stay until the operation is complete, as it is when the call returns over this network.
//! unsafe { endpoint.put(from, to, bytes.len(), Flags::empty(), 0)? };
//! // SAFETY: in bounds, and nobody writes there any more.
//! let come = unsafe { std::slice::from_raw_parts(memory.base().add(64), bytes.len()) };
//! assert_eq!(come, b"hello");
//! # Ok::<(), unipgas_core::Error>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "unipgas runs on Linux: use a container, such as docker run -it -v \"$PWD\":/unipgas -w /unipgas rust"
);

pub mod descriptor;
pub mod dynamic;
pub mod error;
pub mod exit;
mod fabric;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[doc(hidden)]
pub mod fuzz;
pub mod held;
mod launch;
pub mod log;
mod memory;
#[cfg(not(loom))]
pub mod message;
pub mod panics;
pub mod process;
mod queues;
mod ranked;
pub mod refused;
pub mod stop;
mod sync;
mod tell;
pub mod trace;
pub mod variables;

pub use fabric::registration::LISTENER;
#[cfg(not(loom))]
pub use fabric::streams;
pub use fabric::{
    agent, awaited, bundle, circuit, driver, endpoint, engine, fast_path, host, inbox, issued,
    kept, kernel_copy, loopback, mapped, notification, op, own_thread, region, registry, together,
    transport,
};
pub(crate) use fabric::{executor, limited, operands, registration};
pub(crate) use launch::interrupt;
pub use launch::{bootstrap, job, numa};
pub use memory::{
    announced, atomic, cache, combine, lines, pages, user_memory, userfaultfd, words,
};
pub(crate) use memory::{copy, exclusive, prefetch};
pub use queues::{gate, rendezvous, steps};
#[cfg(not(loom))]
pub use queues::{keyring, peer_numbers, port, reception};
pub use ranked::{central, directory, group, host_memory, imports, schedule, world};
#[cfg(not(loom))]
pub(crate) use sync::posted;
#[cfg(loom)]
pub use sync::posted;
pub use sync::{
    alarm, bell, biased, calls, deadline, limbo, nap, pace, published, tally, wait, waits,
};

pub use atomic::{AtomicOp, AtomicType};
pub use bundle::{Address, RegionKey};
pub use copy::copy;
pub use deadline::Deadline;
pub use endpoint::Endpoint;
pub use engine::{Connection, Engine};
pub use error::{Error, Result};
pub use fast_path::{FastPath, Posting};
pub use group::Group;
pub use notification::Notifications;
pub use op::{AtomicRequest, Completion, Flags, Local, Notice, Outcome, Remote};
pub use region::{Region, RemoteRegion, Rights};
pub use tell::{leave_unfinished, print, tell, tell_lines, tell_refusal};
pub use together::{Staying, Together};
pub use world::World;
