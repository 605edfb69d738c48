//! Services between processes without ranks: ports, keys, triggered commands, barrier gates.
//!
//! - [`port`]: memory under short keys, an inbox and triggered commands, offered under a name. [`steps`]: the order of triggered commands.
//! - [`trigger_queue`]: work of this process that waits for a condition.
//! - [`keyring`]: memory under 64-bit keys. [`peer_numbers`]: numbers for peers. [`tally`]: words that peers increment.
//! - [`operations`]: operations with parts and ordered notices.
//! - [`reception`]: bytes that a process hands out at a TCP port.
//! - [`gate`]: barrier gates and reductions in shared memory, and their packets elsewhere.
//!
//! It depends on the crates below: base, engine and job.

#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzz;
pub mod gate;
#[cfg(not(loom))]
pub mod keyring;
#[cfg(not(loom))]
pub mod operations;
#[cfg(not(loom))]
pub mod peer_numbers;
#[cfg(not(loom))]
pub mod port;
#[cfg(not(loom))]
pub mod reception;
pub mod steps;
#[cfg(not(loom))]
pub mod tally;
#[cfg(not(loom))]
pub mod trigger_queue;
