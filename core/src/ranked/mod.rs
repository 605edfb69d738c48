//! Ranks: their processes, memory and states, and their collective operations.

pub mod central;
pub mod directory;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
pub mod group;
pub mod host_memory;
pub mod imports;
mod interrupt;
mod lives;
mod look;
pub mod published;
mod replacement;
pub mod world;
