//! Exchanges of a few bytes between two processes.

use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::case::Case;
use crate::ctx::{BATCH_OF_PAIRS, BenchContext, arrived, exchanges};

const FLAGS: usize = 8 << 20;
const EACH: usize = 500;

/// Ping-pong of a payload and of a flag in another line, stored with release. The receiver reads the last word of the payload. Returns ns one way.
pub fn two_lines(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    two_lines_with(ctx, case, || ctx.relax())
}

/// The same with a little work between two polls of the flag. A core that polls less often takes the line from the writer less often.
pub fn two_lines_paced(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let mut turn = 0u64;
    two_lines_with(ctx, case, move || {
        for _ in 0..4 {
            turn = std::hint::black_box(turn + 1);
        }
        ctx.relax();
    })
}

/// [`two_lines`] rounded up to whole words: the lower bound for a message of that size.
pub fn short_message(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    two_lines(ctx, &in_words(case))
}

/// The same, [paced](two_lines_paced).
pub fn short_message_paced(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    two_lines_paced(ctx, &in_words(case))
}

fn in_words(case: &Case) -> Case {
    Case {
        bytes: case.bytes.next_multiple_of(8),
        ..*case
    }
}

fn two_lines_with(ctx: &BenchContext, case: &Case, mut relax: impl FnMut()) -> Result<f64, String> {
    let len = case.bytes as usize;
    let place = ctx.place();
    let (data, flag) = (place * (512 << 10), FLAGS + place * 4096 + 5 * 64);
    let to = ctx.arena().area(ctx.other(), data, len);
    let last = ctx.arena().word(ctx.rank, data + len - 8);
    let [mine, theirs] = [ctx.rank, ctx.other()].map(|rank| ctx.arena().word(rank, flag));
    let mut source = vec![0u64; len / 8];
    let words = source.len();
    mine.store(0, Relaxed);
    ctx.sync();
    let send = |round: u64| {
        source[words - 1] = round;
        // SAFETY:
        // - `to` has room for `len` bytes; `source` holds as many
        // - the receiver reads them only after the flag, and replies before the next store here
        unsafe {
            if words == 1 {
                to.cast::<u64>().write_volatile(round);
            } else {
                to.copy_from_nonoverlapping(source.as_ptr().cast(), len);
            }
        }
        theirs.store(round, Release);
        Ok(())
    };
    let receive = |round| {
        while mine.load(Acquire) != round {
            relax();
        }
        arrived(last.load(Relaxed), round)
    };
    let ns = ctx.both_ways(exchanges(case.bytes), &Cell::new(0), send, receive);
    ns.map(|ns| ns / 2.0)
}

/// Ping-pong of one 8-byte word that is its own flag. Returns ns one way.
pub fn one_line(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let at = FLAGS + ctx.place() * 4096 + 9 * 64;
    let [mine, theirs] = [ctx.rank, ctx.other()].map(|rank| ctx.arena().word(rank, at));
    mine.store(0, Relaxed);
    ctx.sync();
    let send = |round| {
        theirs.store(round, Release);
        Ok(())
    };
    let receive = |round| {
        while mine.load(Acquire) != round {
            ctx.relax();
        }
        Ok(())
    };
    let ns = ctx.both_ways(EACH, &Cell::new(0), send, receive);
    ns.map(|ns| ns / 2.0)
}

/// Locked add on a word that its owner does not access. Returns ns.
pub fn fetch_add(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let word = ctx.arena().word(1, FLAGS + ctx.place() * 4096);
    word.store(0, Relaxed);
    ctx.sync();
    ctx.by_first(|| {
        let mut sum = 0u64;
        let ns = ctx.per_op(10 * EACH, |n| {
            for _ in 0..n {
                sum = sum.wrapping_add(word.fetch_add(1, AcqRel));
            }
        });
        std::hint::black_box(sum);
        match word.load(Relaxed) == ((ctx.batches() + 1) * 10 * EACH) as u64 {
            true => Ok(ns),
            false => Err("additions were lost".into()),
        }
    })
}

/// 8-byte stores that walk through a window of 4 KiB. Returns millions per second.
pub fn rate(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    ctx.by_first(|| {
        let mut store = stores(ctx, 1);
        let ns = ctx.per_batch(64 * 512, &mut store)?;
        Ok(1e3 / ns)
    })
}

/// The same for all pairs at once.
pub fn pair_rate(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    ctx.rate_of_pairs(BATCH_OF_PAIRS, stores(ctx, ctx.other()))
}

/// Stores into the window of a rank.
fn stores(ctx: &BenchContext, rank: usize) -> impl FnMut(usize) -> Result<(), String> {
    let window = ctx.arena().area(rank, ctx.place() * 4096, 4096);
    let window = window.cast::<u64>();
    move |n| {
        for i in 0..n {
            // SAFETY:
            // - the window has 512 words; no other process uses them during the measurement
            unsafe { window.add(i % 512).write_volatile(i as u64) };
        }
        Ok(())
    }
}
