//! The laws of GASPI: chapters 5 to 14 of the specification, GASPI_Threads.h and GASPI_Lowlevel.h.

mod any_moment;
mod atomics;
mod bad_input;
mod bad_places;
mod collective;
mod collective_user;
mod config;
mod dead_peer;
mod deleted;
mod disconnect;
mod ended;
mod environment;
mod failure;
mod full_queue;
mod group;
mod growth;
pub(crate) mod in_progress;
pub(crate) mod kit;
mod link;
mod lowlevel;
mod notify;
mod passive;
mod points;
pub(crate) mod post;
mod process;
mod queue;
mod queue_group;
mod repeated;
mod replacement;
mod segment;
mod segment_bind;
mod segment_create;
mod segment_delete;
mod silent_member;
mod silent_peer;
mod silent_strangers;
mod statistics;
mod threads;
mod transfer;
mod transfer_list;
mod wakes;

use crate::law::Law;

/// All of them.
pub fn laws() -> Vec<&'static Law> {
    [
        process::laws(),
        config::laws(),
        group::laws(),
        segment::laws(),
        segment_delete::laws(),
        segment_create::laws(),
        segment_bind::laws(),
        transfer::laws(),
        transfer_list::laws(),
        notify::laws(),
        passive::laws(),
        disconnect::laws(),
        ended::laws(),
        deleted::laws(),
        repeated::laws(),
        wakes::laws(),
        threads::laws(),
        statistics::laws(),
        queue::laws(),
        full_queue::laws(),
        lowlevel::laws(),
        queue_group::laws(),
        atomics::laws(),
        collective::laws(),
        collective_user::laws(),
        environment::laws(),
        failure::laws(),
        points::laws(),
        replacement::laws(),
        any_moment::laws(),
        dead_peer::laws(),
        silent_peer::laws(),
        silent_member::laws(),
        silent_strangers::laws(),
        link::laws(),
        growth::laws(),
        bad_input::laws(),
        bad_places::laws(),
    ]
    .concat()
}
