//! A job and its processes: rank and size, the board that launcher and ranks share, and the exchange of addresses at the start.
//!
//! - [`bootstrap`]: rank, size and first exchange, from the board of `unipgas run`, PMIx or PMI, or for a process alone.
//! - [`job`]: this process's view of its job. [`rendezvous`]: processes of one machine without ranks find each other by a file.
//! - [`registry`]: the table of backends, and the choice among them. [`numa`]: processors and NUMA nodes.
//!
//! It depends on `unipgas-base` and `unipgas-engine`, and knows no interface.
//!
//! ```
//! use unipgas_job::rendezvous::JobName;
//!
//! let name = JobName::by_hand("example");
//! assert_eq!((name.name(), name.rank()), ("example", None));
//! ```

pub mod bootstrap;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod job;
pub mod numa;
pub mod registry;
pub mod rendezvous;
