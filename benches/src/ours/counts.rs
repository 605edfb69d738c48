//! Requests to an RDMA device for each operation: numbers that do not depend on the speed of the machine.

use unipgas_backends::verbs::counts;
use unipgas_core::Deadline;
use unipgas_core::op::{Flags, Notice};

use super::core::NOTICES;
use super::text;
use crate::ctx::BenchContext;

/// Operations of each kind.
const MANY: usize = 512;
/// Parts of a list.
const LIST: usize = 16;
/// Operations between two waits.
const TOGETHER: usize = 64;

/// Counts in all processes, if they use a device. Rank 0 reports.
pub fn say(ctx: &BenchContext) -> Result<(), String> {
    let Some(device) = counts::device() else {
        return Ok(());
    };
    if ctx.rank == 0 {
        let kind = if device.is_software {
            "software"
        } else {
            "hardware"
        };
        ctx.say(&format!("@ {} {kind}", device.name));
    }
    let core = ctx.ours()?.core()?;
    let wait = |nth: usize| match nth % TOGETHER == TOGETHER - 1 {
        true => core.drain(),
        false => Ok(()),
    };
    if ctx.size == 2 {
        let at = |offset| core.there(offset);
        let put = |offset| {
            let from = core.local(0, 8)?;
            // SAFETY:
            // - `from` has 8 bytes in the region, which do not change before the end of the measurement
            let posted = unsafe { core.endpoint.put(from, at(offset), 8, Flags::empty(), 0) };
            posted.map(drop).map_err(text)
        };
        by_one(ctx, "8-byte put", |nth| put(0).and_then(|()| wait(nth)))?;
        by_one(ctx, "8-byte put, notice", |nth| {
            let notice = Notice {
                slot: at(NOTICES),
                value: 1,
            };
            let from = core.local(0, 8)?;
            // SAFETY:
            // - as for a put
            let posted = unsafe {
                core.endpoint
                    .put_notify(from, at(0), 8, notice, Flags::empty(), 0)
            };
            posted.map_err(text).and_then(|_| wait(nth))
        })?;
        by_one(ctx, "list of 16 8-byte puts", |_| {
            let together = core.endpoint.together(core.remote());
            (0..LIST).try_for_each(|nth| put(64 * nth))?;
            drop(together);
            core.drain()
        })?;
        by_one(ctx, "4-KiB get", |nth| {
            let to = core.local(0, 4096)?;
            // SAFETY:
            // - `to` has 4096 bytes in the region, which are not read before the drain
            let posted = unsafe { core.endpoint.get(to, at(0), 4096, Flags::empty(), 0) };
            posted.map_err(text).and_then(|_| wait(nth))
        })?;
        by_one(ctx, "fetch-add", |_| {
            let old = core.endpoint.fetch_add(core.engine(), at(8), 1);
            old.map(drop).map_err(text)
        })?;
    }
    count(ctx, &format!("barrier of {}", ctx.size), |_| {
        core.group.barrier(Deadline::Never).map_err(text)
    })
}

/// Rank 0 runs it, and the others wait.
fn by_one(
    ctx: &BenchContext,
    what: &str,
    mut run: impl FnMut(usize) -> Result<(), String>,
) -> Result<(), String> {
    count(ctx, what, |nth| match ctx.rank {
        0 => run(nth),
        _ => Ok(()),
    })
}

fn count(
    ctx: &BenchContext,
    what: &str,
    mut run: impl FnMut(usize) -> Result<(), String>,
) -> Result<(), String> {
    // Warm-up: connections and other first-time work.
    (0..TOGETHER).try_for_each(&mut run)?;
    ctx.sync();
    let before = counts::of_this_process();
    (0..MANY).try_for_each(&mut run)?;
    let after = counts::of_this_process();
    ctx.sync();
    if ctx.rank == 0 {
        let each = |after: u64, before: u64| (after - before) as f64 / MANY as f64;
        ctx.say(&format!(
            "# {what}: {} {} {} {}",
            each(after.doorbells, before.doorbells),
            each(after.requests, before.requests),
            each(after.told, before.told),
            each(after.completions, before.completions)
        ));
    }
    Ok(())
}
