//! Barrier gates (uTofu guide §2.3): circuits of gates in shared memory that synchronise processes and reduce values on
//! the way.
//!
//! A gate has up to two inputs, a signal and a packet, and as many outputs. A relay combines its inputs as soon as they
//! are there and sends them on; a start/end gate sends what its owner starts a round with, and the round ends when its
//! inputs are there. A circuit ends a round of each process when all have started theirs, if it is made so that
//! every input depends on all starts.
//!
//! Whoever delivers the last input of a relay executes it, and so on, in a loop: no process has to be awake for the
//! others to go on. Gates are known by names that a [`Resolve`] looks up. Those that are not mapped here get their inputs as [`Packet`]s,
//! by whatever way there is, and are executed by their owner's process.
//!
//! ```
//! use unipgas_core::gate::{self, Gate, Operation, Payload, Resolve, Role, Settings};
//!
//! struct Array([Gate; 2]);
//! impl Resolve for Array {
//!     fn gate(&self, name: u64) -> unipgas_core::Result<&Gate> {
//!         self.0.get(name as usize).ok_or(unipgas_core::Error::StaleRegion)
//!     }
//!     fn wake(&self, _name: u64) {}
//! }
//!
//! // Two participants, who tell themselves by a signal and each other by a packet.
//! let gates = Array([Gate::new(), Gate::new()]);
//! for (me, peer) in [(0, 1), (1, 0)] {
//!     let settings = Settings {
//!         role: Role::StartEnd,
//!         src_signal: Some(me),
//!         dst_signal: Some(me),
//!         src_packet: Some(peer),
//!         dst_packet: Some(peer),
//!     };
//!     gate::configure(&gates.0[me as usize], &settings);
//! }
//! let mut result = Payload::default();
//! for (me, value) in [(0, 30), (1, 12)] {
//!     let input = Payload::integers(Operation::Sum, &[value], 0)?;
//!     gate::start(&gates.0[me as usize], me, &input, &gates)?;
//!     assert_eq!(gate::poll(&gates.0[0], &mut result)?, me == 1);
//! }
//! assert_eq!(result.as_integers(), [42]);
//! # Ok::<(), gate::Error>(())
//! ```

mod cell;
pub mod exact;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
mod inline;
mod packet;
mod payload;
mod run;
mod state;

pub use cell::{Gate, ROUNDS, Role, Settings};
pub use packet::{
    LONGEST_PACKET, Packet, Ready, SETTINGS, Sender, arrive, execute, lose_output, neighbours_in,
};
pub use payload::{MAX_DOUBLES, MAX_INTEGERS, Operation, Payload};
pub use run::{
    Resolve, awaited, clear, configure, has_lost_input, is_broken, neighbours, poll, poll_for,
    start,
};

/// What can go wrong with gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A round is under way on the gate, or its result has not been taken.
    #[error("a round is under way on this gate; poll until it has ended")]
    Busy,
    /// No round has been started on the gate.
    #[error("no round has been started on this gate")]
    NotStarted,
    /// The participants of the round gave different operations, numbers of elements or flags.
    #[error("the participants started different operations, numbers of elements or flags")]
    Mismatch,
    /// The gate has got an input that it could not keep, or has lost an output.
    #[error("the gate's circuit has lost an input or output; configure it again")]
    Broken,
    /// An input came to a gate that has no free place for it: its source is too many rounds ahead.
    #[error("a gate's input came more rounds early than a gate can keep")]
    Overrun,
    /// An input came to a gate from another one than its settings say.
    #[error("a gate's input came from another gate than the one that is set as its source")]
    NotTheSource,
    /// The gate has no settings.
    #[error("the gate is not configured")]
    NotConfigured,
    /// A round was started on a relay.
    #[error("a round starts at a start/end gate, not at a relay")]
    NotAStart,
    /// An argument has no meaning; the text says what would be right.
    #[error("{0}")]
    Invalid(&'static str),
    /// A gate could not be reached.
    #[error(transparent)]
    Engine(#[from] crate::Error),
}

/// The result of what is done with gates.
pub type Result<T> = std::result::Result<T, Error>;
