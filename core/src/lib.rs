//! The engine of unipgas: registered regions, ordered queues, remote-completion notifications, atomics and
//! collective schedules over any [`transport`].
//!
//! An [`Engine`] is one process's place. It allocates and registers [`Region`]s, connects to other processes by their
//! [`Address`] and opens [`Endpoint`]s, whose operations move bytes between regions. A [`World`](world::World) adds what programs
//! with ranks need.

pub mod agent;
pub mod atomic;
pub mod bell;
#[cfg(not(loom))]
pub mod biased;
pub mod bootstrap;
pub mod bundle;
pub mod calls;
pub mod central;
pub mod combine;
mod copy;
pub mod deadline;
pub mod descriptor;
pub mod directory;
pub mod driver;
pub mod endpoint;
pub mod engine;
pub mod error;
mod exclusive;
pub mod gate;
pub mod group;
pub mod host;
pub mod inbox;
mod interrupt;
pub mod job;
#[cfg(not(loom))]
pub mod keyring;
#[cfg(not(loom))]
pub mod lanes;
pub mod limbo;
mod limited;
pub mod lines;
pub mod loopback;
pub mod mapped;
#[cfg(not(loom))]
pub mod message;
pub mod notification;
pub mod numa;
pub mod op;
mod operands;
pub mod own_thread;
pub mod pace;
pub mod panics;
#[cfg(not(loom))]
pub mod port;
mod posted;
mod prefetch;
pub mod process;
pub mod published;
pub mod region;
mod registration;
pub mod registry;
pub mod rendezvous;
pub mod schedule;
pub mod steps;
pub(crate) mod sync;
mod tell;
pub mod topology;
pub mod transport;
pub mod user_memory;
pub mod variables;
pub mod wait;
pub mod world;

pub use atomic::{AtomicOp, AtomicType};
pub use bundle::{Address, RegionKey};
pub use copy::copy;
pub use deadline::Deadline;
pub use endpoint::{AtOnce, Endpoint, Posting};
pub use engine::{Connection, Engine};
pub use error::{Error, Result};
pub use group::Group;
pub use notification::Notifications;
pub use op::{AtomicRequest, Completion, Flags, Local, Notice, Outcome, Remote};
pub use region::{Region, RemoteRegion, Rights};
pub use tell::{print, tell, tell_refusal};
pub use world::World;
