//! The engine of this process, shared by all its domains. The first domain opens it.

use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::job::{cores_of_a_job, tell_waits};
use unipgas_core::registry::{Opening, is_default_alone, open_from_env};
use unipgas_core::rendezvous::JobName;
use unipgas_core::{Engine, Error, bootstrap, exit, variables};

use crate::status::Result;

/// Assumed number of processes, if neither the launcher nor the job name gives it.
const UNKNOWN: usize = 2;

struct Opened {
    pid: u32,
    engine: Arc<Engine>,
}

static OPENED: Mutex<Option<Opened>> = Mutex::new(None);

/// The engine. The child of a fork opens its own. Errors: the backend cannot be opened; a message on standard error gives the reason.
pub fn engine() -> Result<Arc<Engine>> {
    open().map_err(|error| {
        // The conversion to `Errno` reports these two.
        if !matches!(error, Error::Os(_) | Error::Unreachable(_)) {
            unipgas_core::tell(&format!("fi_domain: {error}"));
        }
        error.into()
    })
}

/// Whether peers may be processes of other hosts.
pub(crate) fn has_other_hosts() -> std::result::Result<bool, Error> {
    let job = JobName::from_env()?;
    are_elsewhere(&job, bootstrap::neighbours(&job)?)
}

/// Whether operations complete within their calls, as in the memory of one host.
pub(crate) fn is_immediate() -> bool {
    match opened() {
        Some(engine) => !engine.is_driven(),
        None => has_other_hosts() == Ok(false) && is_default_alone() == Ok(true),
    }
}

/// The engine, if this process has opened it.
pub(crate) fn opened() -> Option<Arc<Engine>> {
    own(&OPENED.lock())
}

fn own(opened: &Option<Opened>) -> Option<Arc<Engine>> {
    let opened = opened.as_ref();
    let own = opened.filter(|opened| opened.pid == std::process::id());
    own.map(|own| own.engine.clone())
}

/// Whether other hosts have processes, with `here` processes on this host.
fn are_elsewhere(job: &JobName, here: Option<u32>) -> std::result::Result<bool, Error> {
    match job.rank() {
        Some(_) => Ok(here.is_none() || here < job.size()),
        // The processes of a job without ranks may be anywhere. A user who names networks wants other hosts.
        None => Ok(variables::get("UNIPGAS_NETWORKS")?.is_some_and(|names| names != "none")),
    }
}

fn open() -> std::result::Result<Arc<Engine>, Error> {
    let mut opened = OPENED.lock();
    if let Some(engine) = own(&opened) {
        return Ok(engine);
    }
    let job = JobName::from_env()?;
    // The launcher is not contacted for this: that would disturb an MPI library that uses this provider.
    let here = bootstrap::neighbours(&job)?;
    let processes = here.or(job.size()).map_or(UNKNOWN, |here| here as usize);
    let opening = Opening {
        other_hosts: are_elsewhere(&job, here)?,
        ..Opening::on_one_host(processes)
    };
    let engine = Arc::new(Engine::new(open_from_env(&opening)?)?);
    tell_waits();
    engine.set_crowded(processes > cores_of_a_job());
    let before = opened.replace(Opened {
        pid: std::process::id(),
        engine: engine.clone(),
    });
    match before {
        // The memory of the parent's engine still belongs to the parent: the child must not free it.
        Some(parents) => std::mem::forget(parents),
        None => {
            // SAFETY:
            // - the handler takes no argument, and uses only memory that is never freed.
            unsafe { libc::atexit(leave) };
        }
    }
    Ok(engine)
}

extern "C" fn leave() {
    exit::run(|| {
        if let Some(engine) = OPENED.try_lock().and_then(|opened| own(&opened)) {
            crate::service::leave();
            engine.leave();
        }
    });
}
