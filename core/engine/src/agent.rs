//! The target agent: it executes requests of peers that cannot access this process's memory themselves.
//!
//! A backend that sends bytes to a peer, in order and without loss, carries [`Request`]s there and [`Answer`]s back. Module [`wire`] frames them. A
//! [`Registered`] is the memory that requests name, and [`Registered::serve`] is the agent. It does not trust peers: a malformed frame is an error, and a
//! request for unregistered memory gets an error as its answer.

mod atomics;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
mod registered;
pub mod wire;

pub use atomics::ENVELOPE;
pub(crate) use atomics::{Serving, atomic, atomic_error, most, programs, programs_error};
pub use registered::{Registered, RegisteredPlace, land};
pub use wire::{Answer, Carried, Elements, Malformed, Request, WireError};
