//! Start of a job: launcher, board, bootstrap, and the topology of the machine.

pub mod bootstrap;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
pub(crate) mod interrupt;
pub mod job;
pub mod numa;
pub mod registry;
