//! The engine of unipgas: registered regions, ordered queues, remote-completion notifications, atomics and
//! collective schedules over any [`transport`].
//!
//! An [`Engine`] represents one process. It allocates and registers [`Region`]s, connects to other processes by their
//! [`Address`] and opens [`Endpoint`]s. Operations of an endpoint move bytes between regions. A [`World`] adds the needs of
//! programs with ranks.
//!
//! ```
//! use std::sync::Arc;
//! use unipgas_core::loopback::{Loopback, LoopbackNet};
//! use unipgas_core::{Engine, Flags, Local, Remote, Rights};
//!
//! // Two processes, both played by this one.
//! let net = Arc::new(LoopbackNet::default());
//! let here = Engine::new(vec![Arc::new(Loopback::join(&net))])?;
//! let there = Engine::new(vec![Arc::new(Loopback::join(&net))])?;
//! let memory = there.allocate(4096, Rights::FULL)?;
//!
//! let region = here.connect(&there.address()?)?.import(&memory.key())?;
//! let endpoint = here.endpoint(16)?;
//! let bytes = *b"hello";
//! let from = Local { ptr: bytes.as_ptr().cast_mut(), desc: 0 };
//! let to = Remote { region: &region, offset: 64 };
//! // SAFETY: the bytes stay until the operation is complete, as it is when the call returns over this network.
//! unsafe { endpoint.put(from, to, bytes.len(), Flags::empty(), 0)? };
//! // SAFETY: in bounds, and nobody writes there any more.
//! let come = unsafe { std::slice::from_raw_parts(memory.base().add(64), bytes.len()) };
//! assert_eq!(come, b"hello");
//! # Ok::<(), unipgas_core::Error>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "unipgas runs on Linux: use a container, such as docker run -it -v \"$PWD\":/unipgas -w /unipgas rust"
);

pub use unipgas_base::copy::copy;
pub use unipgas_base::{
    AtomicOp, AtomicType, Deadline, Error, Result, Rights, alarm, atomic, bell, biased, cache,
    calls, combine, counters, deadline, descriptor, driver, dynamic, error, exit, fenced,
    fork_closed_fd, functions_of_library, interface, issue_totals, leave_unfinished, lines,
    liveness_timer, log, nap, on_line, on_pair, own_thread, pages, panics, polled_line, print,
    process, prototype, random, reclaimer, refused, stop, tell, tell_lines, tell_refusal, trace,
    user_memory, userfaultfd, variables, wait, waiters, waits, word_ring, words,
};
pub use unipgas_engine::{
    LISTENER, Service, agent, batch, bundle, circuit, deferred_op, directory, endpoint, engine,
    fast_path, host, inbox, kernel_copy, loopback, mapped, notification, op, pending_fetch, region,
    transport, wait_point, watcher,
};
pub use unipgas_job::{bootstrap, job, numa, registry, rendezvous};
pub use unipgas_port::{gate, steps};
pub use unipgas_port::{keyring, operations, peer_numbers, port, reception, tally, trigger_queue};
pub use unipgas_schedule as schedule;
pub use unipgas_streams as streams;

pub use batch::{Batch, MoreBatch};
pub use bundle::{Address, RegionKey};
pub use endpoint::Endpoint;
pub use engine::{Connection, Engine};
pub use fast_path::{FastPath, Posting};
pub use group::RankGroup;
pub use notification::NotificationArray;
pub use op::{AtomicRequest, Completion, Flags, Local, Notice, Outcome, Remote};
pub use region::RemoteRegion;
pub use unipgas_engine::Region;
pub use unipgas_world::{central, group, host_memory, imports, published, world};
pub use world::World;

/// Two-sided messages, and messages among ranks.
pub mod message {
    pub use unipgas_message::{
        ANY_TAG, APART, Collective, CollectiveEnd, CollectiveGroup, CollectivePlan, CollectiveUser,
        Collectives, Drawn, Envelope, GroupCalls, GroupMember, InboxMessage, MARK, Mailbox,
        MessageInbox, Mode, Multicast, OpenRequestResult, OpenRequests, Pattern, PeerMailbox,
        Peers, Pool, PoolTicket, Precedence, ReceiveTicket, Received, RequestEnd, RequestTicket,
        SendTicket, Shape, Share, Wanted,
    };
    pub use unipgas_world::{Lane, Messenger, Needs};
}

/// The engine as an interface of Rust programs.
pub const INTERFACE: interface::Interface = interface::Interface {
    calls: &[],
    crates: &[
        "unipgas_core::",
        "unipgas_world::",
        "unipgas_port::",
        "unipgas_message::",
        "unipgas_job::",
        "unipgas_streams::",
        "unipgas_engine::",
        "unipgas_base::",
    ],
    variables: &[],
};
