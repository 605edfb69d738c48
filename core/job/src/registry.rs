//! The backends of this program. The engine knows none by name: each backend describes itself in a [`Backend`], and the facade library fills this table.
//! Interfaces open the backends that the job needs and the environment names.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bootstrap;
use crate::job::Job;
use crate::rendezvous::{JobName, Launcher};
use unipgas_base::variables::{self, Variable};
use unipgas_base::{Error, Result, log};
use unipgas_engine::bundle::{Bundle, Tag};
use unipgas_engine::host;
use unipgas_engine::transport::Transport;

/// Parameters for opening a backend.
#[derive(Clone)]
pub struct Opening {
    /// Processes of the job that run on this host.
    pub local_processes: usize,
    /// The job has processes on other hosts.
    pub other_hosts: bool,
    /// Number of earlier processes in this one's place. Messages to them must not reach this process.
    pub incarnation: u32,
    /// The process's first transport; this one reaches the same memory. `None` for the first transport itself.
    pub beside: Option<Arc<dyn Transport>>,
}

impl Opening {
    /// For one host with `processes` processes of the job.
    pub fn on_one_host(processes: usize) -> Self {
        Opening {
            local_processes: processes,
            other_hosts: false,
            incarnation: 0,
            beside: None,
        }
    }

    /// For a process of `job`.
    pub fn of(job: &Job) -> Self {
        Opening {
            other_hosts: job.bootstrap().spans_hosts(),
            incarnation: job.bootstrap().incarnation(),
            ..Opening::on_one_host(job.neighbours() as usize)
        }
    }
}

/// Description of a backend.
#[derive(Clone, Copy)]
pub struct Backend {
    /// Its name, as in `unipgas run --backend`.
    pub name: &'static str,
    /// Its name in earlier releases; [`find`] accepts it.
    pub old_name: Option<&'static str>,
    /// Its number in addresses and keys, unique among the backends. `None`: a backend around another one.
    pub tag: Option<Tag>,
    /// Its environment variables.
    pub variables: &'static [Variable],
    /// Opens it.
    pub open: fn(&Opening) -> Result<Arc<dyn Transport>>,
    /// Gives the missing requirement if the backend cannot work. The argument: between hosts.
    pub probe: fn(bool) -> std::result::Result<(), String>,
    /// It reaches other hosts.
    pub network: bool,
    /// The native functions of an interface, if its network has them.
    pub native: Option<Native>,
}

/// Gives the network's native functions of an interface, in the type of the crate that declares the interface. `None`: the network cannot be used.
pub type Native = fn() -> Option<&'static (dyn Any + Send + Sync)>;

static BACKENDS: Mutex<Vec<Backend>> = Mutex::new(Vec::new());

/// Adds a backend and its variables, or replaces the backend of the same name. The first backend is the default. Networks are preferred in this order.
///
/// # Panics
/// If another backend has the same tag.
pub fn register(backend: Backend) {
    variables::contribute(backend.variables);
    let mut backends = BACKENDS.lock();
    let other = (backends.iter())
        .find(|b| b.tag.is_some() && b.tag == backend.tag && b.name != backend.name);
    assert!(
        other.is_none(),
        "{}: another backend has its tag",
        backend.name
    );
    match backends.iter_mut().find(|b| b.name == backend.name) {
        Some(row) => *row = backend,
        None => backends.push(backend),
    }
}

