//! uTofu on the unipgas engine, in C ([`ffi`], the header in `include/`) and in Rust.
//!
//! This crate translates uTofu's terms to the engine's: node coordinates, VCQ and VBG ids, STADDs, flags, descriptors, return codes.
//! The engine's terms are places, ports, keys, commands and gates. `unipgas-core` moves the bytes, waits, and has the state shared with other processes.
//! "Guide" is the uTofu User's Guide (J2UL-2567-01ENZ0).
//!
//! ```no_run
//! use unipgas_utofu::owned::VcqHandle;
//! use unipgas_utofu::vcq::VcqFlags;
//!
//! let vcq = VcqHandle::create(0, None, VcqFlags::empty())?;
//! println!("peers reach it as {:?}", vcq.id());
//! # Ok::<(), unipgas_utofu::ReturnCode>(())
//! ```

mod asynchronous;
pub mod caps;
pub mod command;
pub mod environment;
pub mod ffi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod ids;
mod interface;
mod locked;
pub mod logical;
pub mod owned;
pub mod process;
mod recent;
pub mod shape;
pub mod status;
pub mod vbg;
pub mod vcq;

pub use ids::{VbgId, VcqId};
pub use interface::INTERFACE;
pub use owned::{OwnedVbgs, VcqHandle};
pub use process::{UtofuProcess, current};
pub use shape::{Coords, NetworkShape};
pub use status::{Result, ReturnCode};
pub use vcq::Vcq;

/// Whether calls of the C interface go to the machine's own library instead of the engine.
pub fn is_native() -> bool {
    ffi::native::get().is_some()
}
