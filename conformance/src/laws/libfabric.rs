//! The laws of libfabric: fi_atomic(3) of 1.8 sentence by sentence, and further calls that its programs need.

mod account;
mod address;
mod alias;
mod bad_input;
mod closing;
pub(super) mod collective;
mod collective_calls;
pub(super) mod collective_data;
mod collective_death;
mod completion;
mod contention;
mod counter;
mod dead_peer;
mod death;
mod death_messages;
mod envelope;
pub(super) mod event;
mod flags;
mod flood;
mod full_queue;
mod growth;
mod info;
mod inject;
pub(crate) mod job;
mod key;
pub(crate) mod kit;
mod library;
mod link;
mod lives;
mod matrix;
mod memory;
mod message;
mod more;
mod order;
pub(super) mod pages;
mod peek;
mod peers;
mod pieces;
pub(super) mod poll;
mod progress;
mod receive;
mod rights;
mod rma;
mod sender;
mod service;
mod shared;
mod shared_bindings;
mod srx;
pub(crate) mod station;
mod tagged;
mod tagged_atomic;
mod tally;
mod told;
mod trigger;
mod valid;
mod value;
mod vector;
pub(super) mod wait_set;
mod waiting;
mod wakes;
pub(crate) mod words;
mod work;

use crate::law::Law;

/// All laws, by subject.
pub fn laws() -> Vec<&'static Law> {
    [
        matrix::laws(),
        valid::laws(),
        vector::laws(),
        flags::laws(),
        contention::laws(),
        order::laws(),
        memory::laws(),
        pages::laws(),
        key::laws(),
        completion::laws(),
        collective::laws(),
        collective_calls::laws(),
        collective_data::laws(),
        collective_death::laws(),
        counter::laws(),
        tally::laws(),
        trigger::laws(),
        alias::laws(),
        account::laws(),
        address::laws(),
        sender::laws(),
        message::laws(),
        tagged::laws(),
        tagged_atomic::laws(),
        progress::laws(),
        death::laws(),
        dead_peer::laws(),
        link::laws(),
        info::laws(),
        lives::laws(),
        growth::laws(),
        bad_input::laws(),
        closing::laws(),
        rma::laws(),
        more::laws(),
        service::laws(),
        shared::laws(),
        shared_bindings::laws(),
        inject::laws(),
        waiting::laws(),
        wakes::laws(),
        wait_set::laws(),
        receive::laws(),
        rights::laws(),
        pieces::laws(),
        death_messages::laws(),
        event::laws(),
        poll::laws(),
        peek::laws(),
        peers::laws(),
        full_queue::laws(),
        flood::laws(),
    ]
    .concat()
}
