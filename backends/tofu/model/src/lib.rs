//! A model of the Tofu interconnect D (TofuD), the network of A64FX machines.
//!
//! It computes, and measures nothing. The figures of the model are in [`Figures`], each with its source. Some are published; others are assumed. All can be
//! set.
//!
//! - A job occupies a whole box of nodes of the six-dimensional mesh/torus ([`TorusShape`]), with processes on them ([`JobLayout`]).
//! - A packet takes the route of the uTofu guide §2.4 ([`route`]): to the path's A, B, C, along X, Y, Z, to the target's A, B, C.
//! - A put of `n` bytes over `h` hops takes `put + (h - 1) hop + (n - 8) / b`, with `b` the bandwidth of a put through one network interface (TNI)
//!   ([`Figures::put`]).
//! - The time of a [`TrafficPattern`] is the latency of its longest route plus the busy time of its bottleneck. This is a link, a TNI, the injection or
//!   reception of a node, or the processor that posts ([`predict`](predict::predict)).
//! - Collective operations are simulated ([`sim`]) along the schedules that the engine's groups execute ([`unipgas_schedule`]). The simulation selects the
//!   best schedule for a size ([`collectives`]).
//!
//! ```
//! use unipgas_tofud::predict::predict;
//! use unipgas_tofud::{Figures, JobLayout, TrafficPattern};
//!
//! let job = JobLayout::full("4x2x3x2x3x2".parse()?, 1)?;
//! let near = predict(&job, &Figures::default(), TrafficPattern::Ring, 1 << 20)?;
//! println!("{near:?}");
//! # Ok::<(), unipgas_tofud::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod collectives;
pub mod figures;
pub mod job;
pub mod pattern;
pub mod predict;
pub mod route;
pub mod shape;
pub mod sim;
pub mod table;

pub use figures::Figures;
pub use job::{JobLayout, RankOrder};
pub use pattern::TrafficPattern;
pub use route::PathRule;
pub use shape::TorusShape;

/// An error: one line with the problem and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(Error(text.into()))
}
