//! Copies between mappings.

use crate::case::Case;
use crate::ctx::Ctx;

/// Operations in a batch, so that a batch moves about 4 MiB: short, since a process may lose its core meanwhile.
pub fn each(bytes: u64) -> usize {
    ((4 << 20) / bytes).clamp(1, 4096) as usize
}

fn between(
    ctx: &Ctx,
    case: &Case,
    copy: impl Fn(*const u8, *mut u8, usize),
) -> Result<f64, String> {
    let len = case.bytes as usize;
    let mut value = 0.0;
    if ctx.rank == 0 {
        let from = ctx.arena.area(0, 0, len);
        let to = ctx.arena.area(1, 0, len);
        // SAFETY:
        // - `from` has `len` bytes, which nobody else uses during this measurement
        unsafe { from.write_bytes(0x5a, len) };
        let ns = ctx.per_op(each(case.bytes), |n| {
            for _ in 0..n {
                copy(std::hint::black_box(from), std::hint::black_box(to), len);
            }
        });
        value = len as f64 / ns;
    }
    ctx.sync();
    Ok(value)
}

/// memcpy from this process's shared mapping to that of the other. Returns GB/s.
pub fn plain(ctx: &Ctx, case: &Case) -> Result<f64, String> {
    between(ctx, case, |from, to, len| {
        // SAFETY:
        // - `between` hands over two disjoint areas of `len` bytes
        unsafe { to.copy_from_nonoverlapping(from, len) }
    })
}

/// The same with stores that bypass the cache. Returns GB/s.
#[cfg(target_arch = "x86_64")]
pub fn non_temporal(ctx: &Ctx, case: &Case) -> Result<f64, String> {
    use core::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128,
    };
    between(ctx, case, |from, to, len| {
        const AHEAD: usize = 4096;
        // SAFETY:
        // - `between` hands over two disjoint areas of `len` bytes, aligned to pages; `len` is a multiple of 64
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

/// memcpy of as much memory as a registration covers, between touched private buffers. Returns us.
pub fn private(ctx: &Ctx, case: &Case) -> Result<f64, String> {
    let len = case.bytes as usize;
    let mut value = 0.0;
    if ctx.rank == 0 {
        let (from, mut to) = (vec![0x5au8; len], vec![1u8; len]);
        let start = std::time::Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        value = start.elapsed().as_nanos() as f64 / 1e3;
        std::hint::black_box(&to);
    }
    ctx.sync();
    Ok(value)
}
