//! The laws of the specifications, run on every interface and backend: `unipgas conform`.
//!
//! A [`Law`] is a sentence of a specification with a body that runs on several processes. [`matrix`] runs laws on backends.
//! [`runner`] starts the jobs and determines the results. [`cli`] is the command.
//!
//! ```
//! use unipgas_conformance::laws;
//!
//! for law in laws::all() {
//!     println!("{} ({}): {}", law.id, law.clause, law.says);
//! }
//! ```

pub mod clauses;
pub mod cli;
mod closed;
pub mod coverage;
pub(crate) mod growth;
pub mod hosts;
pub mod html;
mod job;
pub(crate) mod kit;
pub mod law;
pub mod laws;
pub(crate) mod library;
pub mod matrix;
pub mod pinned;
mod place;
pub mod report;
pub mod runner;
pub mod sentences;
mod stall;
mod worker;

pub use law::{Api, Ctx, Law, Random, Verdict, not_offered};
