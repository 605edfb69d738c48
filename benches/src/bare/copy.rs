//! Copies between mappings.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pwrite;

use crate::case::Case;
use crate::ctx::BenchContext;

/// Operations in a batch of about 4 MiB, 1 to 4,096. Batches are short, because a process may lose its core during one.
pub fn each(bytes: u64) -> usize {
    ((4 << 20) / bytes).clamp(1, 4096) as usize
}

fn between(
    ctx: &BenchContext,
    case: &Case,
    copy: impl Fn(*const u8, *mut u8, usize),
) -> Result<f64, String> {
    let len = case.bytes as usize;
    ctx.by_first(|| {
        let from = ctx.arena().area(0, 0, len);
        let to = ctx.arena().area(1, 0, len);
        // SAFETY:
        // - `from` has `len` bytes; no other process uses them during this measurement
        unsafe { from.write_bytes(0x5a, len) };
        let ns = ctx.per_op(each(case.bytes), |n| {
            for _ in 0..n {
                copy(std::hint::black_box(from), std::hint::black_box(to), len);
            }
        });
        Ok(len as f64 / ns)
    })
}

/// memcpy from this process's shared mapping to the other's. Returns GB/s.
pub fn plain(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    between(ctx, case, |from, to, len| {
        // SAFETY:
        // - `between` passes two disjoint areas of `len` bytes
        unsafe { to.copy_from_nonoverlapping(from, len) }
    })
}

/// The same copy with stores that bypass the cache. Returns GB/s.
#[cfg(target_arch = "x86_64")]
pub fn non_temporal(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    use core::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128,
    };
    between(ctx, case, |from, to, len| {
        const AHEAD: usize = 4096;
        // SAFETY:
        // - `between` passes two disjoint, page-aligned areas of `len` bytes; `len` is a multiple of 64
        // - prefetches do not fault
        // - SSE2 is part of x86-64
        unsafe {
            for at in (0..len).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at + AHEAD).cast());
                let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
                let (a, b) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
                let (c, d) = (_mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
                _mm_stream_si128(to, a);
                _mm_stream_si128(to.add(1), b);
                _mm_stream_si128(to.add(2), c);
                _mm_stream_si128(to.add(3), d);
            }
            _mm_sfence();
        }
    })
}

/// Writes as many bytes as a registration covers into a new memfd: the cost of the same data in shareable memory. Returns us.
pub fn new_memfd(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    ctx.by_first(|| {
        let failed = |e: rustix::io::Errno| format!("a new memfd: {e}");
        let from = vec![0x5au8; case.bytes as usize];
        let start = std::time::Instant::now();
        let fd = memfd_create("bare", MemfdFlags::CLOEXEC).map_err(failed)?;
        let mut at = 0;
        while at < from.len() {
            at += pwrite(&fd, &from[at..], at as u64).map_err(failed)?;
        }
        Ok(start.elapsed().as_nanos() as f64 / 1e3)
    })
}

/// Offset of the payloads of messages. The words that announce them are at `TURNS`.
const MESSAGES: usize = 80 << 20;
const TURNS: usize = 79 << 20;

/// A payload goes back and forth, copied once each way. The writer calls `copy` with `true`, the reader with `false`. `copy` gets this process's area
/// and the peer's. Returns GB/s.
fn to_and_fro(
    ctx: &BenchContext,
    case: &Case,
    copy: impl Fn(bool, *mut u8, *mut u8, usize),
) -> Result<f64, String> {
    let len = case.bytes as usize;
    let ranks = [ctx.rank, ctx.other()];
    let [mine, theirs] = ranks.map(|rank| ctx.arena().area(rank, MESSAGES, len));
    let [my_turn, their_turn] = ranks.map(|rank| ctx.arena().word(rank, TURNS));
    my_turn.store(0, Relaxed);
    // SAFETY:
    // - these are `len` bytes of this process's own area
    unsafe { mine.write_bytes(1, len) };
    ctx.sync();
    let send = |round| {
        copy(true, mine, theirs, len);
        their_turn.store(round, Release);
        Ok(())
    };
    let receive = |round| {
        while my_turn.load(Acquire) != round {
            ctx.relax();
        }
        copy(false, mine, theirs, len);
        Ok(())
    };
    let ns = ctx.both_ways(each(case.bytes).min(50), &Cell::new(0), send, receive);
    ctx.sync();
    ns.map(|ns| len as f64 / (ns / 2.0))
}

/// The sender copies the payload to the receiver.
pub fn pushed(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    to_and_fro(ctx, case, |writes, mine, theirs, len| {
        if writes {
            // SAFETY:
            // - both areas have `len` bytes; the peer accesses neither before its turn
            unsafe { theirs.copy_from_nonoverlapping(mine, len) };
        }
    })
}

/// The receiver copies the payload from the sender.
pub fn pulled(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    to_and_fro(ctx, case, |writes, mine, theirs, len| {
        if !writes {
            // SAFETY:
            // - both areas have `len` bytes; the peer writes neither before its turn
            unsafe { mine.copy_from_nonoverlapping(theirs, len) };
        }
    })
}
