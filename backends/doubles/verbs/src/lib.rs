//! A double of `libibverbs.so.1` for tests: processes of one host use InfiniBand verbs without a device.
//!
//! A folder in which `libibverbs.so.1` is a link to this library, in `LD_LIBRARY_PATH`, is all that a program needs. Each opened device has a thread, its
//! NIC: it reads the sources of what this process asks for, and carries out what peers ask for in this process's memory, after the checks of a real
//! device. Between NICs there are Unix sockets in the abstract namespace, so nothing is left behind.
//!
//! Tests of other crates have this one as a dev-dependency: cargo then builds `libverbs_double.so` beside their executables.
//!
//! `VERBS_DOUBLE` says what the device is like (`config.rs`), `verbs_double_inject` what happens to it (`faults.rs`),
//! `VERBS_DOUBLE_COUNTS` and `verbs_double_count` what was done (`counters.rs`).
//!
//! Where a real device is free to be unkind, this one is: what is not inline is read after the call, keys are not used again soon, local and remote keys
//! differ, slots of a send queue become free when a completion is polled, and completions with errors have meaningless fields.
//!
//! What it is not: atomic operations of HCA are atomic among those that one process carries out; memory that two processes have registered is not
//! guarded between them. Limits of a device are those of each context. There is no UC or UD, no multicast, no memory windows, no path migration, and no SQD state.
#![allow(
    clippy::missing_safety_doc,
    reason = "the functions are those of the C library, where they are described"
)]

mod absent;
mod atomics;
mod channel;
mod config;
mod context;
mod counters;
mod cq;
mod device;
mod engine;
mod events;
mod exit;
mod faults;
mod fork;
mod kept_pages;
mod link;
mod memory;
mod modify;
mod names;
mod nic;
mod packet;
mod pairs;
mod pd;
mod ports;
mod post;
mod qp;
mod recv;
mod requester;
mod responder;
mod words;
