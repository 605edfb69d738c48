//! §5.5: a program that repeats an operation on a dead process, without a wait, gets an error.
//!
//! Each operation has its own victim. Rank 0 repeats the operation on one victim after the other. The law counts operations; the clock
//! only ends a run without an error.

use std::time::Instant;

use super::kit::*;

laws! {
    posts_end: "failure.repeated.posts", "§5.5.1, §8.2", 9,
        [gaspi_write, gaspi_write_notify, gaspi_notify, gaspi_read, gaspi_read_notify, gaspi_write_list, gaspi_write_list_notify,
         gaspi_read_list, gaspi_state_vec_get] + needs_kill,
        "writes, reads and notifications that are repeated on a killed process end with an error, whether or not a wait comes between them";
    atomics_end: "failure.repeated.atomics", "§5.5.1, §10.2", 3,
        [gaspi_atomic_fetch_add, gaspi_atomic_compare_swap, gaspi_state_vec_get] + needs_kill,
        "atomics that are repeated on a killed process end with an error, though nothing is ever waited for";
    slow_ones_end: "failure.repeated.slowly", "§5.5.1, §8.2, §10.2", 6,
        [gaspi_atomic_fetch_add, gaspi_write, gaspi_notify, gaspi_read, gaspi_connect, gaspi_state_vec_get] + needs_kill,
        "so do operations with 20 ms between two of them: within 10 s that is five hundred";
    posted with_segment(64): "failure.posted", "§8.2.1, §8.5.3", 3, [gaspi_write, gaspi_wait, gaspi_queue_purge, gaspi_state_vec_get] + needs_kill,
        "requests to a process that is known to be dead are posted, and the wait for them fails; a purged queue goes on";
    alternately with_segment(64): "failure.repeated.alternately", "§5.5.1, §10.2", 5, [gaspi_atomic_fetch_add, gaspi_state_vec_get] + needs_kill,
        "a process with operations to many peers in turn gets the failure of the killed one, for each choice of it";
}

const QUEUE: u8 = 1;
/// Seconds. An operation that still succeeds after this time never fails.
const FOREVER: u64 = crate::stall::LONG.as_secs();
/// Limit on operations that succeed after the death, with a pause after each: 10 s in total.
const FEW: u64 = 500;
/// Milliseconds.
const PAUSE: u64 = 20;

/// An operation on a rank. Its segment 0 has 64 bytes.
type Operation = fn(u16) -> i32;

/// Two parts of 8 bytes.
fn list() -> post::Parts {
    post::Parts::new(0, 0, &[8, 16].map(|at| (at, at, 8)))
}

fn posts() -> [Operation; 8] {
    [
        |to| c!(gaspi_write(0, 0, to, 0, 8, 8, QUEUE, BLOCK)),
        |to| c!(gaspi_write_notify(0, 0, to, 0, 8, 8, 1, 1, QUEUE, BLOCK)),
        |to| c!(gaspi_notify(0, to, 1, 1, QUEUE, BLOCK)),
        |to| c!(gaspi_read(0, 0, to, 0, 8, 8, QUEUE, BLOCK)),
        |to| c!(gaspi_read_notify(0, 0, to, 0, 8, 8, 1, QUEUE, BLOCK)),
        |to| list().write(to).code(QUEUE, BLOCK),
        |to| list().write_notify(to, 0, 1, 1).code(QUEUE, BLOCK),
        |to| list().read(to).code(QUEUE, BLOCK),
    ]
}

fn fetch_add(to: u16) -> i32 {
    let mut before = 0;
    c!(gaspi_atomic_fetch_add(0, 0, to, 1, &mut before, BLOCK))
}

fn compare_swap(to: u16) -> i32 {
    let mut old = 0;
    c!(gaspi_atomic_compare_swap(0, 0, to, 1, 2, &mut old, BLOCK))
}

/// Calls the operation. If the queue is full, waits for the queue.
fn once(operation: Operation, to: u16) -> i32 {
    match operation(to) {
        QUEUE_FULL => c!(gaspi_wait(QUEUE, BLOCK)),
        code => code,
    }
}

