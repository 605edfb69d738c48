//! The engine of unipgas: registered regions, ordered queues, remote-completion notifications, atomics and
//! collective schedules over any [`transport`].
//!
//! An [`Engine`] is one process's place. It allocates and registers [`Region`]s, connects to other processes by their
//! [`Address`] and opens [`Endpoint`]s, whose operations move bytes between regions. A [`World`](world::World) adds what programs
//! with ranks need.

pub mod descriptor;
pub mod dynamic;
pub mod error;
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
mod sync;
mod tell;
pub mod trace;
pub mod variables;

#[cfg(not(loom))]
pub use fabric::streams;
pub use fabric::{
    agent, awaited, bundle, circuit, driver, endpoint, engine, fast_path, host, inbox, kept,
    loopback, mapped, notification, op, own_thread, region, registry, together, transport,
};
pub(crate) use fabric::{executor, limited, operands, registration};
pub(crate) use launch::interrupt;
pub use launch::{bootstrap, job, numa, topology};
pub use memory::{
    announced, atomic, cache, combine, lines, pages, user_memory, userfaultfd, words,
};
pub(crate) use memory::{copy, exclusive, prefetch};
pub use queues::{gate, rendezvous, steps};
#[cfg(not(loom))]
pub use queues::{keyring, peer_numbers, port, reception};
pub use ranked::{central, directory, group, imports, schedule, world};
#[cfg(not(loom))]
pub(crate) use sync::posted;
#[cfg(loom)]
pub use sync::posted;
pub use sync::{alarm, bell, biased, calls, deadline, limbo, pace, published, wait, waits};

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
pub use tell::{print, tell, tell_refusal};
pub use together::{Staying, Together};
pub use world::World;
