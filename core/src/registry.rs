//! Which backends this program has. The engine knows none by name; the facade library fills this table, and interfaces
//! open what the environment asks for.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::rendezvous::{JobName, Launcher};
use crate::transport::Transport;
use crate::{Error, Result, variables};

/// What a backend is told when it is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// Processes of the job that run on this machine.
    pub local_processes: usize,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Backend {
    /// Its name, as in `unipgas run --backend`.
    pub name: &'static str,
    /// Opens it.
    pub open: fn(&Opening) -> Result<Arc<dyn Transport>>,
    /// Says what is missing where it cannot work.
    pub probe: fn() -> std::result::Result<(), String>,
}

static BACKENDS: Mutex<Vec<Backend>> = Mutex::new(Vec::new());

/// Adds a backend; a second one of the same name replaces the first. The first one added is the default.
pub fn register(backend: Backend) {
    let mut backends = BACKENDS.lock();
    match backends.iter_mut().find(|b| b.name == backend.name) {
        Some(row) => *row = backend,
        None => backends.push(backend),
    }
}

/// All backends, the default first.
pub fn backends() -> Vec<Backend> {
    BACKENDS.lock().clone()
}

/// Opens the backend that UNIPGAS_BACKEND names, or the default. Errors: [`Error::InvalidArgument`] for a name that is not in
/// the table.
pub fn open_from_env(opening: &Opening) -> Result<Arc<dyn Transport>> {
    // One process of a job tells; that is `unipgas run` if it has started it.
    let tells = |job: &JobName| job.launcher() != Launcher::Unipgas && job.rank().unwrap_or(0) == 0;
    if JobName::from_env().is_ok_and(|job| tells(&job)) {
        variables::tell_of_unknown();
    }
    let wish = variables::get("UNIPGAS_BACKEND")?;
    let backends = backends();
    let backend = match &wish {
        Some(name) => backends.iter().find(|b| b.name == name),
        None => backends.first(),
    };
    let backend = backend.ok_or_else(|| {
        let names: Vec<_> = backends.iter().map(|b| b.name).collect();
        Error::InvalidArgument(format!(
            "UNIPGAS_BACKEND={} is not a backend of this library; it has: {}",
            wish.unwrap_or_default(),
            names.join(", ")
        ))
    })?;
    (backend.open)(opening)
}
