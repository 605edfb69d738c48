//! The launcher of this process, its host, and its networks to other processes.

use serde_json::{Value, json};
use unipgas::core::bootstrap;
use unipgas::core::registry::{self, Backend};
use unipgas::core::{host, variables};

/// The part of the report about launcher, host and networks.
pub(super) struct Reach {
    bootstrap: Result<Joined, String>,
    /// Variables of launchers in the environment.
    found: Vec<(&'static str, String)>,
    host: Result<u64, String>,
    ways: Vec<Way>,
}

/// The job that the environment names.
struct Joined {
    source: String,
    rank: u32,
    size: u32,
    here: u32,
    /// The number of hosts of the job, if known.
    hosts: Option<u32>,
}

/// A backend: the processes that it reaches, whether programs use it, and the reason.
struct Way {
    name: &'static str,
    reaches: &'static str,
    used: bool,
    why: String,
}

impl Reach {
    /// Collects all this. It joins the job for a moment, as a program does.
    pub fn look() -> Self {
        let backends = registry::backends();
        let wish = |name| variables::get(name).ok().flatten();
        let ways = ways(
            &backends,
            wish("UNIPGAS_BACKEND").as_deref(),
            wish("UNIPGAS_NETWORKS").as_deref(),
        );
        Reach {
            bootstrap: joined().map_err(|error| error.to_string()),
            found: bootstrap::traces(),
            host: host::id().map_err(|error| error.to_string()),
            ways,
        }
    }

    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        let found: Vec<_> = self
            .found
            .iter()
            .map(|(name, value)| format!("{name}={}", value.escape_debug()))
            .collect();
        let found = match found.is_empty() {
            true => "no launcher has left anything in the environment".to_owned(),
            false => format!("found {}", found.join(" ")),
        };
        let bootstrap = match &self.bootstrap {
            Ok(Joined {
                source,
                rank,
                size,
                here,
                hosts,
            }) => {
                let hosts = hosts.filter(|hosts| *hosts > 1);
                let of = hosts.map_or_else(String::new, |hosts| format!(" of {hosts}"));
                format!("{source}; rank {rank} of {size}, {here} on this host{of}")
            }
            Err(why) => format!("no: {why}"),
        };
        let host = match &self.host {
            Ok(id) => {
                format!("{id:016x} (processes that tell another one share no memory with this one)")
            }
            Err(why) => format!("no: {why}"),
        };
        let mut lines = vec![
            format!("bootstrap  {bootstrap} ({found})"),
            format!("host       {host}"),
        ];
        lines.extend(self.ways.iter().map(|way| {
            let used = if way.used { "used" } else { "not used" };
            format!(
                "network    {} ({}): {used}: {}",
                way.name, way.reaches, way.why
            )
        }));
        lines
    }

    /// The same as `bootstrap`, `host` and `networks`.
    pub fn json(&self) -> [Value; 3] {
        let joined = self.bootstrap.as_ref().ok();
        let found = self
            .found
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_str().into()));
        let ways = self.ways.iter().map(|way| {
            let told = json!({ "reaches": way.reaches, "used": way.used, "reason": way.why });
            (way.name.to_string(), told)
        });
        [
            json!({
                "source": joined.map(|joined| &joined.source),
                "rank": joined.map(|joined| joined.rank),
                "size": joined.map(|joined| joined.size),
                "on_this_host": joined.map(|joined| joined.here),
                "hosts": joined.and_then(|joined| joined.hosts),
                "reason": self.bootstrap.as_ref().err(),
                "environment": Value::Object(found.collect()),
            }),
            json!({
                "id": self.host.as_ref().ok().map(|id| format!("{id:016x}")),
                "reason": self.host.as_ref().err(),
            }),
            Value::Object(ways.collect()),
        ]
    }
}

fn joined() -> unipgas::core::Result<Joined> {
    let bootstrap = bootstrap::from_env()?;
    let joined = Joined {
        source: bootstrap.source(),
        rank: bootstrap.rank(),
        size: bootstrap.size(),
        here: bootstrap.neighbours(),
        hosts: bootstrap.hosts(),
    };
    bootstrap.leave()?;
    Ok(joined)
}

/// For each backend, whether a program that starts here uses it.
fn ways(backends: &[Backend], wish: Option<&str>, networks: Option<&str>) -> Vec<Way> {
    let chosen = match wish {
        Some(wish) => registry::find(wish, backends),
        None => backends.first(),
    };
    let alone = chosen.filter(|backend| backend.network);
    let wanted = registry::networks(networks, backends);
    let why = |backend: &Backend| {
        if chosen.is_some_and(|chosen| chosen.name == backend.name) {
            (backend.probe)(false)?;
            let why = match wish {
                Some(_) => "UNIPGAS_BACKEND names it",
                None => "the default",
            };
            return Ok(why.to_owned());
        }
        if !backend.network {
            return Err("it is used where UNIPGAS_BACKEND names it".to_owned());
        }
        if let Some(chosen) = alone {
            return Err(format!("{} is used for all processes", chosen.name));
        }
        let wanted = wanted.as_ref().map_err(|error| error.to_string())?;
        let Some(place) = wanted.iter().position(|other| other.name == backend.name) else {
            let named = networks.unwrap_or_default().escape_debug();
            return Err(format!("UNIPGAS_NETWORKS={named} does not name it"));
        };
        (backend.probe)(true)?;
        Ok(format!(
            "choice {} for processes on other hosts, where a job has some",
            place + 1
        ))
    };
    let ways = backends.iter().map(|backend| {
        let outcome = why(backend);
        Way {
            name: backend.name,
            reaches: match backend.network {
                true => "other hosts",
                false => "this host",
            },
            used: outcome.is_ok(),
            why: outcome.unwrap_or_else(|why| why),
        }
    });
    ways.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unipgas::core::Error;

    fn table() -> [Backend; 4] {
        let backend = |name, network| Backend {
            name,
            old_name: None,
            tag: None,
            variables: &[],
            open: |_| Err(Error::Unsupported),
            probe: |_| Ok(()),
            network,
            native: None,
        };
        let broken = Backend {
            probe: |_| Err("no adapter".into()),
            ..backend("broken", true)
        };
        [
            backend("near", false),
            backend("odd", false),
            broken,
            backend("far", true),
        ]
    }

    fn used(wish: Option<&str>, networks: Option<&str>) -> Vec<(bool, String)> {
        let ways = ways(&table(), wish, networks);
        ways.into_iter().map(|way| (way.used, way.why)).collect()
    }

    #[test]
    fn each_way_says_why() {
        let by_itself = used(None, None);
        let which: Vec<_> = by_itself.iter().map(|(used, _)| *used).collect();
        assert_eq!(which, [true, false, false, true]);
        assert_eq!(by_itself[2].1, "no adapter");
        assert!(by_itself[3].1.starts_with("choice 2"), "{}", by_itself[3].1);

        let narrowed = used(None, Some("none"));
        assert!(!narrowed[3].0 && narrowed[3].1.contains("UNIPGAS_NETWORKS=none"));
        let wrong = used(None, Some("near"));
        assert!(!wrong[3].0 && wrong[3].1.contains("it has: broken, far"));
        let all = used(Some("far"), None);
        let which: Vec<_> = all.iter().map(|(used, _)| *used).collect();
        assert_eq!(which, [false, false, false, true]);
        assert!(all[2].1.contains("far is used for all"), "{}", all[2].1);
        let refused = used(Some("broken"), None);
        assert_eq!(refused[2], (false, "no adapter".to_owned()));
    }
}
