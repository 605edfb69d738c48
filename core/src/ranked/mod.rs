//! Processes with ranks: who they are, and collectives among them.

pub mod central;
pub mod directory;
pub mod group;
pub mod imports;
mod lives;
mod look;
mod replacement;
pub mod schedule;
pub mod world;
