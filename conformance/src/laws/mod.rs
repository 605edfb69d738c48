//! The laws.

pub mod core;
pub mod gaspi;

use crate::law::Law;

/// All laws, in the order in which they are shown.
pub fn all() -> Vec<&'static Law> {
    let mut laws: Vec<&'static Law> = core::laws();
    laws.extend(gaspi::laws());
    laws
}
