//! RCCE V1.0.13 and iRCCE 2.0 on the unipgas engine, in C ([`ffi`], the headers in `include/`) and in Rust ([`Ue`]).
//!
//! This crate maps message-passing buffers (MPBs), flags, locks, registers and communicators to the engine's regions, notices, atomics and groups. It maps
//! the engine's errors to return codes. `unipgas-core` transfers the bytes and waits. "Manual" is the iRCCE manual, version 2.0.
//!
//! ```no_run
//! use unipgas_ircce::launch::LaunchSettings;
//! use unipgas_ircce::{Failure, Ue};
//!
//! let ue = Ue::start(&LaunchSettings::from_env().expect("right variables"), &[])?;
//! let (place, flag) = (ue.malloc(64).expect("room"), ue.flag_alloc()?);
//! let right = (ue.id() + 1) % ue.num();
//! ue.put(place, &[1; 64], right)?;
//! ue.flag_write(flag, 1, right)?;
//! ue.wait_until(flag, 1)?;
//! ue.finalize()?;
//! # Ok::<(), Failure>(())
//! ```

mod air;
mod collective;
pub mod comm;
pub mod environment;
mod extents;
pub mod ffi;
pub mod flag;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod interface;
pub mod launch;
mod lock;
mod looks;
pub mod message;
pub mod mpb;
mod places;
pub mod power;
pub mod process;
pub mod request;
pub mod scope;
mod shared;
pub mod status;
mod through_mpb;
pub mod wait_list;

pub use air::REGISTERS;
pub use collective::Reduction;
pub use comm::{Comm, Communicator};
pub use environment::current;
pub use flag::Flag;
pub use interface::INTERFACE;
pub use message::MessageSource;
pub use mpb::MpbOffset;
pub use process::Ue;
pub use scope::RequestScope;
pub use shared::SHARED_LEN;
pub use status::{ErrorCode, Failure, Result};
pub use through_mpb::Channel;
pub use wait_list::WaitList;
