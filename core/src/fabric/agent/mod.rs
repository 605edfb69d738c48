//! The target agent: what a process does for peers whose network cannot reach into its memory by itself.
//!
//! A backend that can send bytes to a peer, in order and without loss, carries [`Request`]s there and [`Answer`]s back, framed by
//! [`wire`]. [`Registered`] is the memory that the requests name, [`Registered::serve`] the agent itself. It relies on nothing that
//! a peer says: a malformed frame is an error, and a request for what is not registered is answered by one.

mod atomics;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
mod registered;
pub mod wire;

pub use atomics::ENVELOPE;
pub(crate) use atomics::{Serving, atomic, atomic_error, most, programs, programs_error};
pub use registered::{Place, Registered, land};
pub use wire::{Answer, Carried, Elements, Failure, Malformed, Request};
