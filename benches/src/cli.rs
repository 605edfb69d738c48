//! The command line of `unipgas bench`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use unipgas_core::stop::Stop;
use unipgas_core::{print, registry};
use unipgas_launcher::library::{self, InstalledLibrary};

use crate::bench::{self, BenchBackend, BenchPlan, BenchResults, Out, Outlets};
use crate::case::{self, Case};
use crate::compare::Old;
use crate::file::{self, Json};
use crate::job::JobSettings;
use crate::model::Model;
use crate::network::hosts::{self, HostsOption, Placement};
use crate::peers::PeerPrograms;
use crate::record::{BenchRecord, RecordSetting};
use crate::samples::Notes;
use crate::table::{self, Columns, Table, about};
use crate::{html, plot, worker};

/// Measures latency, rate, bandwidth, atomics and collectives beside the machine's limit and installed peers.
#[derive(Parser, Debug)]
#[command(name = "unipgas bench")]
struct Args {
    /// Writes JSON records, one a line, to this file, or to standard output for "-" (the table then goes to standard error): of each figure when a value of it has
    /// been measured, and once more, as final, when all have been
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes plots as SVG into this directory: latency and bandwidth over sizes, rates, start, memory and barrier over processes
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Writes a page for browsers, with tables and plots in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints what each figure is beside that of a file of --json, and within which noise
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Measures nothing, and takes the figures from a file of --json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "quick", "backend", "hosts", "library", "model", "list", "check"])]
    records: Option<PathBuf>,
    /// Judges figures of ours by the targets of this project; ends with status 1 when one is missed
    #[arg(long)]
    check: bool,
    /// Fewer sizes and rounds
    #[arg(long)]
    quick: bool,
    /// Only the cases METRIC:PROCESSES:BYTES that contain this, or one of several, as A,B
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    only: Vec<String>,
    /// Leaves out other libraries
    #[arg(long)]
    no_peers: bool,
    /// What ours communicate by; several, as A,B, stand beside the first one
    #[arg(long, value_name = "NAMES", default_value = SHM, value_delimiter = ',')]
    backend: Vec<String>,
    /// On several hosts: so many made of namespaces, by root, or names as a,b
    #[arg(long, value_name = "N|LIST")]
    hosts: Option<HostsOption>,
    /// With names of hosts: the launcher, as for unipgas run
    #[arg(long, value_name = "NAME", requires = "hosts")]
    launcher: Option<String>,
    /// With names of hosts: words for the launcher, as for unipgas run
    #[arg(
        long,
        value_name = "WORDS",
        requires = "hosts",
        allow_hyphen_values = true
    )]
    launcher_args: Option<String>,
    /// The libunipgas.so whose interfaces are measured, instead of that of UNIPGAS_LIB or the installed one
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Has a column of what a model of another network predicts
    #[arg(long, value_enum)]
    model: Option<Model>,
    /// Lists the cases and the peers, and measures nothing
    #[arg(long)]
    list: bool,
    #[arg(long, hide = true)]
    worker: Option<String>,
    #[arg(long, hide = true, requires = "worker")]
    part: Option<String>,
}

