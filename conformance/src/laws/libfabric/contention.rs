//! Atomicity against other initiators.

use super::kit::*;
use super::station::Plan;
use crate::ensure_eq;
use crate::law::{Ctx, Verdict};

laws! {
    sums: "atomic.sum", "fi_atomic(3) §4", 2, [fetch_atomic] + ordering,
        "fetching additions of several processes are each done once, and no two see the same value";
}

fn sums(ctx: &Ctx) -> Verdict {
    let each = many(ctx, 50);
    with(ctx, &Plan::default(), 256, |job| {
        let mut seen = Vec::new();
        for _ in 0..each {
            seen.push(job.fetch(0, 8, SUM, 1)?);
        }
        crate::ensure!(seen.is_sorted_by(|a, b| a < b), "the counts do not rise");
        job.update(0, 16, SUM, seen.iter().sum())?;
        job.meet();
        let total = each * u64::from(job.size);
        if job.rank == 0 {
            ensure_eq!(job.memory.get(8), total, "the sum");
            ensure_eq!(
                job.memory.get(16),
                total * (total - 1) / 2,
                "the sum of what was seen"
            );
        }
        Ok(())
    })
}
