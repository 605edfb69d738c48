//! A program that repeats an operation on a dead process, and never waits, gets a failure.
//!
//! Each kind of operation has a separate victim. Rank 0 repeats the operation on one victim after the other. With a pause after each,
//! the number of operations is limited. The clock ends an endless loop.

use std::time::Instant;

use super::death::ended;
use super::kit::*;

laws! {
    all given((&[ADD, INJECT_ADD, FETCH, COMPARE][..], 3000, 0)):
        "death.repeated.atomics", "fi_cq(3)", 5, [atomic, inject_atomic, fetch_atomic, compare_atomic, cq_readerr] + needs_kill,
        "each kind of atomic that is repeated on a killed process fails with FI_ECONNRESET, though nothing is waited for";
    all given((WRITES_AND_READS, 300, 0)): "death.repeated.rma", "fi_cq(3)", 6, [write, read, inject_write, writedata, inject_writedata, cq_readerr] + needs_kill,
        "each kind of RMA operation that is repeated on a killed process fails with FI_ECONNRESET, though nothing is waited for";
    all given((&[INJECT_ADD, FETCH, WRITE_8, READ_8][..], 3, PAUSE)):
        "death.repeated.slowly", "fi_cq(3)", 5, [inject_atomic, fetch_atomic, write, read, cq_readerr] + needs_kill,
        "so do operations with 20 ms between two of them: within 10 s that is five hundred";
}

/// Seconds after the death. If an operation still succeeds then, the law fails.
const FOREVER: u64 = crate::stall::LONG.as_secs();
/// Operations, with a pause after each, that may succeed after the death.
const FEW: u64 = 500;
const PAUSE: u64 = 20;

/// The operations that the laws repeat, and whether they are injected: those have no context.
type Repeated = (Operation, bool);

const ADD: Repeated = (Words::add, false);
const INJECT_ADD: Repeated = (Words::inject_add, true);
const FETCH: Repeated = (Words::fetch_add, false);
const COMPARE: Repeated = (Words::swap, false);
const WRITE_8: Repeated = (Words::write, false);
const INJECT: Repeated = (Words::inject, true);
const READ_8: Repeated = (Words::read, false);
const WRITE_DATA: Repeated = (|words| words.write_data(7), false);
const INJECT_DATA: Repeated = (|words| words.inject_data(7), true);

/// Rank 0 repeats each operation on its victim. `few`: repetitions before the death. `rest`: pause after each, in milliseconds.
fn all(ctx: &Ctx, (operations, few, rest): (&[Repeated], u32, u64)) -> Verdict {
    let job = opened(ctx, &Plan::DEFAULT, 256)?;
    for ((operation, is_injected), victim) in operations.iter().zip(1u32..) {
        let context = if *is_injected { 0 } else { victim as usize };
        let words = job.words(victim, 8).told(context);
        let words = words.into(job.memory.at(64).cast());
        // Returns whether the operation has failed. Operations in flight to an earlier victim may fail later.
        let once = || -> Result<bool, String> {
            accepted(operation(&words)).map_err(|text| format!("operation {victim}: {text}"))?;
            match job.tx.look()? {
                Some(End::Failure(error)) => {
                    ensure_eq!(error.err, FI_ECONNRESET, "operation {victim}: the failure");
                    Ok(error.context() == context)
                }
                _ => Ok(false),
            }
        };
        if ctx.rank == 0 {
            for _ in 0..few {
                let failed = once()?;
                ensure!(!failed, "operation {victim} on a living process has failed");
                pause(rest);
            }
        }
        job.meet();
        if ctx.rank == victim {
            ctx.dies();
        }
        if ctx.rank != 0 {
            continue;
        }
        let (start, mut count) = (Instant::now(), 0u64);
        while !once()? {
            count += 1;
            ensure!(
                (rest == 0 || count < FEW) && start.elapsed().as_secs() < FOREVER,
                "operation {victim} on a process that was killed has succeeded {count} times"
            );
            pause(rest);
        }
    }
    ended(job)
}

/// Writes with data fill the inbox of a dead target.
const WRITES_AND_READS: &[Repeated] = &[WRITE_8, INJECT, READ_8, WRITE_DATA, INJECT_DATA];
