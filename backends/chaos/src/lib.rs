//! A backend that wraps another one and delays, reorders, splits and kills, from a seed.
//!
//! Shared memory completes in the call; nothing else does. [`Chaos`] makes any backend behave like the others: an operation is
//! mostly [`Outcome::Pending`](unipgas_core::Outcome::Pending), is carried out some polls later (or by a background thread, if
//! nobody polls), may overtake whatever [`Channel`](unipgas_core::transport::Channel) allows it to overtake, and may be seen half
//! done where a transfer may be. Regions of peers are never mapped, whatever the backend below does: who imports one can reach it by
//! the channel only. What is posted stays in the process until it is carried out, and dies with it. What it does is drawn from [`ChaosConfig::seed`], so that a failing run can be repeated as far
//! as the scheduling of threads allows.
//!
//! ```
//! use std::sync::Arc;
//! use unipgas_chaos::{Chaos, ChaosConfig};
//! use unipgas_core::Engine;
//! use unipgas_core::loopback::{Loopback, LoopbackNet};
//!
//! let net = Arc::new(LoopbackNet::default());
//! let chaos = Chaos::wrap(Arc::new(Loopback::join(&net)), ChaosConfig::seeded(7));
//! let engine = Engine::new(vec![Arc::new(chaos)])?;
//! assert!(engine.is_driven());
//! # Ok::<(), unipgas_core::Error>(())
//! ```

mod channel;
mod config;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hidden;
mod plan;
mod queue;
mod shared;
mod transport;
mod work;

pub use config::ChaosConfig;
pub use transport::Chaos;
