//! Waiting, waking, and structures that threads share without locks.

pub mod alarm;
pub mod bell;
pub mod biased;
pub(crate) mod caller;
pub mod calls;
pub mod counters;
pub mod deadline;
pub mod driver;
pub mod fence;
pub mod futex;
pub mod issue_totals;
pub mod label;
pub mod liveness_timer;
mod model;
pub mod nap;
pub(crate) mod polls;
pub mod post_counter;
pub mod reclaimer;
pub(crate) mod this_thread;
pub mod wait;
pub mod waiters;
pub mod waits;

pub(crate) use model::statics;
pub use model::{Mutex, RawMutex, UnsafeCell, atomic, thread_local, yield_now};
