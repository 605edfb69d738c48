//! The backend over devices of software, which count what they are asked for and fail on demand.

mod counts;
mod credits;
mod deaths;
mod desk;
mod device;
mod failures;
mod forks;
mod node;
mod process;
mod raw;
mod refusals;
