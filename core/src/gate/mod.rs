//! Barrier gates.

pub mod exact;
