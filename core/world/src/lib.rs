//! Ranks: their processes, memory and states, their messages, and their collective operations.
//!
//! - [`World`]: the ranks of a job on one engine, their published regions ([`imports`], [`published`]), and their states.
//! - [`RankGroup`]: collective operations, along the schedules of `unipgas-schedule`. [`central`]: a barrier at two counters.
//! - [`Messenger`]: messages among ranks. [`host_memory`]: memory that the ranks of one host map.
//!
//! It depends on the crates below: base, schedule, engine, job and message.

pub mod central;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod group;
pub mod host_memory;
pub mod imports;
mod interrupt;
mod lives;
mod look;
pub mod messenger;
pub mod published;
mod replacement;
pub mod world;

pub use group::RankGroup;
pub use messenger::{Lane, Messenger, Needs};
pub use world::World;
