//! A model of the Tofu interconnect D (TofuD), the network of A64FX machines.
//!
//! It computes, and measures nothing. What it computes from is in [`Figures`], each figure with its source: some are published, others are
//! assumed, and can be set.
//!
//! - A job is a whole box of nodes of the six-dimensional mesh/torus ([`TorusShape`]), with processes on them ([`JobLayout`]).
//! - A packet's way is that of the uTofu guide §2.4 ([`route`]): to the path's A, B, C, along X, Y, Z, to the target's A, B, C.
//! - A put of `n` bytes over `h` hops takes `put + (h - 1) hop + (n - 8) / b`, with `b` the bandwidth of a put through one network interface (TNI)
//!   ([`Figures::put`]).
//! - A [`TrafficPattern`] takes the latency of its longest way, and as long as its bottleneck is busy: a link, a TNI, what a node can inject or take,
//!   or the processor that posts ([`predict`](predict::predict)).
//! - Collective operations are simulated ([`sim`]) along the schedules that the engine's groups walk ([`unipgas_schedule`]), and the best one for a size is
//!   chosen from that ([`collectives`]).
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

/// What is wrong, in one line that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(Error(text.into()))
}
