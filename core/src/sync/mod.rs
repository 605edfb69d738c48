//! Waiting, waking, and structures that threads share without locks.

pub mod alarm;
pub mod bell;
pub mod biased;
pub(crate) mod caller;
pub mod calls;
pub mod deadline;
pub(crate) mod fence;
mod label;
pub mod limbo;
mod model;
pub mod nap;
pub mod pace;
pub(crate) mod polls;
pub mod posted;
pub mod published;
pub mod tally;
mod this_thread;
pub mod wait;
pub mod waits;

pub(crate) use model::*;
