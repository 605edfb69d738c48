//! Benchmarks of unipgas beside the machine's limit and its peers.
//!
//! One run measures three kinds of columns between processes that are pinned to cores. Bare and ours run in the same processes, a few milliseconds
//! apart. Peers run in their own processes between two such jobs. Every figure is a median, every ratio a ratio of medians. The columns are:
//! - *bare*, the limits of the machine: the same exchange, written by hand on plain shared memory
//! - *ours*: the core's Rust interface, and the C interfaces of the installed library
//! - *peers*: other installed libraries
//!
//! ```
//! // What `unipgas bench` takes.
//! let command = unipgas_bench::cli::command();
//! assert!(command.get_arguments().any(|option| option.get_id() == "json"));
//! ```

mod arena;
mod bare;
mod bench;
mod case;
pub mod cli;
mod compare;
mod ctx;
mod file;
mod html;
mod job;
mod launch;
mod machine;
mod model;
mod network;
mod ours;
mod peers;
mod plot;
mod record;
mod samples;
mod table;
mod target;
mod worker;
