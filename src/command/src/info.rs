//! `unipgas info`: the properties of this machine, and which features of the library work on it.

mod features;
mod limits;
mod reach;
mod trial;

use serde_json::{Map, Value, json};
use unipgas::core::inbox::InboxLayout;
use unipgas::core::variables::{self, Variable};
use unipgas::gaspi;
use unipgas::ircce;
use unipgas::utofu::environment::UtofuSettings;
use unipgas::utofu::vcq::VcqFlags;
use unipgas_launcher::topology::Topology;

use self::features::{Probe, features};
use self::limits::{Limit, limits};
use self::reach::Reach;
use self::trial::{ReachMethod, TrialResult, Trials};
use crate::{Ended, fail, failed, shown};

/// Shows the machine, the backends with the reason why each is usable or not, the limits and the environment of a job.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// As one JSON object
    #[arg(long)]
    json: bool,
    /// Joins a job as a program does, and prints its memory use
    #[arg(long, hide = true)]
    measure: bool,
    /// Is one of two processes that try a backend, and prints the result
    #[arg(long, hide = true)]
    trial: bool,
    /// Tries all backends, and prints the results
    #[arg(long, hide = true)]
    trials: bool,
}

/// Memory use in bytes, measured in a job of one process.
struct Memory {
    process: u64,
    /// An unused VCQ.
    vcq: u64,
}

/// The content of the report.
struct Info {
    topology: Topology,
    reach: Reach,
    features: Vec<(&'static str, &'static str, Probe)>,
    trials: Trials,
    /// If this process runs as root: the trials as an ordinary user, or the reason why they were not possible.
    ordinary: Option<Result<Trials, String>>,
    limits: Vec<Limit>,
    memory: Result<Memory, String>,
    inbox: usize,
}

pub fn run(args: &Args) -> Ended {
    if args.measure {
        return measure();
    }
    if args.trial {
        return trial::rank();
    }
    if args.trials {
        return trial::tell_all();
    }
    let topology = Topology::load().map_err(failed(1))?;
    variables::tell_of_unknown();
    let wishes = UtofuSettings::from_env().map_err(failed(1))?;
    let of_ircce = ircce::launch::LaunchSettings::from_env().map_err(failed(1))?;
    let info = Info {
        topology,
        reach: Reach::look(),
        features: features(),
        trials: trial::all(),
        ordinary: trial::as_nobody(),
        limits: limits(&wishes, &of_ircce),
        memory: memory(),
        inbox: inbox_bytes(&wishes),
    };
    shown(&if args.json {
        format!("{}\n", info.json())
    } else {
        info.text()
    })
}

impl Info {
    fn text(&self) -> String {
        let mut lines = vec![
            format!("unipgas {}", env!("CARGO_PKG_VERSION")),
            format!("machine    {}", self.topology),
        ];
        for node in &self.topology.nodes {
            let units: Vec<String> = node.pus.iter().map(u32::to_string).collect();
            lines.push(format!(
                "           NUMA node {}: processing units {}",
                node.os_index,
                units.join(",")
            ));
        }
        lines.extend(self.reach.lines());
        for (name, found) in &self.trials {
            lines.push(format!("backend    {name}: {}", tried(found)));
        }
        match &self.ordinary {
            None => {}
            Some(Ok(trials)) => lines.extend(trials.iter().map(|(name, found)| {
                format!(
                    "ordinary   {name} for users without privileges: {}",
                    tried(found)
                )
            })),
            Some(Err(why)) => lines.push(format!(
                "ordinary   not tried for users without privileges: {why}"
            )),
        }
        for (name, what, probe) in &self.features {
            let said = probe
                .as_ref()
                .map_or_else(|why| format!("no: {why}"), |()| "yes".into());
            lines.push(format!("system     {name} ({what}): {said}"));
        }
        for (name, value) in &self.limits {
            lines.push(format!("limit      {name}: {value}"));
        }
        match &self.memory {
            Ok(Memory { process, vcq }) => {
                lines.push(format!(
                    "memory     {} KiB per process, measured in a job of one",
                    process / 1024
                ));
                lines.push(format!(
                    "memory     {} KiB per uTofu VCQ, measured; {} KiB more when all entries of its MRQ have been used",
                    vcq / 1024,
                    self.inbox / 1024
                ));
            }
            Err(why) => lines.push(format!(
                "memory     per process and VCQ not measured: {why}"
            )),
        }
        for Variable { name, meaning } in variables::all() {
            let value =
                std::env::var(name).map_or_else(|_| "not set".into(), |value| format!("= {value}"));
            lines.push(format!("variable   {name} {value} ({meaning})"));
        }
        lines.join("\n") + "\n"
    }

