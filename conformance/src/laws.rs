//! The laws.

pub mod core;
mod differential;
mod exits;
pub mod gaspi;
pub mod libfabric;
mod ranges;
pub mod rcce;
mod selftest;
pub mod utofu;

use crate::law::Law;
pub use ranges::no_memory;

/// All laws, in the order in which they are shown.
pub fn all() -> Vec<&'static Law> {
    let mut laws: Vec<&'static Law> = core::laws();
    laws.extend(gaspi::laws());
    laws.extend(utofu::laws());
    laws.extend(rcce::laws());
    laws.extend(libfabric::laws());
    laws.extend(differential::laws());
    laws.extend(exits::laws());
    laws
}

/// The law of this name. Those by which the framework tests itself are found here and are not listed.
pub fn find(id: &str) -> Option<&'static Law> {
    all()
        .into_iter()
        .chain(selftest::LAWS)
        .chain(core::BREAKABLE)
        .chain(rcce::VICTIMS)
        .chain(rcce::JOBS)
        .chain(exits::JOBS)
        .find(|law| law.id == id)
}
