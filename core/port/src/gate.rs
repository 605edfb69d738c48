//! Barrier gates (uTofu guide §2.3): circuits of gates in shared memory. They synchronise processes and reduce values.
//!
//! A gate has up to two inputs, a signal and a packet, and up to two outputs. A relay combines its inputs when all have arrived, and sends the result. A
//! start/end gate sends the payload of its owner's round; the round ends when its inputs have arrived. If each input depends on all starts, a round ends only
//! after all processes have started it.
//!
//! The thread that delivers the last input of a relay executes the relay, and then the relays that become ready. So no other process has to run. Gates have
//! names, which a [`Resolve`] looks up. A gate that is not mapped here gets its inputs as [`Packet`]s over any transport, and its owner's process executes it.
//!
//! ```
//! use unipgas_port::gate::{self, Gate, Operation, Payload, Resolve, Role, Settings};
//!
//! struct Array([Gate; 2]);
//! impl Resolve for Array {
//!     fn gate(&self, name: u64) -> unipgas_base::Result<&Gate> {
//!         self.0.get(name as usize).ok_or(unipgas_base::Error::StaleRegion)
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
pub use payload::{Operation, Payload};
pub use run::{
    Resolve, awaited, clear, configure, has_lost_input, is_broken, neighbours, poll, poll_for,
    start,
};

/// Errors of gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A round is in progress on the gate, or its result has not been taken.
    #[error("a round is under way on this gate; poll until it has ended")]
    Busy,
    /// No round has been started on the gate.
    #[error("no round has been started on this gate")]
    NotStarted,
    /// The participants gave different operations, element counts or flags.
    #[error("the participants started different operations, numbers of elements or flags")]
    Mismatch,
    /// The gate had to drop an input, or has lost an output.
    #[error("the gate's circuit has lost an input or output; configure it again")]
    Broken,
    /// The gate has no free slot for an input: the source is too many rounds ahead.
    #[error("a gate's input came more rounds early than a gate can keep")]
    Overrun,
    /// An input came from a gate that is not the configured source.
    #[error("a gate's input came from another gate than its set source")]
    NotTheSource,
    /// The gate has no settings.
    #[error("the gate is not configured")]
    NotConfigured,
    /// The caller started a round on a relay.
    #[error("a round starts at a start/end gate, not at a relay")]
    NotAStart,
    /// An invalid argument. The text names the valid values.
    #[error("{0}")]
    Invalid(&'static str),
    /// A gate is not reachable.
    #[error(transparent)]
    Engine(#[from] unipgas_base::Error),
}

/// Result of gate functions.
pub type Result<T> = std::result::Result<T, Error>;
