//! The laws of uTofu: chapters 2 and 3 of the User's Guide (J2UL-2567-01ENZ0).

mod armw;
mod bad_calls;
mod bad_gates;
mod bad_management;
mod bad_random;
mod barrier;
mod barrier_management;
mod circuit;
mod dead_peer;
mod delay;
mod errors;
mod failure;
mod failure_gates;
pub(super) mod freed;
mod full_queue;
mod functions;
mod growth;
mod interface_exhausted;
mod interface_gates;
mod interface_management;
mod interface_onesided;
mod interface_release;
mod interface_session;
mod interface_threads;
pub(crate) mod kit;
mod link;
mod lives;
mod lost_input;
mod mapped;
mod memory;
mod model_armw;
mod model_barrier;
mod model_context;
mod model_lines;
mod model_notices;
mod model_order;
mod model_relay;
mod model_session;
mod model_strong;
mod model_threads;
mod model_vbg_threads;
mod mrq;
mod mrq_errors;
mod mrq_overflow;
mod mrq_remote;
mod network;
mod order;
mod other_backend;
mod path;
mod piggyback;
pub(crate) mod post;
mod prepare;
mod put_get;
mod reductions;
mod resources;
mod resources_environment;
mod session;
mod taken_away;
mod tcq;
mod threads;
mod tni;
mod vcq;
mod wrong;

use crate::law::Law;

/// All of them, by subject.
pub fn laws() -> Vec<&'static Law> {
    [
        tni::laws(),
        vcq::laws(),
        model_context::laws(),
        path::laws(),
        memory::laws(),
        mapped::laws(),
        put_get::laws(),
        piggyback::laws(),
        armw::laws(),
        model_armw::laws(),
        prepare::laws(),
        taken_away::laws(),
        freed::laws(),
        tcq::laws(),
        full_queue::laws(),
        mrq::laws(),
        mrq_remote::laws(),
        mrq_errors::laws(),
        model_notices::laws(),
        order::laws(),
        model_lines::laws(),
        model_order::laws(),
        model_strong::laws(),
        delay::laws(),
        threads::laws(),
        model_threads::laws(),
        model_vbg_threads::laws(),
        session::laws(),
        model_session::laws(),
        model_relay::laws(),
        resources::laws(),
        resources_environment::laws(),
        other_backend::laws(),
        barrier::laws(),
        barrier_management::laws(),
        reductions::laws(),
        model_barrier::laws(),
        failure::laws(),
        mrq_overflow::laws(),
        failure_gates::laws(),
        dead_peer::laws(),
        link::laws(),
        growth::laws(),
        lost_input::laws(),
        lives::laws(),
        bad_management::laws(),
        bad_gates::laws(),
        bad_calls::laws(),
        errors::laws(),
        bad_random::laws(),
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
