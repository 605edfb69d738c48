//! The lowest layer of unipgas. It knows no transport, job or interface, and depends on no other crate of unipgas.
//!
//! - Memory of this process: [`copy`], [`atomic`] operations, the program's mappings ([`user_memory`]).
//! - Waiting and waking: [`bell`], [`wait`], [`alarm`], the progress thread ([`driver`]).
//! - Structures that threads share without locks: [`biased`], [`reclaimer`], [`calls`].
//! - The process: descriptors, threads, variables of the environment, log, [`trace`], published state ([`waits`], [`counters`], [`issue_totals`]).
//!
//! ```
//! use unipgas_base::atomic::{AtomicOp, AtomicType, supported};
//!
//! assert_eq!(AtomicType::I32.size(), 4);
//! assert!(supported(AtomicOp::Sum, AtomicType::F64));
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "unipgas runs on Linux: use a container, such as docker run -it -v \"$PWD\":/unipgas -w /unipgas rust"
);

pub mod descriptor;
pub mod dynamic;
pub mod error;
pub mod exit;
pub mod fenced;
pub mod fork_closed_fd;
pub mod interface;
pub mod log;
mod memory;
pub mod own_thread;
pub mod panics;
pub mod process;
pub mod random;
pub mod refused;
pub mod stop;
pub mod sync;
mod tell;
pub mod trace;
pub mod variables;

pub use memory::{
    atomic, cache, combine, copy, exclusive, lines, pages, polled_line, prefetch, rights,
    user_memory, userfaultfd, word_ring, words,
};
pub use sync::{
    alarm, bell, biased, calls, counters, deadline, driver, issue_totals, liveness_timer, nap,
    post_counter, reclaimer, wait, waiters, waits,
};

pub use atomic::{AtomicOp, AtomicType};
pub use deadline::Deadline;
pub use error::{Error, Result};
pub use rights::Rights;
pub use tell::{leave_unfinished, print, tell, tell_lines, tell_refusal};
