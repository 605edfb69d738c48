//! The table of backends, and the log on standard error: the parts of unipgas that every program links beside the engine.
//!
//! ```
//! unipgas_backends::init();
//! assert!(unipgas_core::registry::backends().iter().any(|backend| backend.name == "shm"));
//! ```

pub use unipgas_chaos as chaos;
pub use unipgas_ofi as ofi;
pub use unipgas_shm as shm;
pub use unipgas_streams_backend as streams;
pub use unipgas_tofu as tofu;
pub use unipgas_verbs as verbs;

mod log;

use unipgas_core::interface;
use unipgas_core::registry::{Backend, register};

/// The backends. The first is the default; networks are preferred in this order.
pub const BACKENDS: &[Backend] = &[
    shm::BACKEND,
    chaos::BACKEND,
    tofu::BACKEND,
    verbs::BACKEND,
    ofi::BACKEND,
    streams::BACKEND,
];

/// Fills the table of backends, and writes the log where UNIPGAS_LOG asks for it. Calls after the first change nothing.
pub fn init() {
    unipgas_core::log::listen_by(log::listen);
    interface::contribute(unipgas_core::INTERFACE);
    BACKENDS.iter().copied().for_each(register);
}