/// The native interface of the backend that reaches the other processes of the job, or its other hosts. It is the backend of UNIPGAS_BACKEND, or the first
/// usable network. An unknown backend gives `None`. Errors: as [`open_from_env`].
pub fn interface_below() -> Result<Option<&'static (dyn Any + Send + Sync)>> {
    let wish = variables::get("UNIPGAS_BACKEND")?;
    let backends = backends();
    if backends.iter().all(|backend| backend.native.is_none()) {
        return Ok(None);
    }
    let named = wish.map(|wish| find(&wish, &backends).copied());
    let backend = named.unwrap_or(backends.first().copied());
    let Some(backend) = backend else {
        return Ok(None);
    };
    if let Some(native) = backend.native {
        return Ok(native());
    }
    let beyond = || bootstrap::beyond_this_host(&JobName::from_env()?);
    // The default backend uses networks for other hosts only. Another backend without a native interface, such as one for tests, has none below it.
    let first = backends
        .first()
        .is_some_and(|first| first.name == backend.name);
    if !first || host::played()?.is_none() && beyond()?.is_none() {
        return Ok(None);
    }
    let networks = networks(variables::get("UNIPGAS_NETWORKS")?.as_deref(), &backends)?;
    let usable = networks
        .iter()
        .find(|network| (network.probe)(true).is_ok());
    Ok(usable
        .and_then(|network| network.native)
        .and_then(|native| native()))
}

/// All backends, the default first.
pub fn backends() -> Vec<Backend> {
    BACKENDS.lock().clone()
}

/// The backend among `backends` with this name or old name. An old name is logged with the new one.
pub fn find<'a>(name: &str, backends: &'a [Backend]) -> Option<&'a Backend> {
    let found = (backends.iter()).find(|b| b.name == name || b.old_name == Some(name))?;
    if found.name != name {
        tracing::info!(target: log::BACKEND, "{name} is the old name of {}; use the new one", found.name);
    }
    Some(found)
}

/// The current name of the backend `name`. `from`: origin of the name, for the text. Errors: [`Error::InvalidArgument`] for an unknown name.
pub fn check(name: &str, from: &str) -> Result<&'static str> {
    let known = backends();
    if let Some(backend) = find(name, &known) {
        return Ok(backend.name);
    }
    let known: Vec<_> = known.iter().map(|backend| backend.name).collect();
    let known = known.join(", ");
    Err(Error::InvalidArgument(format!(
        "there is no backend {name:?}{from}; there are: {known}"
    )))
}

/// Opens the transports of a process of the job, in order of preference. The first one is the backend of UNIPGAS_BACKEND, or the default. If it reaches only
/// this host and the job has others, networks follow: the networks in UNIPGAS_NETWORKS, or all usable networks. Two processes use the first transport that
/// both have. Errors: [`Error::InvalidArgument`] for an unknown name, or another wrong variable; [`Error::Unreachable`] if no network is left.
pub fn open_from_env(opening: &Opening) -> Result<Vec<Arc<dyn Transport>>> {
    log::begin(JobName::rank_from_env)?;
    // One process of a job prints this. It is `unipgas run` if that has started the job.
    let tells = |job: &JobName| job.launcher() != Launcher::Unipgas && job.rank().unwrap_or(0) == 0;
    if JobName::from_env().is_ok_and(|job| tells(&job)) {
        variables::tell_of_unknown();
    }
    let wish = variables::get("UNIPGAS_BACKEND")?;
    let backends = backends();
    let backend = match &wish {
        Some(name) => find(name, &backends),
        None => backends.first(),
    };
    let backend = backend.ok_or_else(|| {
        let names: Vec<_> = backends.iter().map(|b| b.name).collect();
        Error::InvalidArgument(format!(
            "UNIPGAS_BACKEND={} is not a backend of this library; it has: {}",
            wish.as_deref().unwrap_or_default(),
            names.join(", ")
        ))
    })?;
    let wished = variables::get("UNIPGAS_NETWORKS")?;
    let networks = networks(wished.as_deref(), &backends)?;
    let opening = Opening {
        other_hosts: opening.other_hosts || host::played()?.is_some(),
        ..opening.clone()
    };
    let why = match &wish {
        Some(_) => "asked for by UNIPGAS_BACKEND",
        None => "the default",
    };
    let mut open = vec![(backend.open)(&opening)?];
    tracing::info!(target: log::BACKEND, processes_here = opening.local_processes, other_hosts = opening.other_hosts, "{}: {why}", backend.name);
    if backend.network || !opening.other_hosts {
        return Ok(open);
    }
    let beside = Opening {
        beside: Some(open[0].clone()),
        ..opening
    };
    let mut missing = Vec::new();
    for network in networks {
        match (network.open)(&beside) {
            Ok(another) if wished.is_some() || has_room(&open, &*another) => {
                tracing::info!(target: log::BACKEND, "{} beside it: it reaches other hosts", network.name);
                open.push(another);
            }
            Ok(_) => {
                tracing::info!(target: log::BACKEND, "{} is not used: an address has no room for more networks", network.name);
            }
            Err(Error::Unreachable(reason)) => {
                tracing::info!(target: log::BACKEND, "{} cannot be used: {reason}", network.name);
                missing.push(format!("{}: {reason}", network.name));
            }
            Err(error) => return Err(error),
        }
    }
    if open.len() > 1 {
        return Ok(open);
    }
    if missing.is_empty() {
        missing.push("UNIPGAS_NETWORKS names none".into());
    }
    Err(Error::Unreachable(format!(
        "the job has processes on other hosts, and there is no network to reach them ({})",
        missing.join("; ")
    )))
}

