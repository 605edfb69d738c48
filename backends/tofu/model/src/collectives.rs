//! The best schedule of a collective operation for a size.

use std::fmt;

use unipgas_schedule::{AllReduce, Barrier, Broadcast, FEW, Schedule};

use crate::figures::Figures;
use crate::job::Job;
use crate::sim::{Fidelity, Outcome, Setting, simulate};
use crate::{Error, Result, wrong};

/// A collective operation of all ranks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A barrier.
    Barrier,
    /// Each member gets the combination of all values.
    AllReduce,
    /// Each member gets the value of rank 0.
    Broadcast,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 3] = [
        Operation::Barrier,
        Operation::AllReduce,
        Operation::Broadcast,
    ];
}

/// One way to carry an operation out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plan {
    /// A barrier of the engine's groups.
    Barrier(Barrier),
    /// One of their all-reduces.
    AllReduce(AllReduce),
    /// One of their broadcasts.
    Broadcast(Broadcast),
    /// A barrier by barrier gates between nodes (uTofu guide §2.3): a relay gate for each round.
    GateBarrier,
    /// An all-reduce by gates, likewise.
    GateAllReduce,
}

/// The most bytes that gates combine: three doubles (guide §5.4).
pub const GATE_BYTES: u64 = 24;
/// Relay gates of a TNI.
const RELAYS: u32 = 32;
/// Members of a [`AllReduce::Flat`]: as many as a group has in it.
const FLAT: u32 = FEW;
/// The most members of a counting barrier: all come to one word.
const COUNTED: u32 = 1 << 14;

impl Plan {
    /// The steps of rank `me`. Broadcasts begin at rank 0.
    pub fn schedule(self, me: u32, job: &Job) -> Schedule {
        let (n, per_node) = (job.processes, job.per_node);
        match self {
            Plan::Barrier(shape) => shape.schedule(me, n),
            Plan::AllReduce(shape) => shape.schedule(me, n),
            Plan::Broadcast(shape) => shape.schedule(me, n, 0),
            Plan::GateBarrier => Barrier::ByNode(per_node, 2).schedule(me, n),
            Plan::GateAllReduce => AllReduce::ByNode(per_node, 2).schedule(me, n),
        }
    }

    /// Whether a group of the engine can take it; else it is the interface's.
    pub fn is_of_groups(self) -> bool {
        !matches!(self, Plan::GateBarrier | Plan::GateAllReduce)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plan::Barrier(shape) => shape.fmt(f),
            Plan::AllReduce(shape) => shape.fmt(f),
            Plan::Broadcast(shape) => shape.fmt(f),
            Plan::GateBarrier | Plan::GateAllReduce => write!(f, "barrier gates"),
        }
    }
}

/// The plans for an operation of that many bytes. The ones without an alternative's advantage at that size are left out: a flat all-reduce of many, a counter of
/// very many, gates for more than they take.
pub fn plans(operation: Operation, job: &Job, bytes: u64) -> Vec<Plan> {
    let (n, per_node) = (job.processes, job.per_node.min(job.processes));
    let nodes = job.nodes_in_use();
    let by_node = per_node > 1 && nodes > 1;
    let mut plans = Vec::new();
    match operation {
        Operation::Barrier => {
            plans.push(Plan::Barrier(Barrier::Dissemination));
            plans.extend([4, 8].map(|radix| Plan::Barrier(Barrier::Radix(radix))));
            if by_node {
                let shapes = [2, 4, 8].map(|radix| Plan::Barrier(Barrier::ByNode(per_node, radix)));
                plans.extend(shapes);
            }
            if n <= COUNTED {
                plans.push(Plan::Barrier(Barrier::Counting));
            }
        }
        Operation::AllReduce => {
            plans.push(Plan::AllReduce(AllReduce::Doubling));
            plans.extend([4, 8].map(|radix| Plan::AllReduce(AllReduce::Radix(radix))));
            plans.extend([2, 4].map(|radix| Plan::AllReduce(AllReduce::Tree(radix))));
            if by_node {
                let shapes =
                    [2, 4, 8].map(|radix| Plan::AllReduce(AllReduce::ByNode(per_node, radix)));
                plans.extend(shapes);
            }
            if n <= FLAT {
                plans.push(Plan::AllReduce(AllReduce::Flat));
            }
        }
        Operation::Broadcast => {
            plans.push(Plan::Broadcast(Broadcast::Binomial));
            plans.extend([2, 4, 8].map(|radix| Plan::Broadcast(Broadcast::Tree(radix))));
            if by_node {
                let shapes =
                    [2, 4, 8].map(|radix| Plan::Broadcast(Broadcast::ByNode(per_node, radix)));
                plans.extend(shapes);
            }
        }
    }
    let rounds = nodes.next_power_of_two().trailing_zeros();
    if nodes > 1 && rounds + 2 <= RELAYS {
        match operation {
            Operation::Barrier => plans.push(Plan::GateBarrier),
            Operation::AllReduce if bytes <= GATE_BYTES => plans.push(Plan::GateAllReduce),
            _ => {}
        }
    }
    plans
}

/// Simulates one of them. Errors: as [`simulate`].
pub fn run(
    job: &Job,
    figures: &Figures,
    fidelity: Fidelity,
    plan: Plan,
    bytes: u64,
) -> Result<Outcome> {
    let setting = Setting {
        job,
        figures,
        fidelity,
        bytes,
        gates: (!plan.is_of_groups()).then_some(job.per_node.min(job.processes)),
    };
    simulate(&setting, |me| plan.schedule(me, job))
}

/// The best of the `allowed` plans, and its time in ns. Of equal plans it is the first. Errors: none is allowed; as [`simulate`].
pub fn best_of(
    operation: Operation,
    job: &Job,
    figures: &Figures,
    bytes: u64,
    allowed: impl Fn(Plan) -> bool,
) -> Result<(Plan, f64)> {
    let mut best: Option<(Plan, f64)> = None;
    for plan in plans(operation, job, bytes)
        .into_iter()
        .filter(|plan| allowed(*plan))
    {
        let time = run(job, figures, Fidelity::default(), plan, bytes)?.time_ns;
        if best.is_none_or(|(_, other)| time < other) {
            best = Some((plan, time));
        }
    }
    best.ok_or_else(|| Error("no schedule is allowed".into()))
}

/// The best plan for this number of members on full nodes, with the model's figures. Errors: as [`best_of`], and no members.
pub fn best(operation: Operation, members: u32, per_node: u32, bytes: u64) -> Result<(Plan, f64)> {
    if members == 0 {
        return wrong("an operation has at least one member");
    }
    let job = Job::of(members, per_node)?;
    best_of(operation, &job, &Figures::default(), bytes, |_| true)
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Barrier => write!(f, "barrier"),
            Operation::AllReduce => write!(f, "all-reduce"),
            Operation::Broadcast => write!(f, "broadcast"),
        }
    }
}
