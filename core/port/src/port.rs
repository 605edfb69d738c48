//! Ports: endpoints that peers find by name. A port offers registered memory under short keys, an inbox for notices, and commands that arrivals trigger. Its
//! owner also issues commands with it.
//!
//! The owner of a port may compute without calls to the library. Peers read its key table, fill its inbox and carry out its triggered commands. If peers do not
//! map the port's memory, its owner's process carries out the commands.

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
mod issue;
mod keys;
mod last;
mod neighbour;
mod notice;
mod places;
mod poll;
mod remote;
mod trigger;
mod waiting_commands;

pub use command::{Command, CommandFlags, CommandKind, Parts, Rmw};
pub use completion::{Completed, DEPTH};
pub use directory::{PORTS, PortDirectory};
pub use fast_path::Aim;
pub use gates::{GateNames, Gates};
pub use guard::GuardedAccess;
pub use issue::{Port, PortOptions, Queues};
pub use keys::{KEYS, ShortKey};
pub use neighbour::{LOOK_PART, PortNetwork};
pub use notice::{Fault, NoticeKind, PortNotice};
pub use places::JobPlaces;
pub use remote::RemotePort;
pub use unipgas_base::reclaimer::ReaderEpoch;
