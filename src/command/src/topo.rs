//! `unipgas topo`: draws a job on TofuD's mesh/torus, and predicts times from a model of that network.

mod collectives;
mod draw;
mod predicted;
mod svg;
mod text;

use std::path::PathBuf;

use unipgas_tofud::predict::predict;
use unipgas_tofud::sim::{Fidelity, MOST_MEMBERS};
use unipgas_tofud::{Error, Figures, JobLayout, PathRule, RankOrder, TorusShape, TrafficPattern};

use crate::{Ended, Failed, shown};

/// Draws a job on TofuD, the network of A64FX machines, and predicts from published figures the time of a pattern of puts
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Lengths of X, Y, Z, A, B and C, as 4x2x3x2x3x2
    #[arg(long, value_name = "SHAPE", conflicts_with_all = ["nodes", "processes"])]
    shape: Option<TorusShape>,
    /// Number of nodes, in a box that is large enough
    #[arg(long, value_name = "N", conflicts_with = "processes")]
    nodes: Option<u32>,
    /// Number of processes, likewise
    #[arg(short = 'n', long, value_name = "N")]
    processes: Option<u32>,
    /// Processes per node
    #[arg(long, value_name = "K", default_value_t = 4)]
    per_node: u32,
    /// X, Y and Z are parts of longer axes, and do not close
    #[arg(long)]
    open: bool,
    /// Places consecutive ranks on one node, or on consecutive nodes
    #[arg(long, value_enum, default_value = "node")]
    order: Ordered,
    /// Path coordinates of packets: as the target, as the source, all in turn (spread), or A,B,C
    #[arg(long, value_name = "RULE", default_value = "target")]
    path: PathRule,
    /// Traffic pattern: pair, pair:0-5, ring, shift:X+2, halo, alltoall, alltoone:3, random:7
    #[arg(long, value_name = "PATTERN", default_value = "halo")]
    pattern: TrafficPattern,
    /// Bytes of each message; K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = text::bytes)]
    bytes: u64,
    /// Changes a figure of the model, as hop=80
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Simulates schedules of barrier, all-reduce and broadcast instead, for this job; without a job, for several sizes up to all of Fugaku
    #[arg(long)]
    collectives: bool,
    /// With --collectives: messages wait for links and receivers, too
    #[arg(long)]
    contention: bool,
    /// Also draws the job with the load of its links into this file
    #[arg(long, value_name = "FILE", conflicts_with = "collectives")]
    svg: Option<PathBuf>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// [`RankOrder`], for the command line.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Ordered {
    Node,
    Cyclic,
}

/// The error for missing options of the job.
const NO_JOB: &str = "say which job: --shape 4x2x3x2x3x2, --nodes 24 or -n 96";

/// Sizes of jobs to simulate for `--collectives`, in nodes, if the options name no job.
const SIZES: [u32; 9] = [2, 12, 48, 192, 768, 3072, 12_288, 49_152, 158_976];

pub fn run(args: &Args) -> Ended {
    let text = told(args).map_err(|error| Failed(2, error.0))?;
    shown(&text)
}

fn told(args: &Args) -> Result<String, Error> {
    let mut figures = Figures::default();
    args.set.iter().try_for_each(|text| figures.set(text))?;
    if args.contention && !args.collectives {
        return Err(Error(
            "--contention is for --collectives: patterns have it anyway".into(),
        ));
    }
    if args.collectives {
        let jobs = match job(args) {
            Err(Error(why)) if why == NO_JOB => {
                let of = |nodes: &u32| job_of(args, Some(*nodes));
                let fits = |nodes: &&u32| **nodes <= MOST_MEMBERS / args.per_node.max(1);
                SIZES
                    .iter()
                    .filter(fits)
                    .map(of)
                    .collect::<Result<_, _>>()?
            }
            job => vec![job?],
        };
        let fidelity = match args.contention {
            true => Fidelity::Contention,
            false => Fidelity::Injection,
        };
        return collectives::told(&jobs, &figures, fidelity, args.bytes, args.json);
    }
    let job = job(args)?;
    let predicted = predict(&job, &figures, args.pattern, args.bytes)?;
    let report = predicted::PatternReport {
        job: &job,
        figures: &figures,
        pattern: args.pattern,
        bytes: args.bytes,
        predicted: &predicted,
    };
    if let Some(file) = &args.svg {
        let title = report.title();
        svg::draw(file, &job, &predicted.loads, &title)
            .map_err(|why| Error(format!("{}: {why}", file.display())))?;
    }
    if args.json {
        return Ok(format!("{}\n", report.json()));
    }
    Ok(format!(
        "{}\n{}\n{}",
        draw::heading(&job),
        draw::draw(&job, &predicted.loads),
        report.text()
    ))
}

fn job(args: &Args) -> Result<JobLayout, Error> {
    job_of(args, args.nodes)
}

fn job_of(args: &Args, nodes: Option<u32>) -> Result<JobLayout, Error> {
    let mut job = match (args.shape, nodes, args.processes) {
        (Some(shape), ..) => JobLayout::full(shape, args.per_node)?,
        (_, Some(nodes), _) => {
            let job = JobLayout::full(TorusShape::for_nodes(nodes)?, args.per_node)?;
            let processes = nodes * args.per_node;
            JobLayout { processes, ..job }
        }
        (.., Some(processes)) => JobLayout::of(processes, args.per_node)?,
        _ => return Err(Error(NO_JOB.into())),
    };
    if args.open {
        job.shape = job.shape.open();
    }
    job.order = match args.order {
        Ordered::Node => RankOrder::Node,
        Ordered::Cyclic => RankOrder::Cyclic,
    };
    job.path = args.path;
    Ok(job)
}
