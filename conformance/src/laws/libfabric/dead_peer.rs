//! A program that repeats an operation on a dead process, and never waits, gets a failure.
//!
//! Each kind of operation has a separate victim. Rank 0 repeats the operation on one victim after the other. With a pause after each,
//! the number of operations is limited. The clock ends an endless loop.

use std::time::Instant;

use super::death::ended;
use super::kit::*;
use super::station::Plan;

laws! {
    all given((&[ATOMIC, INJECT_ATOMIC, FETCH, COMPARE][..], 3000, 0)):
        "death.repeated.atomics", "fi_cq(3)", 5, [atomic, inject_atomic, fetch_atomic, compare_atomic, cq_readerr] + needs_kill,
        "each kind of atomic that is repeated on a killed process fails with FI_ECONNRESET, though nothing is waited for";
    all given((WRITES_AND_READS, 300, 0)): "death.repeated.rma", "fi_cq(3)", 6, [write, read, inject_write, writedata, inject_writedata, cq_readerr] + needs_kill,
        "each kind of RMA operation that is repeated on a killed process fails with FI_ECONNRESET, though nothing is waited for";
    all given((&[INJECT_ATOMIC, FETCH, WRITE_8, READ_8][..], 3, PAUSE)):
        "death.repeated.slowly", "fi_cq(3)", 5, [inject_atomic, fetch_atomic, write, read, cq_readerr] + needs_kill,
        "so do operations with 20 ms between two of them: within 10 s that is five hundred";
}

/// Seconds after the death. If an operation still succeeds then, the law fails.
const FOREVER: u64 = crate::stall::LONG.as_secs();
/// Operations, with a pause after each, that may succeed after the death.
const FEW: u64 = 500;
const PAUSE: u64 = 20;

static ONE: u64 = 1;

/// Posts an operation on 8 bytes. Arguments: endpoint, local memory, the target's (address, remote address, key), context.
pub(super) type Operation = fn(*mut fid_ep, *mut u8, (u64, u64, u64), *mut c_void) -> isize;

fn one<T>() -> *const T {
    (&raw const ONE).cast()
}

pub(super) const ATOMIC: Operation = |ep, _, (to, at, key), cx| call!(atomic ep, write(one(), 1, null_mut(), to, at, key, UINT64, SUM, cx));
const INJECT_ATOMIC: Operation =
    |ep, _, (to, at, key), _| call!(atomic ep, inject(one(), 1, to, at, key, UINT64, SUM));
pub(super) const FETCH: Operation = |ep, own, (to, at, key), cx| {
    let none = null_mut();
    call!(atomic ep, readwrite(one(), 1, none, own.cast(), none, to, at, key, UINT64, SUM, cx))
};
pub(super) const COMPARE: Operation = |ep, own, (to, at, key), cx| {
    let none = null_mut();
    call!(atomic ep, compwrite(one(), 1, none, one(), none, own.cast(), none, to, at, key, UINT64, CSWAP, cx))
};
pub(super) const WRITE_8: Operation =
    |ep, _, (to, at, key), cx| call!(rma ep, write(one(), 8, null_mut(), to, at, key, cx));
pub(super) const INJECT: Operation =
    |ep, _, (to, at, key), _| call!(rma ep, inject(one(), 8, to, at, key));
const WRITE_DATA: Operation =
    |ep, _, (to, at, key), cx| call!(rma ep, writedata(one(), 8, null_mut(), 7, to, at, key, cx));
const INJECT_DATA: Operation =
    |ep, _, (to, at, key), _| call!(rma ep, injectdata(one(), 8, 7, to, at, key));
pub(super) const READ_8: Operation =
    |ep, own, (to, at, key), cx| call!(rma ep, read(own.cast(), 8, null_mut(), to, at, key, cx));

/// Injected operations have no context.
fn is_injected(operation: Operation) -> bool {
    [INJECT_ATOMIC, INJECT, INJECT_DATA]
        .iter()
        .any(|other| std::ptr::fn_addr_eq(*other, operation))
}

/// Rank 0 repeats each operation on its victim. `few`: repetitions before the death. `rest`: pause after each, in milliseconds.
fn all(ctx: &Ctx, (operations, few, rest): (&[Operation], u32, u64)) -> Verdict {
    let job = opened(ctx, &Plan::DEFAULT, 256)?;
    for (operation, victim) in operations.iter().zip(1u32..) {
        let (place, own) = (job.place(victim, 8), job.memory.at(64));
        let context = if is_injected(*operation) {
            0
        } else {
            victim as usize
        };
        // Returns whether the operation has failed. Operations in flight to an earlier victim may fail later.
        let once = || -> Result<bool, String> {
            match operation(job.ep, own, place, cx(context)) {
                0 | AGAIN => {}
                code => return Err(format!("posting {victim} gave {}", code_name(code))),
            }
            match job.tx.read() {
                (1 | AGAIN, _) => Ok(false),
                (AVAIL, _) => {
                    let error = job
                        .tx
                        .fails(FI_ECONNRESET, &format!("operation {victim}"))?;
                    Ok(error.op_context.addr() == context)
                }
                (code, _) => Err(format!("fi_cq_read gave {}", code_name(code))),
            }
        };
        if ctx.rank == 0 {
            for _ in 0..few {
                ensure!(
                    !once()?,
                    "operation {victim} on a process that lives has failed"
                );
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
const WRITES_AND_READS: &[Operation] = &[WRITE_8, INJECT, READ_8, WRITE_DATA, INJECT_DATA];
