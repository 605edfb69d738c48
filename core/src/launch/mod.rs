//! How a job begins: launcher, board, bootstrap, and the machine it finds.

pub mod bootstrap;
pub(crate) mod interrupt;
pub mod job;
pub mod numa;
pub mod topology;