/// The command line, for man pages and shell completions.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs `unipgas bench` with the arguments after it.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = args.collect();
    let args = words.iter().cloned();
    let mut args =
        match Args::try_parse_from(std::iter::once("unipgas bench".to_string()).chain(args)) {
            Ok(args) => args,
            Err(e) if !e.use_stderr() => {
                return match print(&e.to_string()) {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(why) => failed(&why.to_string()),
                };
            }
            Err(e) => {
                let text = e.to_string();
                let line = text
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .trim_start_matches("error: ");
                let _ = writeln!(
                    std::io::stderr(),
                    "unipgas bench: {line}; `unipgas bench --help` lists what there is"
                );
                return ExitCode::from(2);
            }
        };
    let outcome = match (&args.worker, &args.part) {
        (Some(order), Some(part)) => {
            return hosts::run_part(part, order, args.library.as_deref());
        }
        (Some(order), None) => {
            worker::run(order, args.library.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        (None, _) => match place(&args, words) {
            Ok(hosts) => command_of(&mut args, hosts),
            Err(outcome) => return outcome.unwrap_or_else(|why| failed(&why)),
        },
    };
    outcome.unwrap_or_else(|why| failed(&why))
}

/// The hosts of `--hosts`; see [`Placement::of`].
fn place(args: &Args, words: Vec<String>) -> Result<Option<Placement>, Result<ExitCode, String>> {
    let Some(wish) = &args.hosts else {
        return Ok(None);
    };
    if ![OFI, SHM].contains(&args.backend.join(",").as_str()) {
        return Err(Err(format!(
            "--hosts goes by {OFI}, unless UNIPGAS_NETWORKS says otherwise: leave --backend out"
        )));
    }
    let mut launcher = Vec::new();
    for (option, value) in [
        ("--launcher", &args.launcher),
        ("--launcher-args", &args.launcher_args),
    ] {
        if let Some(value) = value {
            launcher.push(format!("{option}={value}"));
        }
    }
    Placement::of(wish, &launcher, &words).map(Some)
}

const OFI: &str = "ofi";
const VERBS: &str = "verbs";
const STREAMS: &str = "streams";
const SHM: &str = "shm";

fn failed(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "unipgas bench: {why}");
    ExitCode::FAILURE
}

fn command_of(args: &mut Args, hosts: Option<Placement>) -> Result<ExitCode, String> {
    let old = args.compare.as_deref().map(Old::read).transpose()?;
    let out = Out::new(args.json.as_deref().is_some_and(file::is_stdout));
    if let Some(path) = &args.records {
        let mut records = file::read(path)?;
        records.retain(|record| is_wanted(args, record.case()));
        if let Some(old) = &old {
            old.compare(&mut records);
        }
        out.say(&table::provider(&records))?;
        out.say(&Table::new(Columns::of(&records)).add(&records))?;
        return conclude(args, &out, &records, &Notes::default(), old.as_ref());
    }
    for backend in &mut args.backend {
        let name = registry::check(backend, "").map_err(|e| e.to_string())?;
        *backend = name.to_owned();
    }
    let shares_memory = hosts.is_none()
        && args
            .backend
            .iter()
            .any(|name| !is_network(name, &args.backend));
    let mut cases = match shares_memory {
        true => case::all(args.quick),
        false => case::of_a_network(args.quick),
    };
    for pattern in &args.only {
        if !cases.iter().any(|case| case.to_string().contains(pattern)) {
            return Err(format!("no case contains '{pattern}'; --list lists them"));
        }
    }
    cases.retain(|case| is_wanted(args, *case));
    if args.list {
        let place = place_of(&args.backend[0], &args.backend, hosts.as_ref());
        let library = library::find(args.library.as_deref());
        return list(&cases, place.as_ref(), &args.backend[0], library).map(|()| ExitCode::SUCCESS);
    }
    let library = library::find(args.library.as_deref())?;
    // An error here ends the program before any measurement.
    InstalledLibrary::open(&library)?;
    let lanes = lanes(args, hosts.as_ref(), &library);
    let rounds = match (args.quick, shares_memory) {
        (true, false) => 1,
        (true, true) => 2,
        (false, _) => 5,
    };
    // Processes at other hosts get no signal from here. They end when this program ends.
    let stop = hosts.is_none().then(Stop::hold);
    let plan = BenchPlan {
        cases,
        lanes,
        rounds,
        quick: args.quick,
        peers: !args.no_peers,
    };
    let outlets = Outlets {
        // An error here ends the program before any measurement.
        json: args.json.as_deref().map(Json::create).transpose()?,
        old: old.as_ref(),
        out: &out,
    };
    let BenchResults { records, notes } = bench::run(&plan, outlets)?;
    let status = conclude(args, &out, &records, &notes, old.as_ref());
    if let Some(stop) = stop.filter(Stop::is_asked) {
        out.say("\nIt was ended before all had been measured.\n")?;
        stop.obey();
    }
    status
}

