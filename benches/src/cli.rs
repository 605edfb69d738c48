//! The command line of `unipgas bench`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unipgas_core::print;

use crate::case::{self, Case};
use crate::peers::Peers;
use crate::samples::Samples;
use crate::{job, plot, record, table, worker};

/// Measures latency, rate, bandwidth, atomics and collectives beside the machine's limit and installed peers.
#[derive(Parser, Debug)]
#[command(name = "unipgas bench")]
struct Args {
    /// Writes one JSON record a line of the table
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
    /// Lists the cases and the peers, and measures nothing
    #[arg(long)]
    list: bool,
    #[arg(long, hide = true)]
    worker: Option<String>,
}

/// Runs `unipgas bench` with the arguments after it.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
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
    let outcome = match &args.worker {
        Some(order) => worker::run(order),
        None => bench(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "unipgas bench: {why}");
    ExitCode::FAILURE
}

/// Errors: standard output cannot be written.
fn say(text: &str) -> Result<(), String> {
    print(text).map_err(|e| e.to_string())
}

fn bench(args: &Args) -> Result<(), String> {
    let mut cases = case::all(args.quick);
    if let Some(pattern) = &args.only {
        cases.retain(|c| c.to_string().contains(pattern.as_str()));
        if cases.is_empty() {
            return Err(format!("no case contains '{pattern}'; --list lists them"));
        }
    }
    if args.list {
        return list(&cases);
    }
    // Told before minutes have been spent on measuring.
    if let Some(path) = &args.json {
        std::fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let busy = load();
    let rounds = if args.quick { 2 } else { 5 };
    let visits = if args.quick { 3 } else { 5 };
    let mut samples = Samples::default();
    let mut peers = if args.no_peers {
        None
    } else {
        Some(Peers::find(&mut samples)?)
    };
    let names = peers.as_ref().map(Peers::names).unwrap_or_default();
    let kind = |c: &Case| (c.processes, c.metric.is_of_messages());
    let mut kinds: Vec<_> = cases.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let progress = progress((rounds * kinds.len() * (1 + names.len())) as u64);
    for _ in 0..rounds {
        for &(size, messages) in &kinds {
            let now: Vec<Case> = cases
                .iter()
                .copied()
                .filter(|c| kind(c) == (size, messages))
                .collect();
            progress.set_message(format!("bare and ours, {size} processes"));
            if let Err(why) = job::run(
                &now,
                visits,
                args.quick,
                &args.backend,
                Duration::from_secs(300),
                &mut samples,
            ) {
                samples.note(format!("{size} processes: {why}"));
            }
            progress.inc(1);
            for (index, name) in names.iter().enumerate() {
                progress.set_message(format!("{name}, {size} processes"));
                if let Some(peers) = &mut peers {
                    peers.measure(index, &now, args.quick, &mut samples);
                }
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    let records = record::all(&cases, &samples, &args.backend);
    say(&table::render(&records))?;
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
    if let Some(path) = &args.json {
        write_json(path, &records)?;
    }
    if let Some(dir) = &args.plot {
        for path in plot::write(dir, &records)? {
            say(&format!("\nPlot: {}\n", path.display()))?;
        }
    }
    Ok(())
}

fn write_json(path: &std::path::Path, records: &[record::Record]) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    for record in records {
        serde_json::to_writer(&mut file, record).map_err(|e| failed(e.into()))?;
        file.write_all(b"\n").map_err(failed)?;
    }
    file.flush().map_err(failed)
}

fn list(cases: &[Case]) -> Result<(), String> {
    for case in cases {
        say(&format!("{case:<28} {}\n", case.metric.about()))?;
    }
    let mut samples = Samples::default();
    let peers = Peers::find(&mut samples)?;
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
