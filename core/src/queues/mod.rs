//! Services between processes without ranks: ports, keys, triggered commands, barrier gates.

pub mod gate;
#[cfg(not(loom))]
pub mod keyring;
#[cfg(not(loom))]
pub mod peer_numbers;
#[cfg(not(loom))]
pub mod port;
#[cfg(not(loom))]
pub mod reception;
pub mod steps;
