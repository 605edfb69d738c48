//! The agent over streams: what backends share whose network carries bytes in order, but does not reach into memory, or not for everything.
//!
//! Operations become [`Request`](crate::agent::Request)s, which go to the peer by a [`Stream`]; its agent carries them out, and they end with its answers.
//! A backend says how streams begin and move on ([`Network`]); all else is here: who is served, which request an answer belongs to, what is ordered after
//! what, what is imported and when that ends, who has left and who has died. What a network does by itself, it posts among the requests ([`Own`]), and
//! the order and the end of operations are kept for both.
//!
//! - [`Network`], [`Stream`]: what a backend provides; [`Faults`]: what instruments of tests do besides
//! - [`Streams`]: what a backend's `Transport` hands its calls to; [`OverStreams`]: what it says beyond that
//! - [`Home`]: what everything of the process shares; its agent serves guests, hears hosts (`agent`, `guest`); [`Link`]: the stream to a peer
//! - [`Requests`]: a channel whose operations are requests, and the issue of a network's own; `late`: what waits there; `gathered`: what ends together
//! - [`Registration`]: memory that peers may ask for
//! - [`Operands`]: what operations name registered memory by; [`Departed`]: who is not there any more
//! - [`greeting`], [`envelope`]: what is said first, and what goes ahead of each frame

mod agent;
mod channel;
mod completion;
mod departed;
pub mod envelope;
mod forward;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
mod gathered;
pub mod greeting;
mod guest;
mod heap;
mod home;
mod issue;
mod landing;
mod late;
mod link;
mod network;
mod numbered;
mod operands;
mod outgoing;
mod over;
mod own;
mod polls;
mod registration;
mod release;
#[cfg(test)]
mod tests;
mod timer;
mod transport;

pub use completion::Completions;
pub use departed::Departed;
pub use home::Home;
pub use issue::{Issue, Requests};
pub use link::Link;
pub use network::{Accepted, After, Begun, Ended, Faults, Found, Network, News, Order, Stream};
pub use operands::{Operand, Operands};
pub use over::{OverStreams, Owner, close};
pub use own::{Own, Ticket};
pub use registration::{OwnPart, Registration, link_of};
pub use transport::Streams;
