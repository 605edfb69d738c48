//! Each rank has a queue of tasks. An idle rank takes the next number by an atomic addition, first from its queue and then from others.
//! Each task has a fixed rank for its result, independent of the worker. Every rank overdraws every queue once.
//! A number taken twice or lost shows in the counters, in a result, or as an endless wait.

use super::{Left, bytes_of, scenario};
use crate::law::{Ctx, Verdict};

scenario! {
    "stealing", "tasks that are taken by fetch-and-add from all ranks' queues are each done once, and their results are where they belong";
    Core by core: "unipgas core: Endpoint::fetch_add", [];
    Gaspi by gaspi: "GASPI 17.1 §10.2.1", ["gaspi_atomic_fetch_add", "gaspi_write_notify", "gaspi_notify_waitsome"];
    Utofu by utofu: "uTofu §2.2.10", ["utofu_armw8", "utofu_put", "utofu_poll_mrq"];
    Rcce by rcce: "iRCCE 2.0 §9.10", ["iRCCE_atomic_inc", "RCCE_acquire_lock", "RCCE_release_lock", "RCCE_put", "RCCE_get"];
    Libfabric by libfabric: "fi_atomic(3)", ["fi_fetch_atomic", "fi_atomic", "fi_writedata"];
}

/// Bytes of a result.
const RESULT: usize = 32;
/// Offset of the next number in this rank's queue.
const NEXT: usize = 0;
/// Offset of the number of completed tasks, at rank 0.
const DONE: usize = 8;
/// Offset of the results.
const RESULTS: usize = 64;

/// A task by its queue and its number there.
#[derive(Clone, Copy)]
struct Task {
    /// Index among all tasks.
    nth: usize,
    /// Rank that stores the result.
    home: u32,
}

fn tasks_of(rank: u32) -> u64 {
    2 + 5 * u64::from(rank % 3)
}

fn total(ctx: &Ctx) -> usize {
    (0..ctx.size).map(tasks_of).sum::<u64>() as usize
}

/// Bytes that each rank needs.
fn memory(ctx: &Ctx) -> usize {
    RESULTS + total(ctx) * RESULT
}

fn task(ctx: &Ctx, queue: u32, number: u64) -> Task {
    let before: u64 = (0..queue).map(tasks_of).sum();
    Task {
        nth: (before + number) as usize,
        home: (queue + 1 + number as u32) % ctx.size,
    }
}

/// Indices of all tasks with results at this rank.
fn results_here(ctx: &Ctx) -> Vec<usize> {
    (0..ctx.size)
        .flat_map(|queue| (0..tasks_of(queue)).map(move |number| task(ctx, queue, number)))
        .filter(|task| task.home == ctx.rank)
        .map(|task| task.nth)
        .collect()
}

impl Task {
    /// Offset of the result.
    fn at(self) -> usize {
        RESULTS + self.nth * RESULT
    }

    /// Computes the result.
    fn result(self, ctx: &Ctx) -> Vec<u8> {
        result(ctx, self.nth)
    }
}

fn result(ctx: &Ctx, nth: usize) -> Vec<u8> {
    crate::kit::bytes_of(ctx, 0x7461_736b + nth as u64, RESULT)
}

fn reference(ctx: &Ctx) -> Vec<u8> {
    let mut left = vec![0; memory(ctx)];
    let next = tasks_of(ctx.rank) + u64::from(ctx.size);
    let done = if ctx.rank == 0 { total(ctx) as u64 } else { 0 };
    left[..16].copy_from_slice(&bytes_of(&[next, done]));
    for nth in results_here(ctx) {
        let at = RESULTS + nth * RESULT;
        left[at..at + RESULT].copy_from_slice(&result(ctx, nth));
    }
    left
}

/// Operations of an interface in this scenario.
trait Pool {
    /// Adds to a word of a rank and returns its value before.
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String>;
    /// Sends the result of a task to its home rank.
    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict;
    /// Waits until all results for this rank have come, and the sent ones have left.
    fn finish(&mut self, here: &[usize]) -> Verdict;
}

/// Works until all queues are empty.
fn work(ctx: &Ctx, pool: &mut impl Pool) -> Verdict {
    let mut done = 0;
    for nth in 0..ctx.size {
        let queue = (ctx.rank + nth) % ctx.size;
        loop {
            let number = pool.add(queue, NEXT, 1)?;
            if number >= tasks_of(queue) {
                break;
            }
            let task = task(ctx, queue, number);
            pool.deliver(task, &task.result(ctx))?;
            done += 1;
        }
    }
    pool.add(0, DONE, done)?;
    pool.finish(&results_here(ctx))
}
