//! A double of `libibverbs.so.1` for tests: processes of one host use InfiniBand verbs without a device.
//!
//! A program finds the double by `LD_LIBRARY_PATH`: a folder there has a link `libibverbs.so.1` to this library. Each opened device has a thread, its NIC. The
//! thread reads the source data of this process's requests. It also executes the requests of peers on this process's memory, after the checks of a real device.
//! NICs communicate by Unix sockets in the abstract namespace, so nothing is left behind.
//!
//! Tests of other crates have this one as a dev-dependency. Cargo then builds `libverbs_double.so` beside their executables.
//!
//! - `VERBS_DOUBLE` describes the device (`config.rs`).
//! - `verbs_double_inject` causes faults (`faults.rs`).
//! - `VERBS_DOUBLE_COUNTS` and `verbs_double_count` report the operations of the process (`counters.rs`).
//!
//! The double takes the freedoms of a real device that are hardest for programs:
//!
//! - It reads data that are not inline after the call.
//! - It does not reuse keys soon, and local and remote keys differ.
//! - Slots of a send queue become free only when a completion is polled.
//! - Completions with errors have meaningless fields.
//!
//! Limits of the double:
//!
//! - HCA atomic operations are atomic only among the operations of one process. Memory that two processes have registered is not protected between them.
//! - The limits of a device apply to each context.
//! - It has no UC, UD, multicast, memory windows, path migration or SQD state.
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
