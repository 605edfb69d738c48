//! A measured process: pins itself, then walks through the cases with every column in turn.

use std::cell::{Cell, OnceCell};
use std::path::Path;
use std::str::FromStr;

use unipgas_core::stop::Stop;
use unipgas_launcher::library::{self, InstalledLibrary};

use crate::arena::Arena;
use crate::case::{Case, Metric};
use crate::ctx::{BenchContext, Ground};
use crate::network::BenchNetwork;
use crate::{bare, network, ours};

/// Measures a case, in the unit of its metric.
pub(crate) type Run = fn(&BenchContext, &Case) -> Result<f64, String>;

/// An implementation of one metric. All processes of the job call it together. The result of rank 0 counts.
pub(crate) struct Body {
    /// Column: for example "bare", "core" or "gaspi", with "/variant" if there are several.
    pub api: &'static str,
    /// Its measurement.
    pub run: Run,
}

/// Implementations with these columns.
pub(crate) fn bodies(all: &[(&'static str, Run)]) -> Vec<Body> {
    all.iter().map(|&(api, run)| Body { api, run }).collect()
}

/// The order of the launcher to its processes, as an argument: `ground;size;visits;quick;case,…`.
pub(crate) struct WorkOrder {
    /// The medium that the processes share.
    pub ground: Token,
    /// Number of processes.
    pub size: u32,
    /// Number of passes through all cases and columns.
    pub visits: usize,
    /// Measure for a shorter time.
    pub quick: bool,
    /// The cases to measure.
    pub cases: Vec<Case>,
}

/// The address of the shared medium.
pub(crate) enum Token {
    /// The arena.
    Memory(String),
    /// The hub.
    Network(String),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Memory(token) => write!(f, "memory={token}"),
            Token::Network(token) => write!(f, "network={token}"),
        }
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("memory", token)) => Ok(Token::Memory(token.into())),
            Some(("network", token)) => Ok(Token::Network(token.into())),
            _ => Err(format!("'{text}' is no ground of a measurement")),
        }
    }
}

impl std::fmt::Display for WorkOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cases: Vec<String> = self.cases.iter().map(Case::to_string).collect();
        write!(
            f,
            "{};{};{};{};{}",
            self.ground,
            self.size,
            self.visits,
            self.quick,
            cases.join(",")
        )
    }
}

impl FromStr for WorkOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not an order of the launcher");
        let [ground, size, visits, quick, cases] = text
            .split(';')
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|_| bad())?;
        Ok(WorkOrder {
            ground: ground.parse()?,
            size: size.parse().map_err(|_| bad())?,
            visits: visits.parse().map_err(|_| bad())?,
            quick: quick.parse().map_err(|_| bad())?,
            cases: cases.split(',').map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

/// Runs one process of the order, with the library that [`library::find`] returns for `wish`.
pub fn run(order: &str, wish: Option<&Path>) -> Result<(), String> {
    Stop::let_through();
    let order: WorkOrder = order.parse()?;
    let size = order.size as usize;
    let rank = rank(&|name| std::env::var(name).ok())
        .filter(|&r| r < size)
        .ok_or("the launcher has told no rank of this measurement")?;
    let cores = pin(rank)?;
    let ground = match &order.ground {
        Token::Memory(token) => Ground::Memory(Arena::open(token, order.size)?),
        Token::Network(token) => Ground::Network(Box::new(BenchNetwork::join(token, rank)?)),
    };
    ground.in_main();
    let mut ctx = BenchContext {
        rank,
        size,
        cores,
        crowded: size > cores,
        quick: order.quick,
        ground,
        visit: Cell::new(0),
        column: Cell::new(""),
        library: InstalledLibrary::open(&library::find(wish)?)?,
        ours: OnceCell::new(),
    };
    let messages = order.cases.iter().all(|c| c.metric.is_of_messages());
    let ours = ours::enter(&ctx, messages);
    // All processes must decide alike: unipgas is measured only if all have joined.
    let offered = ctx.all(ours.is_ok());
    let speaks = rank == 0 || matches!(ctx.ground, Ground::Network(_));
    if let Some(why) = ours.as_ref().err().filter(|_| speaks) {
        ctx.say(&format!("! ours: {why}"));
    }
    let _ = ctx.ours.set(ours);
    if let (0, Ok(network)) = (rank, ctx.network()) {
        ctx.say(&format!("= {}", network.provider_name()));
    }
    for visit in 0..order.visits {
        ctx.visit.set(visit);
        for case in &order.cases {
            if case.metric == Metric::Register && case.bytes >= 1 << 20 && visit > 0 {
                continue;
            }
            let limits = match ctx.ground {
                Ground::Memory(_) => bare::bodies(case),
                Ground::Network(_) => network::bodies(case),
            };
            let ours = if offered {
                ours::bodies(case)
            } else {
                Vec::new()
            };
            for body in limits.into_iter().chain(ours) {
                ctx.sync();
                ctx.column.set(body.api);
                let outcome = (body.run)(&ctx, case);
                if rank != 0 {
                    // The peers would wait for this process forever, so it ends the job.
                    outcome.map_err(|why| format!("{case} {}: {why}", body.api))?;
                } else {
                    match outcome {
                        Ok(value) => ctx.say(&format!("{case} {} {value}", body.api)),
                        Err(why) => ctx.say(&format!("! {case} {} {why}", body.api)),
                    }
                }
            }
        }
    }
    if offered && !messages {
        ours::counts::say(&ctx)?;
    }
    ctx.sync();
    match ctx.ours.take() {
        Some(Ok(ours)) => ours.leave(&ctx),
        _ => Ok(()),
    }
}

/// The rank of this process, from the variable of any launcher.
fn rank(variable: &dyn Fn(&str) -> Option<String>) -> Option<usize> {
    let names = [
        "UNIPGAS_RANK",
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
    ];
    let rank = names.into_iter().find_map(variable)?;
    rank.parse().ok()
}

/// The cores that this process may use.
pub fn cores() -> Result<Vec<usize>, String> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None).map_err(|e| format!("sched_getaffinity: {e}"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&c| allowed.is_set(c))
        .collect())
}

/// Pins this process to the core of its rank. Returns the number of cores.
fn pin(rank: usize) -> Result<usize, String> {
    let cores = cores()?;
    let mut one = rustix::thread::CpuSet::new();
    one.set(cores[rank % cores.len()]);
    rustix::thread::sched_setaffinity(None, &one).map_err(|e| format!("sched_setaffinity: {e}"))?;
    Ok(cores.len())
}
