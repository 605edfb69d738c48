//! The command line of `unipgas bench`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use unipgas_core::print;

use crate::case::{self, Case};
use crate::job::{self, How};
use crate::model::Model;
use crate::network::hosts::{self, Place, Wish};
use crate::peers::Peers;
use crate::record::{Record, Setting};
use crate::samples::Samples;
use crate::table::about;
use crate::{plot, record, table, worker};

/// Measures latency, rate, bandwidth, atomics and collectives beside the machine's limit and installed peers.
#[derive(Parser, Debug)]
#[command(name = "unipgas bench")]
struct Args {
    /// Writes JSON records, one a line: of each figure when a value of it has been measured, and at the end
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes latency and bandwidth over size as SVG into this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Fewer sizes and rounds
    #[arg(long)]
    quick: bool,
    /// Only the cases METRIC:PROCESSES:BYTES that contain this
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Leaves out other libraries
    #[arg(long)]
    no_peers: bool,
    /// What ours communicate by
    #[arg(long, value_name = "NAME", default_value = "shm")]
    backend: String,
    /// On several hosts: so many made of namespaces, by root, or names as a,b
    #[arg(long, value_name = "N|LIST")]
    hosts: Option<Wish>,
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

/// The command line, for man pages and shells.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs `unipgas bench` with the arguments after it.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = args.collect();
    let args = words.iter().cloned();
    let args = match Args::try_parse_from(std::iter::once("unipgas bench".to_string()).chain(args))
    {
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
        (Some(order), Some(part)) => return hosts::run_part(part, order),
        (Some(order), None) => worker::run(order),
        (None, _) => match place(&args, words) {
            Ok(place) => bench(&args, place),
            Err(outcome) => return outcome.unwrap_or_else(|why| failed(&why)),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

/// Where processes are that share no memory, if that is asked; `Err(Ok)`: all has been done by this program, run again.
fn place(args: &Args, words: Vec<String>) -> Result<Option<Place>, Result<ExitCode, String>> {
    let Some(wish) = &args.hosts else {
        let is_network = [OFI, VERBS].contains(&args.backend.as_str());
        return Ok(is_network.then_some(Place::Here));
    };
    if ![OFI, SHM].contains(&args.backend.as_str()) {
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
    let mut again = words;
    if hosts::is_subcommand() {
        again.insert(0, "bench".into());
    }
    Place::of(wish, &launcher, &again).map(Some)
}

const OFI: &str = "ofi";
const VERBS: &str = "verbs";
const SHM: &str = "shm";

fn failed(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "unipgas bench: {why}");
    ExitCode::FAILURE
}

/// Errors: standard output cannot be written.
fn say(text: &str) -> Result<(), String> {
    print(text).map_err(|e| e.to_string())
}

fn bench(args: &Args, place: Option<Place>) -> Result<(), String> {
    let mut cases = match place {
        Some(_) => case::of_a_network(args.quick),
        None => case::all(args.quick),
    };
    if let Some(pattern) = &args.only {
        cases.retain(|c| c.to_string().contains(pattern.as_str()));
        if cases.is_empty() {
            return Err(format!("no case contains '{pattern}'; --list lists them"));
        }
    }
    if args.list {
        return list(&cases, place.as_ref());
    }
    // Told before minutes have been spent on measuring.
    let json = match &args.json {
        Some(path) => Some(Json::create(path)?),
        None => None,
    };
    let busy = load();
    let rounds = match (args.quick, &place) {
        (true, Some(_)) => 1,
        (true, None) => 2,
        (false, _) => 5,
    };
    let how = How {
        backend: args.backend.clone(),
        visits: if args.quick { 3 } else { 5 },
        quick: args.quick,
        limit: Duration::from_secs(300),
        place,
    };
    let setting = Setting {
        backend: match &how.place {
            Some(Place::Hosts(_)) => hosts::networks(),
            _ => args.backend.clone(),
        },
        hosts: how.place.as_ref().unwrap_or(&Place::Here).name(),
        network: how.place.is_some(),
        model: args.model,
    };
    let mut samples = Samples::default();
    let mut peers = if args.no_peers {
        None
    } else {
        Some(Peers::find(how.place.as_ref(), &mut samples)?)
    };
    let measured = Mutex::new(Measured {
        samples,
        setting,
        json,
        failure: None,
    });
    let names = peers.as_ref().map(Peers::names).unwrap_or_default();
    let kind = |c: &Case| (c.processes, c.metric.is_of_messages());
    let mut kinds: Vec<_> = cases.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let progress = progress((rounds * kinds.len() * (1 + names.len())) as u64);
    let mut records = Vec::new();
    for &(size, messages) in &kinds {
        let now: Vec<Case> = cases
            .iter()
            .copied()
            .filter(|c| kind(c) == (size, messages))
            .collect();
        for _ in 0..rounds {
            let what = format!("bare and ours, {size} processes");
            progress.set_message(what.clone());
            let heard = |line: &str| {
                progress.set_message(format!("{what}: {line}"));
                measured.lock().hear(line);
            };
            if let Err(why) = job::run(&now, &how, &heard) {
                let note = format!("{size} processes: {why}");
                measured.lock().samples.note(note);
            }
            progress.inc(1);
            for (index, name) in names.iter().enumerate() {
                progress.set_message(format!("{name}, {size} processes"));
                if let Some(peers) = &mut peers {
                    let (text, failure) = peers.measure(index, &now, args.quick);
                    let mut measured = measured.lock();
                    measured.hear(&text);
                    failure
                        .into_iter()
                        .for_each(|why| measured.samples.note(why));
                }
                progress.inc(1);
            }
        }
        records.extend(measured.lock().finish(&now)?);
    }
    let samples = measured.into_inner().samples;
    progress.finish_and_clear();
    say(&table::render(&records))?;
    say(&samples.device())?;
    if let Some(model) = args.model {
        say(&format!("\n{}\n", model.about()))?;
    }
    if let Some(load) = busy {
        say(&format!(
            "\nLoad average {load:.1} at the start: other programs used these cores, and the figures suffer from it.\n"
        ))?;
    }
    if !samples.notes.is_empty() {
        say("\nNot measured:\n")?;
        for note in &samples.notes {
            say(&format!("  {note}\n"))?;
        }
    }
    if let Some(dir) = &args.plot {
        for path in plot::write(dir, &records)? {
            say(&format!("\nPlot: {}\n", path.display()))?;
        }
    }
    Ok(())
}

/// What is known by now.
struct Measured<'a> {
    samples: Samples,
    setting: Setting,
    json: Option<Json<'a>>,
    /// What has become of the file.
    failure: Option<String>,
}

impl Measured<'_> {
    /// Takes lines of [`Samples::read`], and writes a record for each value at once: the rest may take long, or be ended.
    fn hear(&mut self, text: &str) {
        for (case, api) in self.samples.read(text) {
            let record = record::so_far(case, &api, &self.samples, &self.setting);
            if let (Some(json), Some(record)) = (&mut self.json, record)
                && let Err(why) = json.write(&[record])
            {
                self.failure.get_or_insert(why);
            }
        }
    }

    /// No more values of these cases will come. Errors: the file could not be written.
    fn finish(&mut self, cases: &[Case]) -> Result<Vec<Record>, String> {
        let done = record::all(cases, &self.samples, &self.setting);
        if let Some(json) = &mut self.json {
            json.write(&done)?;
        }
        match self.failure.take() {
            None => Ok(done),
            Some(why) => Err(why),
        }
    }
}

/// The file of records.
struct Json<'a> {
    path: &'a std::path::Path,
    file: std::fs::File,
}

impl<'a> Json<'a> {
    fn create(path: &'a std::path::Path) -> Result<Self, String> {
        let file = std::fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Json { path, file })
    }

    fn write(&mut self, records: &[Record]) -> Result<(), String> {
        let mut lines = Vec::new();
        let written = records.iter().try_for_each(|record| {
            serde_json::to_writer(&mut lines, record)?;
            lines.write_all(b"\n")
        });
        written
            .and_then(|()| self.file.write_all(&lines))
            .map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

fn list(cases: &[Case], place: Option<&Place>) -> Result<(), String> {
    for case in cases {
        say(&format!(
            "{case:<28} {}\n",
            about(case.metric, place.is_some())
        ))?;
    }
    let mut samples = Samples::default();
    let peers = Peers::find(place, &mut samples)?;
    say(&format!("\nPeers: {}\n", peers.names().join(", ")))?;
    for note in &samples.notes {
        say(&format!("  {note}\n"))?;
    }
    Ok(())
}

fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed}, about {eta} left)")
    {
        bar.set_style(style);
    }
    bar
}

/// How many other processes are running, if that disturbs.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    (load > 0.5).then_some(load)
}
