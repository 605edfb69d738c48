//! A backend that wraps another one and delays, reorders, splits and kills, from a seed.
//!
//! Shared memory completes operations in the call; other networks do not. [`Chaos`] makes any backend behave like them:
//!
//! - Most operations are [`Outcome::Pending`](unipgas_core::Outcome::Pending). They are carried out some polls later, or by a background thread if
//!   the program does not poll.
//! - An operation may overtake others as far as [`Channel`](unipgas_core::transport::Channel) allows.
//! - A transfer may be visible in part, if it need not be atomic.
//! - Regions of peers are never mapped, even if the backend below maps them. The channel is the only way to them.
//! - Queued operations stay in the process until they are carried out, and die with it.
//!
//! All decisions are drawn from [`ChaosConfig::seed`]. A failing run can be repeated as far as thread scheduling allows.
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

mod backend;
mod channel;
mod config;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hidden;
mod plan;
mod queue;
mod shared;
mod transport;
mod work;

pub use backend::{BACKEND, check};
pub use config::ChaosConfig;
pub use transport::Chaos;
