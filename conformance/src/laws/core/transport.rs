//! The contract of `core/engine/src/transport.rs`, tested without the engine. A law that holds here holds for every use of the backend.
//!
//! The laws assume no more than the contract: operations may end later, memory may be unmapped, and the owner checks its memory itself.
//! A new backend needs only a column of the matrix to run these laws.

mod atomics;
mod capabilities;
mod idle;
mod limits;
mod lives;
mod messages;
mod node;
mod notices;
mod refusals;
mod registered;
mod transfer;

use crate::law::Law;

/// All laws of the transport.
pub fn laws() -> impl Iterator<Item = &'static Law> {
    [
        capabilities::LAWS,
        idle::LAWS,
        limits::LAWS,
        transfer::LAWS,
        notices::LAWS,
        messages::LAWS,
        atomics::LAWS,
        refusals::LAWS,
        registered::LAWS,
        lives::LAWS,
    ]
    .into_iter()
    .flatten()
}
