//! §3.9: timeouts towards a live process that does not answer: it is stopped, and no rank has posted a request to it before.

use std::sync::atomic::{AtomicBool, Ordering};

use super::kit::*;
use crate::kit::{Stopped, until};

laws! {
    time_outs: "stopped.time-outs", "§3.9, §8.2, §8.3.2, §10.2", 3,
        [gaspi_write, gaspi_read, gaspi_notify, gaspi_atomic_fetch_add, gaspi_atomic_compare_swap, gaspi_wait] + bare + one_host,
        "calls with a time-out return while their target is stopped; called again when it goes on, each is done once";
    others: "stopped.others", "§3.9, §8.2, §10.2", 3, [gaspi_write, gaspi_atomic_fetch_add, gaspi_wait] + bare + one_host,
        "while a thread waits without a time-out for a process that is stopped, another thread works on a third one";
    dead: "stopped.dead", "§10.2, §5.5", 3, [gaspi_atomic_fetch_add] + needs_kill,
        "while a thread's additions to a dying process fail, another thread's additions to a third process are each done once";
}

const PID: usize = 64;
const WORD: usize = 8;
const SHORT: u64 = 20;

/// Runs `work` on rank 0 while rank 2 is stopped, until `work` wakes it. No rank has posted a request to rank 2 before.
fn beside_one_that_is_stopped(
    ctx: &Ctx,
    work: impl FnOnce(&Stopped, &Memory) -> Verdict,
) -> Verdict {
    // Initialised here, so that rank 2 has only had the necessary contacts.
    ok!(gaspi_proc_init(LONG));
    let memory = segment(0, 128)?;
    barrier()?;
    if ctx.rank == 2 {
        memory.set(PID, std::process::id().into());
        let at = PID as u64;
        ok!(gaspi_write_notify(0, at, 0, 0, at, 8, 0, 1, 0, LONG));
        ok!(gaspi_wait(0, LONG));
    }
    // A stopped process may hold back its requests: rank 0 waits for their arrival.
    if ctx.rank == 0 {
        notified(0, 0)?;
    }
    ctx.sync();
    match ctx.rank {
        0 => {
            let last = Stopped::of(memory.get(PID))?;
            let worked = work(&last, &memory);
            last.wake()?;
            worked?;
        }
        2 => Stopped::stop()?,
        _ => {}
    }
    barrier()?;
    if ctx.rank == 2 {
        ensure_eq!(memory.get(0), 5, "the sum");
    }
    done!(gaspi_proc_term(LONG))
}

fn time_outs(ctx: &Ctx) -> Verdict {
    beside_one_that_is_stopped(ctx, |last, memory| {
        memory.set(WORD, 77);
        let (mut before, mut swapped) = (9u64, 9u64);
        let word = WORD as u64;
        let mut calls = calls! {
            gaspi_atomic_fetch_add(0, 0, 2, 5, &mut before, SHORT);
            gaspi_atomic_compare_swap(0, 24, 2, 0, 3, &mut swapped, TEST);
            gaspi_write(0, word, 2, 0, word, 8, 1, TEST);
            gaspi_notify(0, 2, 7, 1, 1, SHORT);
            gaspi_wait(1, SHORT);
            gaspi_read(0, 32, 2, 0, 24, 8, 2, SHORT);
        };
        // Over a network the calls may time out. Mapped memory needs no peer.
        let mut again = Vec::new();
        for (nth, (what, call)) in calls.iter_mut().enumerate() {
            match call() {
                SUCCESS => {}
                TIMEOUT => again.push(nth),
                code => return Err(format!("{what} gave {}", code_name(code))),
            }
        }
        last.wake()?;
        for nth in again {
            let (what, call) = &mut calls[nth];
            repeat(what, call)?;
        }
        drop(calls);
        repeat("gaspi_wait", || c!(gaspi_wait(1, LONG)))?;
        repeat("gaspi_wait", || c!(gaspi_wait(2, LONG)))?;
        ensure_eq!((before, swapped), (0, 0), "the old values");
        let mut now = 0;
        ok!(gaspi_atomic_fetch_add(0, 24, 2, 0, &mut now, LONG));
        ensure_eq!(now, 3, "what was swapped in");
        ok!(gaspi_atomic_fetch_add(0, word, 2, 0, &mut now, LONG));
        ensure_eq!(now, 77, "what was written");
        // The read may come before or after the swap.
        ensure!([0, 3].contains(&memory.get(32)), "read {}", memory.get(32));
        Ok(())
    })
}

fn others(ctx: &Ctx) -> Verdict {
    beside_one_that_is_stopped(ctx, |last, memory| {
        let begun = AtomicBool::new(false);
        threads(2, |thread| {
            let mut before = 9;
            if thread == 0 {
                begun.store(true, Ordering::Release);
                ok!(gaspi_atomic_fetch_add(0, 0, 2, 5, &mut before, BLOCK));
                ensure_eq!(before, 0, "the old value");
                return Ok(());
            }
            until("the other thread", || begun.load(Ordering::Acquire))?;
            pause(20);
            for round in 0..10 {
                ok!(gaspi_atomic_fetch_add(0, 0, 1, 1, &mut before, BLOCK));
                ensure_eq!(before, round, "the old value");
                ok!(gaspi_write(0, WORD as u64, 1, 0, WORD as u64, 8, 1, BLOCK));
                ok!(gaspi_read(0, 32, 1, 0, 0, 8, 1, BLOCK));
                ok!(gaspi_wait(1, BLOCK));
                ensure_eq!(memory.get(32), round + 1, "what was read");
            }
            last.wake()
        })
    })
}

fn dead(ctx: &Ctx) -> Verdict {
    const MANY: u64 = 400;
    let memory = segment(0, 8)?;
    barrier()?;
    // A rank that is still in the barrier at a death gets the error there.
    ctx.sync();
    match ctx.rank {
        0 => threads(2, |thread| {
            let mut before = 9;
            if thread == 0 {
                let mut looks = Looks::for_the("the death");
                while c!(gaspi_atomic_fetch_add(0, 0, 2, 1, &mut before, LONG)) == SUCCESS {
                    if before == 50 {
                        // Rank 2 dies on this notification.
                        ok!(gaspi_notify(0, 2, 0, 1, 0, LONG));
                    }
                    looks.again();
                }
                return Ok(());
            }
            for sum in 0..MANY {
                repeat("gaspi_atomic_fetch_add to the living", || {
                    c!(gaspi_atomic_fetch_add(0, 0, 1, 1, &mut before, LONG))
                })?;
                ensure_eq!(before, sum, "the old value");
            }
            Ok(())
        })?,
        2 => {
            notified(0, 0)?;
            ctx.dies();
        }
        _ => {}
    }
    ctx.sync();
    if ctx.rank == 1 {
        ensure_eq!(memory.get(0), MANY, "the sum");
    }
    Ok(())
}
