//! Waiting, waking, and structures that threads share without locks.

pub mod alarm;
pub mod bell;
pub mod biased;
pub(crate) mod caller;
pub mod calls;
pub mod deadline;
pub mod driver;
pub mod fence;
#[cfg(not(loom))]
pub mod futex;
pub mod issued;
pub mod label;
pub mod limbo;
mod model;
pub mod nap;
pub mod pace;
pub(crate) mod polls;
pub mod posted;
pub mod tally;
pub(crate) mod this_thread;
pub mod wait;
pub mod waiters;
pub mod waits;

pub(crate) use model::statics;
pub use model::{Mutex, RawMutex, UnsafeCell, atomic, thread_local, yield_now};
