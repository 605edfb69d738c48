//! A measured process: pins itself, then walks through the cases with every column in turn.

use std::cell::{Cell, OnceCell};
use std::str::FromStr;

use crate::arena::Arena;
use crate::case::{Case, Metric};
use crate::ctx::Ctx;
use crate::{bare, ours};

/// A way to do one metric. All processes of the job call it together; what rank 0 returns counts.
pub struct Body {
    /// Column: "bare", "core" or "gaspi", with "/variant" where there are several.
    pub api: &'static str,
    /// Measures the case, in the unit of its metric.
    pub run: fn(&Ctx, &Case) -> Result<f64, String>,
}

/// What the launcher asks of its processes, as an argument: `arena;size;visits;quick;case,…`.
pub struct Order {
    /// How to open the arena.
    pub arena: String,
    /// Number of processes.
    pub size: u32,
    /// How often to walk through all cases and columns.
    pub visits: usize,
    /// Whether to measure for a shorter time.
    pub quick: bool,
    /// What to measure.
    pub cases: Vec<Case>,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cases: Vec<String> = self.cases.iter().map(Case::to_string).collect();
        write!(
            f,
            "{};{};{};{};{}",
            self.arena,
            self.size,
            self.visits,
            self.quick,
            cases.join(",")
        )
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not an order of the launcher");
        let [arena, size, visits, quick, cases] = text
            .split(';')
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|_| bad())?;
        Ok(Order {
            arena: arena.into(),
            size: size.parse().map_err(|_| bad())?,
            visits: visits.parse().map_err(|_| bad())?,
            quick: quick.parse().map_err(|_| bad())?,
            cases: cases.split(',').map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

/// Runs as the process `rank` of the order.
pub fn run(order: &str) -> Result<(), String> {
    let order: Order = order.parse()?;
    let rank = std::env::var("UNIPGAS_RANK")
        .ok()
        .and_then(|r| r.parse::<usize>().ok());
    let rank = rank
        .filter(|&r| r < order.size as usize)
        .ok_or("UNIPGAS_RANK is not a rank of this measurement")?;
    let cores = pin(rank)?;
    let mut ctx = Ctx {
        rank,
        size: order.size as usize,
        crowded: order.size as usize > cores,
        quick: order.quick,
        arena: Arena::open(&order.arena, order.size)?,
        visit: Cell::new(0),
        ours: OnceCell::new(),
    };
    ctx.in_main();
    let messages = order.cases.iter().all(|c| c.metric.is_of_messages());
    let ours = ours::enter(&ctx, messages);
    if let Err(why) = &ours {
        // All processes of the job go on together, with or without the engine.
        ctx.arena.refuse();
        if rank == 0 {
            ctx.arena.say(&format!("! ours: {why}"));
        }
    }
    let _ = ctx.ours.set(ours);
    ctx.sync();
    let offered = !ctx.arena.refused();
    for visit in 0..order.visits {
        ctx.visit.set(visit);
        for case in &order.cases {
            if case.metric == Metric::Register && case.bytes >= 1 << 20 && visit > 0 {
                continue;
            }
            let ours = if offered {
                ours::bodies(case)
            } else {
                Vec::new()
            };
            for body in bare::bodies(case).into_iter().chain(ours) {
                ctx.sync();
                let outcome = (body.run)(&ctx, case);
                if rank != 0 {
                    // The others would wait for this one: better the job ends here.
                    outcome.map_err(|why| format!("{case} {}: {why}", body.api))?;
                } else {
                    match outcome {
                        Ok(value) => ctx.arena.say(&format!("{case} {} {value}", body.api)),
                        Err(why) => ctx.arena.say(&format!("! {case} {} {why}", body.api)),
                    }
                }
            }
        }
    }
    ctx.sync();
    match ctx.ours.take() {
        Some(Ok(ours)) => ours.leave(&ctx),
        _ => Ok(()),
    }
}

/// The cores that this process may use.
pub fn cores() -> Result<Vec<usize>, String> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None).map_err(|e| format!("sched_getaffinity: {e}"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&c| allowed.is_set(c))
        .collect())
}

/// Pins this process to the core that its rank has, and returns how many cores there are.
fn pin(rank: usize) -> Result<usize, String> {
    let cores = cores()?;
    let mut one = rustix::thread::CpuSet::new();
    one.set(cores[rank % cores.len()]);
    rustix::thread::sched_setaffinity(None, &one).map_err(|e| format!("sched_setaffinity: {e}"))?;
    Ok(cores.len())
}
