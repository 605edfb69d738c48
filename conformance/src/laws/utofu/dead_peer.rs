//! §3.1.2.1: a program repeats a command on a dead process without waits. It gets MRQ_PEER.
//!
//! Each kind of command has a separate victim: rank 0 repeats the command on one victim after the other. The law counts commands; the
//! timeout only stops commands that succeed for ever.

use std::time::Instant;

use super::functions::{Call, Function};
use super::kit::*;

laws! {
    all given((&ALL[..], 0)):
        "failure.repeated", "§3.1.2.1", 7, [put, put_piggyback8, get, armw4, armw8, cswap8, poll_mrq] + needs_kill,
        "each kind of command that is repeated on a killed process gives MRQ_PEER, though nothing is waited for";
    all given((&["utofu_put", "utofu_put_piggyback8", "utofu_armw8"][..], PAUSE)):
        "failure.repeated.slowly", "§3.1.2.1", 4, [put, put_piggyback8, armw8, poll_mrq] + needs_kill,
        "so do commands with 20 ms between two of them: within 10 s that is five hundred";
}

const PEER: i32 = UTOFU_ERR_MRQ_PEER;
/// Seconds. A command that still succeeds after this time would succeed for ever.
const FOREVER: u64 = crate::stall::LONG.as_secs();
/// Commands, each followed by a pause, that may succeed after the death.
const FEW: u64 = 500;
const PAUSE: u64 = 20;

const ALL: [&str; 6] = [
    "utofu_put",
    "utofu_put_piggyback8",
    "utofu_get",
    "utofu_armw4",
    "utofu_armw8",
    "utofu_cswap8",
];

/// Rank 0 repeats the commands on one victim after the other, with a pause of `rest` milliseconds after each command.
fn all(ctx: &Ctx, (commands, rest): (&[&str], u64)) -> Verdict {
    with(ctx, 4096, |job| {
        for (name, victim) in commands.iter().zip(1u32..) {
            let function = Function::named(name);
            let call = Call {
                len: 256,
                ..Call::to(job, victim)
            };
            // Polls each queue once. A command in flight to an earlier victim may fail later.
            let once = || match function.post(&call) {
                SUCCESS | BUSY => {
                    job.queue.poll_tcq();
                    let (code, notice) = job.queue.poll_mrq();
                    if code == PEER && notice.vcq_id != call.to {
                        NOT_FOUND
                    } else {
                        code
                    }
                }
                code => code,
            };
            if job.rank == 0 {
                for _ in 0..if rest > 0 { 3 } else { 3000 } {
                    ensure_eq!(once(), NOT_FOUND, "{name} to the living");
                    pause(rest);
                }
            }
            job.meet();
            if job.rank == victim {
                ctx.dies();
            }
            if job.rank != 0 {
                continue;
            }
            let (start, mut count) = (Instant::now(), 0u64);
            let code = loop {
                match once() {
                    NOT_FOUND => count += 1,
                    code => break code,
                }
                ensure!(
                    (rest == 0 || count < FEW) && start.elapsed().as_secs() < FOREVER,
                    "{name} to a process that was killed has succeeded {count} times"
                );
                pause(rest);
            };
            ensure_eq!(code, PEER, "{name} to a process that was killed");
        }
        Ok(())
    })
}
