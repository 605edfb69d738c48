//! §3.1.2.1: a program repeats a command on a dead process without waits. It gets MRQ_PEER.
//!
//! Each kind of command has a separate victim: rank 0 repeats the command on one victim after the other. The law counts commands; the
//! timeout only stops commands that succeed for ever.

use std::time::Instant;

use super::kit::*;

laws! {
    all given((&[PUT, WORD, GET, ARMW4, ARMW8, CSWAP8][..], 0)):
        "failure.repeated", "§3.1.2.1", 7, [put, put_piggyback8, get, armw4, armw8, cswap8, poll_mrq] + needs_kill,
        "each kind of command that is repeated on a killed process gives MRQ_PEER, though nothing is waited for";
    all given((&[PUT, WORD, ARMW8][..], PAUSE)):
        "failure.repeated.slowly", "§3.1.2.1", 4, [put, put_piggyback8, armw8, poll_mrq] + needs_kill,
        "so do commands with 20 ms between two of them: within 10 s that is five hundred";
}

const PEER: i32 = UTOFU_ERR_MRQ_PEER;
/// Seconds. A command that still succeeds after this time would succeed for ever.
const FOREVER: u64 = crate::stall::LONG.as_secs();
/// Commands, each followed by a pause, that may succeed after the death.
const FEW: u64 = 500;
const PAUSE: u64 = 20;

/// Posts a command: the VCQ, own memory, another VCQ, memory there.
type Command = fn(usize, u64, u64, u64) -> i32;

const PUT: Command = |hdl, own, to, at| post::put(hdl, to, own, at, 256).code(0, 0, 0);
const WORD: Command = |hdl, _, to, at| post::put_piggyback8(hdl, to, 1, at, 8).code(0, 0, 0);
const GET: Command = |hdl, own, to, at| post::get(hdl, to, own, at, 256).code(0, 0, 0);
const ARMW4: Command = |hdl, _, to, at| post::armw4(hdl, to, ADD, 1, at).code(0, 0, 0);
const ARMW8: Command = |hdl, _, to, at| post::armw8(hdl, to, ADD, 1, at).code(0, 0, 0);
const CSWAP8: Command = |hdl, _, to, at| post::cswap8(hdl, to, 1, 2, at).code(0, 0, 0);

/// Rank 0 repeats the commands on one victim after the other, with a pause of `rest` milliseconds after each command.
fn all(ctx: &Ctx, (commands, rest): (&[Command], u64)) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new(4096);
    let stadd = queue.register_as(memory, STAG)?;
    ctx.sync();
    for (command, victim) in commands.iter().zip(1u32..) {
        let to = vcq_of(victim, TNI, 0)?;
        let at = stadd_of(to, STAG)?;
        // Polls each queue once. A command in flight to an earlier victim may fail later.
        let once = || match command(queue.hdl, stadd, to, at) {
            SUCCESS | BUSY => {
                queue.poll_tcq();
                let (code, notice) = queue.poll_mrq();
                if code == PEER && notice.vcq_id != to {
                    NOT_FOUND
                } else {
                    code
                }
            }
            code => code,
        };
        if ctx.rank == 0 {
            for _ in 0..if rest > 0 { 3 } else { 3000 } {
                let code = once();
                ensure_eq!(code, NOT_FOUND, "command {victim} to the living");
                pause(rest);
            }
        }
        ctx.sync();
        if ctx.rank == victim {
            ctx.dies();
        }
        if ctx.rank != 0 {
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
                "command {victim} to a process that was killed has succeeded {count} times"
            );
            pause(rest);
        };
        ensure_eq!(code, PEER, "command {victim} to a process that was killed");
    }
    ctx.sync();
    queue.deregister(stadd)?;
    queue.free()
}