fn is_wanted(args: &Args, case: Case) -> bool {
    let name = case.to_string();
    args.only.is_empty() || args.only.iter().any(|pattern| name.contains(pattern))
}

/// Whether a backend is measured as a network. `streams` is not, next to a backend with shared memory.
fn is_network(backend: &str, all: &[String]) -> bool {
    let others = [OFI, VERBS, STREAMS];
    let alone = || all.iter().all(|one| others.contains(&one.as_str()));
    others.contains(&backend) && (backend != STREAMS || alone())
}

/// The place of processes that share no memory; `None` if they share memory.
fn place_of(backend: &str, all: &[String], hosts: Option<&Placement>) -> Option<Placement> {
    let here = || is_network(backend, all).then_some(Placement::Here);
    hosts.cloned().or_else(here)
}

/// The backends, and the places of their processes.
fn lanes(args: &Args, hosts: Option<&Placement>, library: &Path) -> Vec<BenchBackend> {
    let lane = |backend: &String| {
        let place = place_of(backend, &args.backend, hosts);
        let setting = RecordSetting {
            backend: match &place {
                Some(Placement::Hosts(_)) => hosts::networks(),
                _ => backend.clone(),
            },
            hosts: place.as_ref().unwrap_or(&Placement::Here).name(),
            network: place.is_some(),
            library: library.display().to_string(),
            model: args.model,
            check: args.check,
        };
        let how = JobSettings {
            backend: backend.clone(),
            library: library.into(),
            visits: if args.quick { 3 } else { 5 },
            quick: args.quick,
            limit: Duration::from_secs(300),
            place,
        };
        BenchBackend { how, setting }
    };
    args.backend.iter().map(lane).collect()
}

/// The output after the last row.
fn conclude(
    args: &Args,
    out: &Out,
    records: &[BenchRecord],
    notes: &Notes,
    old: Option<&Old>,
) -> Result<ExitCode, String> {
    if let Some(model) = args.model {
        out.say(&format!("\n{}\n", model.about()))?;
    }
    if let Some(old) = old {
        out.say(&old.summary(records))?;
    }
    if !notes.all().is_empty() {
        out.say("\nNot measured:\n")?;
    }
    for note in notes.all() {
        out.say(&format!("  {note}\n"))?;
    }
    if let Some(dir) = &args.plot {
        for path in plot::write(dir, records)? {
            out.say(&format!("\nPlot: {}\n", path.display()))?;
        }
    }
    if let Some(path) = &args.html {
        html::write(path, records, notes.all())?;
        out.say(&format!("\nPage: {}\n", path.display()))?;
    }
    if args.check && records.iter().all(|record| record.backend == "-") {
        return Err("no case of unipgas was measured".into());
    }
    let missed = records.iter().filter(|record| record.met == Some(false));
    match missed.count() {
        0 => Ok(ExitCode::SUCCESS),
        missed if args.check => Err(format!("{missed} figures miss their targets")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn list(
    cases: &[Case],
    place: Option<&Placement>,
    backend: &str,
    library: Result<PathBuf, String>,
) -> Result<(), String> {
    let say = |text: &str| print(text).map_err(|e| e.to_string());
    for case in cases {
        say(&format!(
            "{case:<28} {}\n",
            about(case.metric, place.is_some())
        ))?;
    }
    let mut notes = Notes::default();
    let peers = PeerPrograms::find(place, backend, library, &mut notes)?;
    say(&format!("\nPeers: {}\n", peers.names().join(", ")))?;
    for note in notes.all() {
        say(&format!("  {note}\n"))?;
    }
    Ok(())
}
