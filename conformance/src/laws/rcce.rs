//! The laws of RCCE V1.0.13 and of the iRCCE manual (version 2.0): sections 3 to 7 and 9.

mod air_barrier;
mod bad_input;
mod blocking;
mod collective;
mod comm;
mod crowd;
mod details;
mod ending;
mod environment;
mod failure;
mod flag;
mod full_queue;
mod gory;
pub(super) mod in_progress;
pub(crate) mod kit;
mod library;
mod link;
mod mixing;
mod nonblocking;
mod order;
mod power;
mod put_get;
mod reduce;
mod requests;
mod shared;
mod threads;
mod wait_list;
mod wildcard;

pub use ending::JOBS;
pub use failure::VICTIMS;
pub(super) use failure::job_of;

use crate::law::Law;

/// All laws, by subject.
pub fn laws() -> Vec<&'static Law> {
    [
        environment::laws(),
        ending::laws(),
        put_get::laws(),
        flag::laws(),
        gory::laws(),
        blocking::laws(),
        nonblocking::laws(),
        requests::laws(),
        full_queue::laws(),
        details::laws(),
        order::laws(),
        wildcard::laws(),
        wait_list::laws(),
        mixing::laws(),
        collective::laws(),
        reduce::laws(),
        comm::laws(),
        shared::laws(),
        library::laws(),
        air_barrier::laws(),
        power::laws(),
        crowd::laws(),
        threads::laws(),
        failure::laws(),
        link::laws(),
        bad_input::laws(),
    ]
    .concat()
}
