//! unipgas: one-sided communication for parallel programs, one engine under several interfaces.
//!
//! This crate is the facade: it links the interfaces and the backends into one library, so that a process which uses two
//! interfaces has one engine.
//!
//! A program of GASPI, one process of several that `unipgas run -n 4 ./program` starts:
//!
//! ```no_run
//! use unipgas::gaspi::safe::Gaspi;
//!
//! unipgas::init();
//! let gaspi = Gaspi::init()?;
//! println!("{} of {}", gaspi.rank(), gaspi.size());
//! # Ok::<(), unipgas::gaspi::safe::Error>(())
//! ```

pub use unipgas_chaos as chaos;
pub use unipgas_core as core;
#[cfg(feature = "gaspi")]
pub use unipgas_gaspi as gaspi;
#[cfg(feature = "ircce")]
pub use unipgas_ircce as ircce;
#[cfg(feature = "libfabric")]
pub use unipgas_libfabric as libfabric;
pub use unipgas_ofi as ofi;
pub use unipgas_opaque as opaque;
pub use unipgas_shm as shm;
pub use unipgas_tofu as tofu;
#[cfg(feature = "utofu")]
pub use unipgas_utofu as utofu;
pub use unipgas_verbs as verbs;

mod log;

use std::any::Any;
use std::sync::Arc;

use unipgas_core::registry::{Backend, Opening, register, register_interface};
use unipgas_core::transport::Transport;
use unipgas_core::{Error, Result};

/// Fills the table of backends. The shared and the static library do this when they are loaded; Rust programs call it first.
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

extern "C" fn at_load() {
    init();
}

// SAFETY:
// - the section holds pointers to functions without arguments that the loader calls once; `at_load` needs nothing that is set
//   up later than the C library.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
