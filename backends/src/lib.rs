//! The table of backends, and the log on standard error: the parts of unipgas that every program links beside the engine.
//!
//! ```
//! unipgas_backends::init();
//! assert!(unipgas_core::registry::backends().iter().any(|backend| backend.name == "shm"));
//! ```

pub use unipgas_chaos as chaos;
pub use unipgas_ofi as ofi;
pub use unipgas_opaque as opaque;
pub use unipgas_shm as shm;
pub use unipgas_tofu as tofu;
pub use unipgas_verbs as verbs;

mod log;

use std::any::Any;
use std::sync::Arc;

use unipgas_core::registry::{Backend, Opening, register, register_interface};
use unipgas_core::transport::Transport;
use unipgas_core::{Error, Result};

/// Fills the table of backends, and writes the log where UNIPGAS_LOG asks for it. Calls after the first change nothing.
pub fn init() {
    unipgas_core::log::listen_by(log::listen);
    register(Backend {
        name: "shm",
        open: open_shm,
        probe: |_| unipgas_shm::probe(),
        network: false,
    });
    register(Backend {
        name: "chaos",
        open: open_chaos,
        probe: |_| unipgas_shm::probe(),
        network: false,
    });
    register(Backend {
        name: "tofu",
        open: open_tofu,
        probe: |_| unipgas_tofu::probe(),
        network: true,
    });
    register_interface("tofu", utofu_below);
    register(Backend {
        name: "verbs",
        open: open_verbs,
        probe: |_| unipgas_verbs::probe(),
        network: true,
    });
    register(Backend {
        name: "ofi",
        open: open_ofi,
        probe: unipgas_ofi::probe,
        network: true,
    });
    register(Backend {
        name: "opaque",
        open: open_opaque,
        probe: |_| unipgas_opaque::probe(),
        network: true,
    });
}

/// uTofu over uTofu is the machine's own.
fn utofu_below() -> Option<&'static (dyn Any + Send + Sync)> {
    Some(unipgas_tofu::functions()?)
}

fn open_tofu(opening: &Opening) -> Result<Arc<dyn Transport>> {
    Ok(Arc::new(unipgas_tofu::Tofu::from_env(opening)?))
}

fn open_verbs(opening: &Opening) -> Result<Arc<dyn Transport>> {
    Ok(Arc::new(unipgas_verbs::Verbs::from_env(opening)?))
}

fn open_ofi(opening: &Opening) -> Result<Arc<dyn Transport>> {
    Ok(Arc::new(unipgas_ofi::Ofi::from_env(opening)?))
}

fn open_opaque(opening: &Opening) -> Result<Arc<dyn Transport>> {
    Ok(Arc::new(unipgas_opaque::Opaque::from_env(opening)?))
}

/// What the backend `chaos` is to do, by the environment. Errors: a line about UNIPGAS_CHAOS that says what would be right.
pub fn chaos_config() -> Result<unipgas_chaos::ChaosConfig> {
    let config = unipgas_chaos::ChaosConfig::from_env()?;
    match config.over.as_deref() {
        None | Some("shm" | "opaque" | "ofi" | "verbs" | "tofu") => Ok(config),
        Some(over) => Err(wrong_over(over, "must be shm, opaque, verbs, ofi or tofu")),
    }
}

fn wrong_over(over: &str, must: &str) -> Error {
    Error::InvalidArgument(format!("UNIPGAS_CHAOS: over={over}: {must}"))
}

fn open_chaos(opening: &Opening) -> Result<Arc<dyn Transport>> {
    let config = chaos_config()?;
    let below = match config.over.as_deref() {
        // It would be there twice, once without chaos.
        Some(over @ ("opaque" | "ofi" | "verbs" | "tofu")) if opening.other_hosts => {
            return Err(wrong_over(
                over,
                "must be shm where the job has other hosts",
            ));
        }
        Some("opaque") => open_opaque(opening)?,
        Some("ofi") => open_ofi(opening)?,
        Some("verbs") => open_verbs(opening)?,
        Some("tofu") => open_tofu(opening)?,
        _ => open_shm(opening)?,
    };
    Ok(Arc::new(unipgas_chaos::Chaos::wrap(below, config)))
}

fn open_shm(opening: &Opening) -> Result<Arc<dyn Transport>> {
    Ok(Arc::new(unipgas_shm::Shm::open(opening.local_processes)?))
}
