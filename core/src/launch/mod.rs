//! How a job begins: launcher, board, bootstrap, and the machine it finds.

pub mod bootstrap;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
pub(crate) mod interrupt;
pub mod job;
pub mod numa;
