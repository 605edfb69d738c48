//! The laws of GASPI, part one: chapters 5 to 8 and 10 to 13.

#[macro_use]
mod kit;
mod notify;
mod process;
mod queue;
mod segment;
mod transfer;

use crate::law::Law;

/// All of them, by chapter.
pub fn laws() -> Vec<&'static Law> {
    [process::laws(), segment::laws(), transfer::laws(), notify::laws(), queue::laws()].concat()
}