/// Fails unless exactly this victim and the earlier ones are corrupt.
fn is_known(ctx: &Ctx, victim: u32) -> Verdict {
    let corrupt = |rank| (1..=victim).contains(&rank).into();
    let expected: Vec<i32> = (0..ctx.size).map(corrupt).collect();
    equal!(states(ctx)?, expected, "the state vector")
}

/// Rank 0 repeats the operations on one victim after the other, with a pause of `rest` milliseconds after each.
fn repeated(ctx: &Ctx, operations: &[Operation], rest: u64) -> Verdict {
    segment(0, 64)?;
    barrier()?;
    for (operation, victim) in operations.iter().zip(1u32..) {
        let to = victim as u16;
        if ctx.rank == 0 {
            for _ in 0..if rest > 0 { 3 } else { 3000 } {
                let code = once(*operation, to);
                one_of(code, &[SUCCESS], format_args!("operation {victim}, alive,"))?;
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
        // With a pause, rank 0 also waits for the queue after each post.
        let fails = || match once(*operation, to) {
            SUCCESS if rest > 0 => is_error(c!(gaspi_wait(QUEUE, BLOCK))),
            code => is_error(code),
        };
        while !fails() {
            count += 1;
            let soon = (rest == 0 || count < FEW) && start.elapsed().as_secs() < FOREVER;
            ensure!(
                soon,
                "operation {victim} on the dead has succeeded {count} times"
            );
            pause(rest);
        }
        is_known(ctx, victim)?;
        repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(QUEUE, LONG)))?;
    }
    Ok(())
}

fn posts_end(ctx: &Ctx) -> Verdict {
    repeated(ctx, &posts(), 0)
}

fn atomics_end(ctx: &Ctx) -> Verdict {
    repeated(ctx, &[fetch_add, compare_swap], 0)
}

fn slow_ones_end(ctx: &Ctx) -> Verdict {
    let [write, _, notify, read, ..] = posts();
    let connect: Operation = |to| c!(gaspi_connect(to, BLOCK));
    repeated(ctx, &[fetch_add, write, notify, read, connect], PAUSE)
}

fn posted(ctx: &Ctx, memory: Memory) -> Verdict {
    ctx.sync();
    if ctx.rank == 1 {
        ctx.dies();
    }
    until_corrupt(ctx, 1)?;
    if ctx.rank == 2 {
        ensure_eq!(notified(0, 5)?, 8, "an operation after the failure");
        return Ok(());
    }
    for (nth, operation) in posts().into_iter().enumerate() {
        ok!(gaspi_write(0, 0, 2, 0, 8, 8, QUEUE, LONG));
        ensure_eq!(operation(1), SUCCESS, "a request to the dead process");
        must_fail(c!(gaspi_wait(QUEUE, LONG)), "the wait")?;
        // Without a purge, at most one more wait reports the failure.
        if nth == 0 {
            let mut waits = 0;
            while is_error(c!(gaspi_wait(QUEUE, LONG))) {
                waits += 1;
                ensure!(waits < 2, "one request has failed {waits} times");
            }
        }
        ok!(gaspi_queue_purge(QUEUE, LONG));
    }
    memory.set(0, 7);
    ok!(gaspi_write_notify(0, 0, 2, 0, 16, 8, 5, 8, QUEUE, LONG));
    flush(QUEUE)
}

fn alternately(ctx: &Ctx, _: Memory) -> Verdict {
    let victim = 1 + ctx.random(7).below(u64::from(ctx.size) - 1) as u32;
    ctx.sync();
    if ctx.rank == victim {
        ctx.dies();
    }
    if ctx.rank == 0 {
        let (start, mut count) = (Instant::now(), 0u64);
        'living: loop {
            for rank in 1..ctx.size {
                let code = fetch_add(rank as u16);
                if is_error(code) {
                    ensure_eq!(rank, victim, "the rank that atomics fail on");
                    break 'living;
                }
                count += 1;
            }
            let soon = start.elapsed().as_secs() < FOREVER;
            ensure!(soon, "{count} atomics, some on a dead rank, have succeeded");
        }
    }
    ctx.sync();
    Ok(())
}
