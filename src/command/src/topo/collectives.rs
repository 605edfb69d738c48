//! Simulates schedules of collective operations, and finds the best one for each size.

use std::fmt::Write as _;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use unipgas_tofud::collectives::{CollectiveAlgorithm, CollectiveOperation, plans, run};
use unipgas_tofud::sim::Fidelity;
use unipgas_tofud::{Error, Figures, JobLayout};

use super::predicted;
use super::text::{grouped, time};

/// A job, and the times of all plans of all operations in ns.
struct Size {
    job: JobLayout,
    operations: Vec<(CollectiveOperation, Vec<(CollectiveAlgorithm, f64)>)>,
}

impl Size {
    fn best(
        of: &[(CollectiveAlgorithm, f64)],
        allowed: impl Fn(CollectiveAlgorithm) -> bool,
    ) -> Option<(CollectiveAlgorithm, f64)> {
        let all = of.iter().copied().filter(|(plan, _)| allowed(*plan));
        all.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Simulates all plans for each of `jobs`, with values of `bytes` bytes.
pub fn told(
    jobs: &[JobLayout],
    figures: &Figures,
    fidelity: Fidelity,
    bytes: u64,
    as_json: bool,
) -> Result<String, Error> {
    let bar = progress(jobs, bytes);
    let mut sizes = Vec::new();
    for job in jobs {
        job.path.check(&job.shape)?;
        let mut operations = Vec::new();
        for operation in CollectiveOperation::ALL {
            let mut times = Vec::new();
            for plan in plans(operation, job, bytes) {
                bar.set_message(format!("{} nodes: {operation}, {plan}", job.nodes_in_use()));
                let outcome = run(job, figures, fidelity, plan, bytes)?;
                times.push((plan, outcome.time_ns));
                bar.inc(u64::from(job.processes));
            }
            operations.push((operation, times));
        }
        sizes.push(Size {
            job: *job,
            operations,
        });
    }
    bar.finish_and_clear();
    Ok(match as_json {
        true => format!("{}\n", all(&sizes, figures, fidelity, bytes)),
        false => text(&sizes, bytes) + &predicted::figures(figures),
    })
}

fn progress(jobs: &[JobLayout], bytes: u64) -> ProgressBar {
    let work = |job: &JobLayout| {
        let plans =
            CollectiveOperation::ALL.map(|operation| plans(operation, job, bytes).len() as u64);
        plans.iter().sum::<u64>() * u64::from(job.processes)
    };
    let bar = ProgressBar::new(jobs.iter().map(work).sum());
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} % {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar
}

fn text(sizes: &[Size], bytes: u64) -> String {
    let mut text = String::from(
        "Simulated by a model of TofuD, not measured. The best schedule of the engine's\ngroups, their choice without knowledge of the network, and, if there is one, the\nschedule of barrier gates\n",
    );
    for (nth, operation) in CollectiveOperation::ALL.into_iter().enumerate() {
        let of = match operation {
            CollectiveOperation::Barrier => String::new(),
            _ => format!(" of {} bytes", grouped(bytes)),
        };
        let _ = writeln!(text, "\n{operation}{of}\n");
        let _ = writeln!(
            text,
            "{:>9} {:>10}  {:<24} {:>8} {:>8} {:>8}",
            "nodes", "processes", "best of groups", "time", "usual", "gates"
        );
        for size in sizes {
            let times = &size.operations[nth].1;
            let best = Size::best(times, CollectiveAlgorithm::is_of_groups);
            let gates = Size::best(times, |plan| !plan.is_of_groups());
            let usual = times.first().map(|(_, ns)| *ns);
            let shown = |ns: Option<f64>| ns.map_or("-".into(), time);
            let _ = writeln!(
                text,
                "{:>9} {:>10}  {:<24} {:>8} {:>8} {:>8}",
                grouped(u64::from(size.job.nodes_in_use())),
                grouped(u64::from(size.job.processes)),
                best.map_or("-".into(), |(plan, _)| plan.to_string()),
                shown(best.map(|(_, ns)| ns)),
                shown(usual),
                shown(gates.map(|(_, ns)| ns)),
            );
        }
    }
    text.push('\n');
    text
}

fn all(sizes: &[Size], figures: &Figures, fidelity: Fidelity, bytes: u64) -> Value {
    let size = |size: &Size| {
        let operations = size.operations.iter().map(|(operation, times)| {
            let best = Size::best(times, |_| true).map(|(plan, _)| plan.to_string());
            let of_groups = Size::best(times, CollectiveAlgorithm::is_of_groups)
                .map(|(plan, _)| plan.to_string());
            let times = times.iter();
            let times: Vec<Value> = times
                .map(|(plan, ns)| json!({ "plan": plan.to_string(), "time_ns": ns }))
                .collect();
            json!({
                "operation": operation.to_string(),
                "best": best,
                "best_of_groups": of_groups,
                "plans": times,
            })
        });
        json!({
            "shape": size.job.shape.lengths(),
            "nodes": size.job.nodes_in_use(),
            "processes": size.job.processes,
            "per_node": size.job.per_node,
            "operations": operations.collect::<Vec<_>>(),
        })
    };
    json!({
        "model": "tofud",
        "bytes": bytes,
        "contention": fidelity == Fidelity::Contention,
        "sizes": sizes.iter().map(size).collect::<Vec<_>>(),
        "figures": figures.list().iter().map(predicted::figure).collect::<Vec<_>>(),
    })
}
