//! The contract of `core/src/fabric/transport.rs`, called without the engine: what holds here holds for every backend, whatever stands above it.
//!
//! Nothing is taken for granted that the contract does not say: operations may end later, nothing need be mapped, memory is looked at where
//! it is owned. A column of the matrix is all that a new backend needs to be put to these laws.

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

/// All of them.
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
