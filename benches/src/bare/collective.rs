//! Hand-written barriers and sums. They spin if each process has a core, and yield otherwise.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::arena::LINE;
use crate::case::Case;
use crate::ctx::BenchContext;

const BASE: usize = 8 << 20;

/// Clears this rank's words, then measures `one` in us. `one` gets the round number, from 1.
fn rounds(ctx: &BenchContext, one: impl FnMut(u64) -> Result<(), String>) -> Result<f64, String> {
    for at in (0..64).flat_map(|line| [line * LINE, line * LINE + 8]) {
        ctx.arena().word(ctx.rank, BASE + at).store(0, Relaxed);
    }
    ctx.collective(one)
}

fn until(ctx: &BenchContext, word: &AtomicU64, round: u64) {
    while word.load(Acquire) < round {
        ctx.relax();
    }
}

/// One counter, and one word with the number of the last finished round.
pub fn central(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let (counter, over) = (ctx.arena().word(0, BASE), ctx.arena().word(0, BASE + LINE));
    let size = ctx.size as u64;
    rounds(ctx, |round| {
        if counter.fetch_add(1, AcqRel) + 1 == round * size {
            over.store(round, Release);
        } else {
            until(ctx, over, round);
        }
        Ok(())
    })
}

/// Each process raises its own flag and reads the flags of all others.
pub fn flags(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let all: Vec<&AtomicU64> = (0..ctx.size)
        .map(|rank| ctx.arena().word(rank, BASE))
        .collect();
    rounds(ctx, |round| {
        all[ctx.rank].store(round, Release);
        for flag in &all {
            until(ctx, flag, round);
        }
        Ok(())
    })
}

/// In step k, each process signals the process at distance 2^k.
pub fn dissemination(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let steps: Vec<(&AtomicU64, &AtomicU64)> = (0..)
        .take_while(|k| 1 << k < ctx.size)
        .map(|k| {
            let to = (ctx.rank + (1 << k)) % ctx.size;
            (
                ctx.arena().word(to, BASE + k * LINE),
                ctx.arena().word(ctx.rank, BASE + k * LINE),
            )
        })
        .collect();
    rounds(ctx, |round| {
        for (theirs, mine) in &steps {
            theirs.store(round, Release);
            until(ctx, mine, round);
        }
        Ok(())
    })
}

/// Each process writes its value and a flag into its own line, and reads the lines of all. Rounds alternate between two sets of lines.
pub fn sum_flags(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let all: Vec<[(&AtomicU64, &AtomicU64); 2]> = (0..ctx.size)
        .map(|rank| {
            [0, LINE].map(|at| {
                (
                    ctx.arena().word(rank, BASE + at),
                    ctx.arena().word(rank, BASE + at + 8),
                )
            })
        })
        .collect();
    rounds(ctx, |round| {
        let set = round as usize % 2;
        let (value, flag) = all[ctx.rank][set];
        value.store(((ctx.rank as u64 + round) as f64).to_bits(), Relaxed);
        flag.store(round, Release);
        let mut sum = 0.0;
        for peer in &all {
            let (value, flag) = peer[set];
            until(ctx, flag, round);
            sum += f64::from_bits(value.load(Relaxed));
        }
        ctx.check_sum(round, sum)
    })
}

/// Each process writes its value. The last process adds the values and publishes the sum.
pub fn sum_central(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let values: Vec<&AtomicU64> = (0..ctx.size)
        .map(|rank| ctx.arena().word(rank, BASE + 2 * LINE))
        .collect();
    let (counter, over) = (ctx.arena().word(0, BASE), ctx.arena().word(0, BASE + LINE));
    let result = ctx.arena().word(0, BASE + LINE + 8);
    let size = ctx.size as u64;
    rounds(ctx, |round| {
        values[ctx.rank].store(((ctx.rank as u64 + round) as f64).to_bits(), Relaxed);
        if counter.fetch_add(1, AcqRel) + 1 == round * size {
            let sum: f64 = values.iter().map(|v| f64::from_bits(v.load(Relaxed))).sum();
            result.store(sum.to_bits(), Relaxed);
            over.store(round, Release);
        } else {
            until(ctx, over, round);
        }
        // No process publishes the next sum before this process arrives again.
        ctx.check_sum(round, f64::from_bits(result.load(Relaxed)))
    })
}
