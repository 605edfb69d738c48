//! The engine of unipgas: registered regions, ordered queues, remote-completion notifications, atomics and
//! collective schedules over any [`transport`].
pub mod error;

pub use error::{Error, Result};
