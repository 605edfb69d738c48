//! The job: which rank this process is, of how many, and how ranks find each other before they can communicate.
pub mod board;
mod context;
pub mod launch;

pub use board::{Board, RankState};
pub use context::Job;
pub(crate) use context::process_ended;
pub use launch::Launch;