/// Whether [`open_from_env`] opens only the default backend, for one host. Errors: [`Error::InvalidArgument`] for a wrong variable.
pub fn is_default_alone() -> Result<bool> {
    let wish = variables::get("UNIPGAS_BACKEND")?;
    let backends = backends();
    let first = backends.get(..1).unwrap_or_default();
    let named = |wish: &String| find(wish, first).is_some();
    let alone = first.iter().any(|one| !one.network) && wish.as_ref().is_none_or(named);
    Ok(alone && host::played()?.is_none())
}

/// Whether an address has room for another transport's part.
fn has_room(open: &[Arc<dyn Transport>], another: &dyn Transport) -> bool {
    let mut parts: Vec<_> = open.iter().map(|one| (one.tag(), one.address())).collect();
    parts.push((another.tag(), another.address()));
    Bundle::pack(parts.iter().map(|(tag, part)| (*tag, part.as_slice()))).is_ok()
}

/// The networks among `backends` that `wish` names, in its order; without a wish, all networks. Errors: [`Error::InvalidArgument`].
pub fn networks(wish: Option<&str>, backends: &[Backend]) -> Result<Vec<Backend>> {
    let all: Vec<_> = (backends.iter().copied())
        .filter(|backend| backend.network)
        .collect();
    let Some(wish) = wish else {
        return Ok(all);
    };
    let names = wish
        .split(',')
        .map(str::trim)
        .filter(|name| *name != "none");
    names
        .map(|name| {
            find(name, &all).copied().ok_or_else(|| {
                let known: Vec<_> = all.iter().map(|backend| backend.name).collect();
                let must = format!(
                    "must be networks of this library, with commas between them, or none; it has: {}",
                    known.join(", ")
                );
                variables::wrong("UNIPGAS_NETWORKS", wish, &must)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(name: &'static str, network: bool) -> Backend {
        Backend {
            name,
            old_name: None,
            tag: None,
            variables: &[],
            open: |_| Err(Error::Unsupported),
            probe: |_| Ok(()),
            network,
            native: None,
        }
    }

    #[test]
    fn networks_are_narrowed_and_ordered() {
        let table = [
            backend("near", false),
            backend("one", true),
            Backend {
                old_name: Some("second"),
                ..backend("two", true)
            },
        ];
        let named = |wish| {
            let found = networks(wish, &table)?;
            Ok::<_, Error>(found.iter().map(|backend| backend.name).collect::<Vec<_>>())
        };
        assert_eq!(named(None).unwrap(), ["one", "two"]);
        assert_eq!(named(Some("two, one")).unwrap(), ["two", "one"]);
        assert_eq!(named(Some("two")).unwrap(), ["two"]);
        assert_eq!(named(Some("second,one")).unwrap(), ["two", "one"]);
        assert!(named(Some("none")).unwrap().is_empty());
        for wrong in ["near", "three", "one,,two"] {
            let text = named(Some(wrong)).unwrap_err().to_string();
            assert!(text.contains(wrong) && text.contains("one, two"), "{text}");
        }
    }
}
