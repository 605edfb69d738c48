//! Waiting, waking, and structures that threads share without locks.

pub mod alarm;
pub mod bell;
#[cfg(not(loom))]
pub mod biased;
pub mod calls;
pub mod deadline;
pub mod limbo;
mod model;
pub mod pace;
pub(crate) mod posted;
pub mod published;
pub mod wait;

pub(crate) use model::*;
