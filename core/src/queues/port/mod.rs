//! What an endpoint offers to peers that know only its name: registered memory under short keys, an inbox for notices, and
//! commands that arrivals trigger. And how it issues commands of its own.
//!
//! Nobody has to answer anybody: a port's table of keys is read, its inbox filled and its triggered commands carried out by
//! whoever needs it, while its owner computes. Where peers do not map the port's memory, its owner's process carries the commands out.

mod carry;
mod command;
mod completion;
mod directory;
mod fast_path;
mod flight;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
mod gates;
mod guard;
mod held;
mod issue;
mod keys;
mod last;
mod neighbour;
mod notice;
mod places;
mod poll;
mod remote;
mod service;
mod trigger;

pub use crate::limbo::Turns;
pub use command::{Command, CommandFlags, CommandKind, Parts, Rmw};
pub use completion::{Completed, DEPTH};
pub use directory::{PORTS, PortDirectory};
pub use fast_path::Aim;
pub use gates::{Gates, Names};
pub use guard::{Guarded, Held};
pub use issue::{Port, PortOptions, Queues};
pub use keys::{KEYS, RESERVED_KEYS, ShortKey};
pub use neighbour::{LOOK_PART, Network};
pub use notice::{Fault, NoticeKind, PortNotice};
pub use places::Places;
pub use remote::RemotePort;
pub use service::Service;
