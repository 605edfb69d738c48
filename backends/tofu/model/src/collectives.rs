//! The best schedule of a collective operation for a size.

use std::fmt;

use unipgas_schedule::{AllReduce, Barrier, Broadcast, FEW, Schedule};

use crate::figures::Figures;
use crate::job::JobLayout;
use crate::sim::{Fidelity, SimResult, SimSetting, simulate};
use crate::{Error, Result, wrong};

/// A collective operation of all ranks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CollectiveOperation {
    /// A barrier.
    Barrier,
    /// Each member gets the combination of all values.
    AllReduce,
    /// Each member gets the value of rank 0.
    Broadcast,
}

impl CollectiveOperation {
    /// All operations.
    pub const ALL: [CollectiveOperation; 3] = [
        CollectiveOperation::Barrier,
        CollectiveOperation::AllReduce,
        CollectiveOperation::Broadcast,
    ];
}

/// An algorithm for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CollectiveAlgorithm {
    /// A barrier of the engine's groups.
    Barrier(Barrier),
    /// An all-reduce of the engine's groups.
    AllReduce(AllReduce),
    /// A broadcast of the engine's groups.
    Broadcast(Broadcast),
    /// A barrier by barrier gates between nodes (uTofu guide §2.3): a relay gate for each round.
    GateBarrier,
    /// An all-reduce by barrier gates between nodes.
    GateAllReduce,
}

/// Maximum number of bytes that gates combine: three doubles (guide §5.4).
pub const GATE_BYTES: u64 = 24;
/// Relay gates of a TNI.
const RELAYS: u32 = 32;
/// Maximum number of members of an [`AllReduce::Flat`], as in the engine's groups.
const FLAT: u32 = FEW;
/// Maximum number of members of a counting barrier: all count at one word.
const COUNTED: u32 = 1 << 14;

impl CollectiveAlgorithm {
    /// The steps of rank `me`. The root of broadcasts is rank 0.
    pub fn schedule(self, me: u32, job: &JobLayout) -> Schedule {
        let (n, per_node) = (job.processes, job.per_node);
        match self {
            CollectiveAlgorithm::Barrier(shape) => shape.schedule(me, n),
            CollectiveAlgorithm::AllReduce(shape) => shape.schedule(me, n),
            CollectiveAlgorithm::Broadcast(shape) => shape.schedule(me, n, 0),
            CollectiveAlgorithm::GateBarrier => Barrier::ByNode(per_node, 2).schedule(me, n),
            CollectiveAlgorithm::GateAllReduce => AllReduce::ByNode(per_node, 2).schedule(me, n),
        }
    }

    /// Whether a group of the engine can use it. Otherwise only an interface can.
    pub fn is_of_groups(self) -> bool {
        !matches!(
            self,
            CollectiveAlgorithm::GateBarrier | CollectiveAlgorithm::GateAllReduce
        )
    }
}

impl fmt::Display for CollectiveAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectiveAlgorithm::Barrier(shape) => shape.fmt(f),
            CollectiveAlgorithm::AllReduce(shape) => shape.fmt(f),
            CollectiveAlgorithm::Broadcast(shape) => shape.fmt(f),
            CollectiveAlgorithm::GateBarrier | CollectiveAlgorithm::GateAllReduce => {
                write!(f, "barrier gates")
            }
        }
    }
}

/// The plans for an operation of `bytes` bytes. Plans without advantage at this size are omitted: a flat all-reduce of many members, a counter of very many,
/// gates for more than [`GATE_BYTES`].
pub fn plans(
    operation: CollectiveOperation,
    job: &JobLayout,
    bytes: u64,
) -> Vec<CollectiveAlgorithm> {
    let (n, per_node) = (job.processes, job.per_node.min(job.processes));
    let nodes = job.nodes_in_use();
    let by_node: &[u32] = match per_node > 1 && nodes > 1 {
        true => &[2, 4, 8],
        false => &[],
    };
    let rounds = nodes.next_power_of_two().trailing_zeros();
    let gates = nodes > 1 && rounds + 2 <= RELAYS;
    let mut plans = Vec::new();
    match operation {
        CollectiveOperation::Barrier => {
            let mut shapes = vec![Barrier::Dissemination, Barrier::Radix(4), Barrier::Radix(8)];
            shapes.extend(by_node.iter().map(|of| Barrier::ByNode(per_node, *of)));
            shapes.extend((n <= COUNTED).then_some(Barrier::Counting));
            plans.extend(shapes.into_iter().map(CollectiveAlgorithm::Barrier));
            plans.extend(gates.then_some(CollectiveAlgorithm::GateBarrier));
        }
        CollectiveOperation::AllReduce => {
            let mut shapes = vec![AllReduce::Doubling];
            shapes.extend([4, 8].map(AllReduce::Radix));
            shapes.extend([2, 4].map(AllReduce::Tree));
            shapes.extend(by_node.iter().map(|of| AllReduce::ByNode(per_node, *of)));
            shapes.extend((n <= FLAT).then_some(AllReduce::Flat));
            plans.extend(shapes.into_iter().map(CollectiveAlgorithm::AllReduce));
            let gates = gates && bytes <= GATE_BYTES;
            plans.extend(gates.then_some(CollectiveAlgorithm::GateAllReduce));
        }
        CollectiveOperation::Broadcast => {
            let mut shapes = vec![Broadcast::Binomial];
            shapes.extend([2, 4, 8].map(Broadcast::Tree));
            shapes.extend(by_node.iter().map(|of| Broadcast::ByNode(per_node, *of)));
            plans.extend(shapes.into_iter().map(CollectiveAlgorithm::Broadcast));
        }
    }
    plans
}

/// Simulates a plan. Errors: as [`simulate`].
pub fn run(
    job: &JobLayout,
    figures: &Figures,
    fidelity: Fidelity,
    plan: CollectiveAlgorithm,
    bytes: u64,
) -> Result<SimResult> {
    let setting = SimSetting {
        job,
        figures,
        fidelity,
        bytes,
        gates: (!plan.is_of_groups()).then_some(job.per_node.min(job.processes)),
    };
    simulate(&setting, |me| plan.schedule(me, job))
}

/// The best of the `allowed` plans, and its time in ns. If plans are equal, the first one wins. Errors: no plan is allowed; as [`simulate`].
pub fn best_of(
    operation: CollectiveOperation,
    job: &JobLayout,
    figures: &Figures,
    bytes: u64,
    allowed: impl Fn(CollectiveAlgorithm) -> bool,
) -> Result<(CollectiveAlgorithm, f64)> {
    let mut best: Option<(CollectiveAlgorithm, f64)> = None;
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

/// The best plan for this number of members on full nodes, with the default figures. Errors: as [`best_of`]; no members.
pub fn best(
    operation: CollectiveOperation,
    members: u32,
    per_node: u32,
    bytes: u64,
) -> Result<(CollectiveAlgorithm, f64)> {
    if members == 0 {
        return wrong("an operation has at least one member");
    }
    let job = JobLayout::of(members, per_node)?;
    best_of(operation, &job, &Figures::default(), bytes, |_| true)
}

impl fmt::Display for CollectiveOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectiveOperation::Barrier => write!(f, "barrier"),
            CollectiveOperation::AllReduce => write!(f, "all-reduce"),
            CollectiveOperation::Broadcast => write!(f, "broadcast"),
        }
    }
}
