//! Description of the backend.

use std::sync::Arc;

use unipgas_core::registry::{self, Backend};
use unipgas_core::variables::Variable;
use unipgas_core::{Error, Result};

use crate::{Chaos, ChaosConfig};

/// Description of this backend, for the engine.
pub const BACKEND: Backend = Backend {
    name: "chaos",
    old_name: None,
    tag: None,
    variables: &[Variable::new(
        "UNIPGAS_CHAOS",
        "faults that the backend chaos injects: kill=RANK@OP,stall=RANK@OP:MS,delay=N,split=0,reorder=0,over=BACKEND",
    )],
    open: |opening| Ok(Arc::new(Chaos::from_env(opening)?)),
    probe: |other_hosts| {
        let below = below(&ChaosConfig::default(), other_hosts).map_err(|e| e.to_string())?;
        (below.probe)(other_hosts)
    },
    network: false,
    native: None,
};

/// The backend that [`ChaosConfig::over`] names, or the default. `other_hosts`: the job has processes on other hosts.
///
/// # Errors
/// [`Error::InvalidArgument`] for another name, and for a network if the job has other hosts: the process would open that network twice, once without chaos.
pub(crate) fn below(config: &ChaosConfig, other_hosts: bool) -> Result<Backend> {
    let around = |backend: &Backend| backend.tag.is_some();
    let backends: Vec<Backend> = registry::backends().into_iter().filter(around).collect();
    let wrong = |must: String| {
        let over = config.over.as_deref().unwrap_or_default();
        Error::InvalidArgument(format!("UNIPGAS_CHAOS: over={over}: {must}"))
    };
    let found = match &config.over {
        None => backends.first(),
        Some(over) => registry::find(over, &backends),
    };
    match found {
        Some(backend) if backend.network && other_hosts => Err(wrong(format!(
            "must be {} where the job has other hosts",
            backends[0].name
        ))),
        Some(backend) => Ok(*backend),
        None => {
            let names: Vec<_> = backends.iter().map(|backend| backend.name).collect();
            Err(wrong(format!("must be one of {}", names.join(", "))))
        }
    }
}

/// Checks the variables of this backend. Errors: a line with the wrong variable and the valid values.
pub fn check() -> Result<()> {
    below(&ChaosConfig::from_env()?, false).map(drop)
}
