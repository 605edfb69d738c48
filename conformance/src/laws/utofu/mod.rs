//! The laws of uTofu: chapters 2 and 3 of the User's Guide (J2UL-2567-01ENZ0).

#[macro_use]
mod kit;
mod armw;
mod bad_input;
mod barrier;
mod delay;
mod failure;
mod interface_exhausted;
mod interface_gates;
mod interface_management;
mod interface_onesided;
mod interface_release;
mod interface_session;
mod interface_threads;
mod lives;
mod lost_input;
mod mapped;
mod memory;
mod mrq;
mod order;
mod path;
mod piggyback;
mod prepare;
mod processes;
mod put_get;
mod resources;
mod session;
mod tcq;
mod threads;
mod tni;
mod vcq;

use crate::law::Law;

/// All of them, by subject.
pub fn laws() -> Vec<&'static Law> {
    [
        tni::laws(),
        vcq::laws(),
        path::laws(),
        memory::laws(),
        mapped::laws(),
        put_get::laws(),
        piggyback::laws(),
        armw::laws(),
        prepare::laws(),
        tcq::laws(),
        mrq::laws(),
        order::laws(),
        delay::laws(),
        threads::laws(),
        session::laws(),
        resources::laws(),
        barrier::laws(),
        failure::laws(),
        lost_input::laws(),
        lives::laws(),
        bad_input::laws(),
        interface_management::laws(),
        interface_release::laws(),
        interface_onesided::laws(),
        interface_session::laws(),
        interface_threads::laws(),
        interface_gates::laws(),
        interface_exhausted::laws(),
    ]
    .concat()
}
