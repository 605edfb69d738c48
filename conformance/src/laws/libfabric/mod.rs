//! The laws of libfabric: fi_atomic(3) of 1.8 sentence by sentence, and what its programs need beside it.

#[macro_use]
mod kit;
mod contention;
mod library;
mod station;

use crate::law::Law;

/// All of them, by subject.
pub fn laws() -> Vec<&'static Law> {
    [contention::laws()].concat()
}
