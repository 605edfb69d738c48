//! The laws of GASPI, part one: chapters 5 to 8 and 10 to 13.

mod atomics;
mod bad_input;
mod collective;
mod dead_peer;
mod environment;
mod failure;
mod group;
mod growth;
pub(crate) mod kit;
mod notify;
mod process;
mod queue;
mod segment;
mod transfer;

use crate::law::Law;

/// All of them, by chapter.
pub fn laws() -> Vec<&'static Law> {
    [
        process::laws(),
        group::laws(),
        segment::laws(),
        transfer::laws(),
        notify::laws(),
        queue::laws(),
        atomics::laws(),
        collective::laws(),
        environment::laws(),
        failure::laws(),
        dead_peer::laws(),
        growth::laws(),
        bad_input::laws(),
    ]
    .concat()
}
