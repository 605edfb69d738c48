//! The laws of the specifications, run on every interface and backend: `unipgas conform`.

pub mod law;
pub mod laws;
mod place;

pub use law::{Api, Ctx, Law, Random, Verdict};
