//! §8.2: queues that are full on all sides at once, towards a process that does nothing, and towards a process that dies.

use super::kit::*;
use crate::kit::{last_stops_for_a_while, stop_until_killed};

laws! {
    flood given(false): "full-queue.both-sides", "§8.2.1, §8.2.3, §10.2", 3,
        [gaspi_write_notify, gaspi_atomic_fetch_add, gaspi_wait] + bare + ordering,
        "processes that flood each other through short queues, with GASPI_TEST, get everything once";
    flood given(true): "full-queue.stopped", "§8.2.1, §8.2.3", 3, [gaspi_write_notify, gaspi_wait] + bare,
        "so do ranks that flood a stopped process: a full queue or a timeout, never an error";
    death: "full-queue.death", "§8.2.3, §8.5.4, §5.5", 3,
        [gaspi_write, gaspi_wait, gaspi_queue_purge, gaspi_state_vec_get] + needs_kill,
        "a process dies to which a queue is full: the wait for it ends, other queues are whole, and the purged one is usable";
}

/// Writes from each process to each other one.
const MANY: u32 = 150;
const QUEUE: u8 = 0;

fn text(from: u16, nth: u32) -> u64 {
    u64::from(from) << 32 | u64::from(nth) << 1 | 1
}

/// The index of the place of write `nth` from `from`, and the id of its notification.
fn slot(from: u16, nth: u32) -> u32 {
    u32::from(from) * MANY + nth
}

/// Repeats a post with GASPI_TEST until it succeeds. Gives the number of times that the queue was full.
fn post(what: &str, mut call: impl FnMut() -> i32) -> Result<u32, String> {
    let mut looks = Looks::for_the(what);
    let mut full = 0;
    loop {
        match call() {
            SUCCESS => return Ok(full),
            TIMEOUT => {}
            QUEUE_FULL => {
                full += 1;
                let code = c!(gaspi_wait(QUEUE, TEST));
                one_of(code, &[SUCCESS, TIMEOUT], "gaspi_wait")?;
            }
            code => return Err(format!("{what} gave {}", code_name(code))),
        }
        looks.again();
    }
}

fn flood(ctx: &Ctx, stops: bool) -> Verdict {
    with_config(
        |config| config.queue_size_max = 6,
        || {
            let me = ctx.rank as u16;
            let source = segment(0, 8 * MANY as usize)?;
            let target = segment(1, 8 * (MANY * ctx.size + 1) as usize)?;
            let sum = 8 * u64::from(MANY * ctx.size);
            for nth in 0..MANY {
                source.set(8 * nth as usize, text(me, nth));
            }
            barrier()?;
            if stops {
                last_stops_for_a_while(ctx)?;
            }
            let mut full = 0;
            for nth in 0..MANY {
                for to in others(ctx) {
                    let (from, at) = (8 * u64::from(nth), slot(me, nth));
                    full += post("gaspi_write_notify", || {
                        let into = 8 * u64::from(at);
                        post::write_notify(0, from, to, 1, into, 8, at, 1 + nth).code(QUEUE, TEST)
                    })?;
                    if !stops {
                        add(1, sum, to, 1)?;
                    }
                }
            }
            ensure!(full > 0, "the queue has never been full");
            repeat("gaspi_wait", || c!(gaspi_wait(QUEUE, TEST)))?;
            for from in others(ctx) {
                for nth in 0..MANY {
                    let at = slot(from, nth);
                    ensure_eq!(notified(1, at)?, 1 + nth, "the value of a notification");
                    let seen = target.get(8 * at as usize);
                    ensure_eq!(seen, text(from, nth), "write {nth} of {from}");
                }
            }
            barrier()?;
            if !stops {
                let expected = u64::from(MANY * (ctx.size - 1));
                ensure_eq!(target.get(sum as usize), expected, "additions");
            }
            barrier()
        },
    )
}

fn death(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.set(8 * ctx.rank as usize, text(ctx.rank as u16, 1));
    let depth = got!(gaspi_queue_size_max());
    barrier()?;
    // No rank needs the victim any more.
    ctx.sync();
    let (victim, other) = (ctx.size - 1, 1 - ctx.rank.min(1) as u16);
    if ctx.rank == victim {
        return stop_until_killed(ctx);
    }
    let mine = 8 * u64::from(ctx.rank);
    let write = |to: u16, queue: u8| c!(gaspi_write(0, mine, to, 0, mine, 8, queue, BLOCK));
    let mut posted = 0;
    let full = loop {
        match write(victim as u16, QUEUE) {
            SUCCESS => posted += 1,
            code => break code,
        }
    };
    let right = is_error(full) || full == QUEUE_FULL && posted == depth;
    let what = code_name(full);
    ensure!(
        posted <= depth && right,
        "write {posted} of {depth} gave {what}"
    );
    for _ in 0..depth {
        let code = write(other, QUEUE + 1);
        ensure_eq!(code, SUCCESS, "a write to the living");
    }
    let code = c!(gaspi_wait(QUEUE, BLOCK));
    // Over shared memory the writes may complete at once.
    let ended = code == SUCCESS || is_error(code);
    ensure!(ended, "the wait gave {}", code_name(code));
    until_corrupt(ctx, victim)?;
    repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(QUEUE, LONG)))?;
    ensure_eq!(queue_size(QUEUE)?, 0, "size of the purged queue");
    let wait = || c!(gaspi_wait(QUEUE + 1, LONG));
    repeat("gaspi_wait for the living", wait)?;
    for _ in 1..depth {
        ensure_eq!(write(other, QUEUE), SUCCESS, "a write by the purged queue");
    }
    ok!(gaspi_notify(0, other, 1, 1, QUEUE, LONG));
    ok!(gaspi_wait(QUEUE, LONG));
    notified(0, 1)?;
    let theirs = memory.get(8 * usize::from(other));
    ensure_eq!(theirs, text(other, 1), "the writes of the living");
    ctx.sync();
    Ok(())
}
