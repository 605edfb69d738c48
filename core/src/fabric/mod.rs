//! Processes and the ways between them: transports, regions, operations, and what makes networks alike.

pub mod agent;
pub mod awaited;
pub mod bundle;
pub mod circuit;
#[cfg(all(test, not(loom)))]
mod doubles;
pub mod endpoint;
pub mod engine;
pub(crate) mod executor;
pub mod fast_path;
pub mod host;
pub mod inbox;
pub mod kept;
pub mod kernel_copy;
pub(crate) mod limited;
pub mod loopback;
pub mod mapped;
pub mod notification;
pub mod op;
pub(crate) mod operands;
pub mod region;
pub(crate) mod registration;
pub mod registry;
#[cfg(not(loom))]
pub mod streams;
pub mod together;
pub mod transport;
