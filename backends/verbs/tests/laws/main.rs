//! The backend over software devices, which count operations and fail on demand.

mod choice;
mod counts;
mod credits;
mod deaths;
mod desk;
mod device;
mod failures;
mod forks;
mod many;
mod node;
#[path = "../../../doubles/verbs/tests/laws/process.rs"]
mod process;
mod raw;
mod refusals;
mod releases;