    fn json(&self) -> Value {
        let feature =
            |probe: &Probe| json!({ "usable": probe.is_ok(), "reason": probe.as_ref().err() });
        let backends = |trials: &Trials| -> Map<String, Value> {
            let found = trials.iter().map(|(name, found)| {
                let ways = found.as_ref().ok();
                let outcome = json!({
                    "usable": found.is_ok(),
                    "reason": found.as_ref().err(),
                    "mapped": ways.map(|ways| ways.mapped),
                    "limits": ways.map(|ways| &ways.limits),
                    "own_memory_one_thread": ways.map(|ways| ways.one_thread),
                    "own_memory_several_threads": ways.map(|ways| ways.several_threads),
                    "own_memory_how": ways.and_then(|ways| ways.how.as_ref().ok()),
                    "own_memory_why_copied": ways.and_then(|ways| ways.how.as_ref().err()),
                });
                (name.clone(), outcome)
            });
            found.collect()
        };
        let nodes: Vec<Value> = self
            .topology
            .nodes
            .iter()
            .map(|node| json!({ "os_index": node.os_index, "pus": node.pus }))
            .collect();
        let ordinary = self.ordinary.as_ref();
        let [bootstrap, host, networks] = self.reach.json();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "machine": {
                "packages": self.topology.packages,
                "cores": self.topology.cores,
                "pus": self.topology.pus,
                "numa_nodes": nodes,
                "l3_count": self.topology.l3_count,
                "l3_bytes": self.topology.l3_bytes,
            },
            "bootstrap": bootstrap,
            "host": host,
            "networks": networks,
            "backends": backends(&self.trials),
            "ordinary_user_backends": ordinary.and_then(|tried| tried.as_ref().ok()).map(backends),
            "ordinary_user_reason": ordinary.and_then(|tried| tried.as_ref().err()),
            "system": self.features.iter().map(|(name, _, probe)| (name.to_string(), feature(probe))).collect::<Map<_, _>>(),
            "limits": self.limits.iter().map(|(name, value)| (name.to_string(), (*value).into())).collect::<Map<_, _>>(),
            "memory_per_process_bytes": self.memory.as_ref().ok().map(|memory| memory.process),
            "memory_per_vcq_bytes": self.memory.as_ref().ok().map(|memory| memory.vcq),
            "environment": variables::all().iter().map(|variable| (variable.name.to_string(), json!(std::env::var(variable.name).ok()))).collect::<Map<_, _>>(),
        })
    }
}

/// The result of a trial, in words.
fn tried(found: &Result<TrialResult, String>) -> String {
    let found = match found {
        Err(why) => return format!("no: {why}"),
        Ok(found) => found,
    };
    if !found.mapped {
        return format!(
            "usable, tried with 2 processes; peers map nothing, all goes by messages; {}",
            found.limits
        );
    }
    let copied = || match &found.how {
        Err(why) => format!("copied by the kernel, 10 to 1,000 times slower: {why}"),
        Ok(_) => "copied by the kernel, 10 to 1,000 times slower".into(),
    };
    let own = match (found.one_thread, found.several_threads) {
        (ReachMethod::InPlace, ReachMethod::InPlace) => match &found.how {
            Ok(how) => format!("shared in place ({how})"),
            Err(_) => "shared in place".into(),
        },
        (ReachMethod::InPlace, ReachMethod::Copied) => format!(
            "shared in place in a process of one thread; beside other threads it is {}",
            copied()
        ),
        (ReachMethod::Copied, _) => copied(),
    };
    format!("usable, tried with 2 processes; memory of the program's own is {own}")
}

/// Bytes of the MRQ of a free mode VCQ.
fn inbox_bytes(wishes: &UtofuSettings) -> usize {
    InboxLayout::new(wishes.mrq_entries).map_or(0, InboxLayout::size)
}

/// Measures in a job of one process.
fn memory() -> Result<Memory, String> {
    let outcome = trial::of_this_program(1, "--measure", None)?;
    let said = String::from_utf8_lossy(&outcome.ranks[0].stdout);
    let mut bytes = said.split_whitespace().map(str::parse);
    match (bytes.next(), bytes.next()) {
        (Some(Ok(process)), Some(Ok(vcq))) => Ok(Memory { process, vcq }),
        _ => Err("the process does not tell".into()),
    }
}

/// Resident memory of this process, shared memory included.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Bytes that one VCQ adds to this process.
fn measure_vcq() -> Option<u64> {
    const VCQS: u64 = 8;
    let process = unipgas::utofu::current().ok()?;
    // The first VCQ also includes one-time setup.
    process.create_vcq(0, None, VcqFlags::empty()).ok()?;
    let before = resident()?;
    for _ in 0..VCQS {
        process.create_vcq(0, None, VcqFlags::empty()).ok()?;
    }
    Some(resident()?.saturating_sub(before) / VCQS)
}

/// Runs in the job of one. Prints the bytes that joining adds to this process, and the bytes that a VCQ adds.
fn measure() -> Ended {
    let before = resident();
    let joined = gaspi::process::Initialising::begin(&gaspi::Config::default())
        .and_then(|mut joining| joining.advance(u64::MAX));
    let (Ok(process), Some(before), Some(after)) = (joined, before, resident()) else {
        return fail(1, "cannot join a job of one");
    };
    let Some(vcq) = measure_vcq() else {
        return fail(1, "cannot create a VCQ");
    };
    let told = shown(&format!("{} {vcq}\n", after.saturating_sub(before)));
    match process.term(u64::MAX) {
        Ok(()) => told,
        Err((_, status)) => fail(1, format!("cannot leave the job: {status:?}")),
    }
}
