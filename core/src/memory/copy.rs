//! Copies between memory that other processes may be using at the same time.

use crate::trace;

/// The widest register of every machine of this kind.
#[cfg(target_arch = "x86_64")]
type Piece = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Piece = u128;

/// The longest copy made in line. memmove is called indirectly: if that call is not predicted, it costs more than a whole
/// copy of this length; beyond, memmove's wider registers pay.
pub(crate) const SHORT: usize = 128;

// Elsewhere than on x86-64 the C library's memmove does all of it. On aarch64 that is one made for the processor (of the A64FX's, `DC ZVA` spares
// the reads of lines that are written whole), and stores around the cache (`STNP`) are a hint there, which need no fence of their own.

/// From this many bytes on `spread` is faster than memmove: the two ends no longer fit into the caches of a core.
const SPREAD: usize = 4 << 20;

/// Copies `len` bytes as memmove does; the ranges may overlap.
///
/// # Safety
/// `len` bytes are valid at both ends. Concurrent writers make the copied bytes an undefined mixture (as the interfaces say:
/// GASPI 17.1 §8.2.1), not more: the copy treats them as raw bytes.
#[inline]
pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - the caller's word; each branch tests the lengths which its callee wants.
    unsafe {
        if len.wrapping_sub(8) <= SHORT - 8 {
            copy_short(src, dst, len)
        } else if len < 8 {
            copy_bytes(src, dst, len)
        } else if len < trace::LARGE {
            std::ptr::copy(src, dst, len)
        } else {
            copy_large(src, dst, len)
        }
    }
}

/// As [`copy_short`] below.
///
/// # Safety
/// As for `copy`; `len` < 8.
#[inline]
unsafe fn copy_bytes(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - each branch has at least as many bytes as it reads and writes; accesses are unaligned.
    unsafe {
        if len >= 4 {
            let (src, dst, last) = (src.cast::<u32>(), dst.cast::<u32>(), len - 4);
            let (a, z) = (src.read_unaligned(), src.byte_add(last).read_unaligned());
            dst.write_unaligned(a);
            dst.byte_add(last).write_unaligned(z);
        } else if len > 0 {
            let (middle, last) = (len / 2, len - 1);
            let (a, m, z) = (src.read(), src.add(middle).read(), src.add(last).read());
            dst.write(a);
            dst.add(middle).write(m);
            dst.add(last).write(z);
        }
    }
}

/// Copies from both ends, by pieces which meet or overlap in the middle. All is loaded before anything is stored, so that
/// the ranges may overlap; named values stay in registers, an array would go through the stack.
///
/// # Safety
/// As for `copy`; 8 <= `len` <= `SHORT`.
#[inline]
unsafe fn copy_short(src: *const u8, dst: *mut u8, len: usize) {
    const PIECE: usize = size_of::<Piece>();
    // SAFETY:
    // - each branch has at least as many bytes as it reads and writes from one end; accesses are unaligned.
    unsafe {
        let get = |at: usize| src.add(at).cast::<Piece>().read_unaligned();
        let put = |at: usize, piece: Piece| dst.add(at).cast::<Piece>().write_unaligned(piece);
        let end = |pieces: usize| len - pieces * PIECE;
        if len <= PIECE {
            let (src, dst, last) = (src.cast::<u64>(), dst.cast::<u64>(), len - 8);
            let (a, z) = (src.read_unaligned(), src.byte_add(last).read_unaligned());
            dst.write_unaligned(a);
            dst.byte_add(last).write_unaligned(z);
        } else if len <= 2 * PIECE {
            let (a, z) = (get(0), get(end(1)));
            put(0, a);
            put(end(1), z);
        } else if len <= 4 * PIECE {
            let (a, b, y, z) = (get(0), get(PIECE), get(end(2)), get(end(1)));
            put(0, a);
            put(PIECE, b);
            put(end(2), y);
            put(end(1), z);
        } else {
            let (a, b, c, d) = (get(0), get(PIECE), get(2 * PIECE), get(3 * PIECE));
            let (w, x, y, z) = (get(end(4)), get(end(3)), get(end(2)), get(end(1)));
            put(0, a);
            put(PIECE, b);
            put(2 * PIECE, c);
            put(3 * PIECE, d);
            put(end(4), w);
            put(end(3), x);
            put(end(2), y);
            put(end(1), z);
        }
    }
}

/// # Safety
/// As for `copy`.
// As C's, which never unwinds: callers on fast paths need not be prepared for that.
#[cold]
#[inline(never)]
unsafe extern "C" fn copy_large(src: *const u8, dst: *mut u8, len: usize) {
    let span = trace::transfer(len);
    // SAFETY:
    // - the caller's word.
    unsafe { copy_untold(src, dst, len) };
    if let Some(span) = span {
        span.transferred(len);
    }
}

/// # Safety
/// As for `copy`.
unsafe fn copy_untold(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= SPREAD
        && (src as usize).abs_diff(dst as usize) >= len
        && is_x86_feature_detected!("avx")
    {
        // SAFETY:
        // - disjoint ranges of at least `SPREAD` bytes; AVX was detected.
        return unsafe { spread(src, dst, len) };
    }
    // SAFETY:
    // - the caller's word; memmove allows overlap.
    unsafe { std::ptr::copy(src, dst, len) }
}

/// Copies four pages side by side, three through the cache and one around it.
///
/// One core cannot keep the memory busy with either kind of store alone: those through the cache wait for reads of what
/// they overwrite, those around it for the few fill buffers. Together, each fills the gaps of the other.
///
/// # Safety
/// `len` bytes, at least a line, are valid at both ends and do not overlap.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn spread(src: *const u8, dst: *mut u8, len: usize) {
    use std::arch::x86_64::{
        __m256i, _MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_loadu_si256,
        _mm256_store_si256, _mm256_stream_si256,
    };
    const PAGE: usize = 4096;
    const LINE: usize = 64;
    const PAGES: usize = 4;
    const AHEAD: usize = 512;
    let head = dst.align_offset(LINE);
    // SAFETY:
    // - every access stays within `len` bytes of its range: the head is shorter than a line, and a block is copied only if
    //   all of it is left; stores go to aligned halves of lines; prefetches do not fault.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        let (mut from, mut to) = (src.add(head), dst.add(head));
        let mut left = len - head;
        while left >= PAGES * PAGE {
            for line in (0..PAGE).step_by(LINE) {
                // Past the end of its page a prefetch goes on in the same page of the next block.
                let ahead = (line + AHEAD) % PAGE + (line + AHEAD) / PAGE * (PAGES * PAGE);
                for page in 0..PAGES {
                    let at = ahead + page * PAGE;
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast());
                    if page != PAGES - 1 {
                        _mm_prefetch::<_MM_HINT_ET0>(to.wrapping_add(at).cast());
                    }
                }
                // Loads before stores: a load that follows a store to the same offset of another page waits for it.
                let lines: [[__m256i; 2]; PAGES] = std::array::from_fn(|page| {
                    let at: *const __m256i = from.add(line + page * PAGE).cast();
                    [_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))]
                });
                for (page, [low, high]) in lines.into_iter().enumerate() {
                    let at: *mut __m256i = to.add(line + page * PAGE).cast();
                    if page != PAGES - 1 {
                        _mm256_store_si256(at, low);
                        _mm256_store_si256(at.add(1), high);
                    } else {
                        _mm256_stream_si256(at, low);
                        _mm256_stream_si256(at.add(1), high);
                    }
                }
            }
            from = from.add(PAGES * PAGE);
            to = to.add(PAGES * PAGE);
            left -= PAGES * PAGE;
        }
        // Streamed stores are weakly ordered: whatever is stored next (a notice) must come after them.
        _mm_sfence();
        std::ptr::copy_nonoverlapping(from, to, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_copies_exactly() {
        let long = [4096, SPREAD - 1, SPREAD, SPREAD + 12_345];
        let lengths = (0..=SHORT + 2)
            .chain(long)
            .filter(|len| !cfg!(miri) || *len <= 4096);
        for len in lengths {
            for (from, to) in [(0, 0), (3, 0), (0, 7), (13, 61)] {
                let src: Vec<u8> = (0..len + from).map(|i| (i * 7 % 251) as u8).collect();
                let mut dst = vec![0xAA; len + to + 1];
                // SAFETY:
                // - both vectors hold `len` bytes past the offsets.
                unsafe { copy(src.as_ptr().add(from), dst.as_mut_ptr().add(to), len) };
                assert!(dst[to..to + len] == src[from..], "{len} {from} {to}");
                assert!(dst[..to].iter().all(|b| *b == 0xAA) && dst[len + to] == 0xAA);
            }
        }
    }

    #[test]
    fn overlapping_ranges_behave_as_memmove() {
        let long = if cfg!(miri) { 4096 } else { SPREAD };
        for len in (8..=SHORT).chain([long]) {
            for (from, to) in [(0, 5), (5, 0), (100, 0), (0, 100)] {
                let mut bytes: Vec<u8> = (0..len + 100).map(|i| (i % 253) as u8).collect();
                let mut expected = bytes.clone();
                expected.copy_within(from..from + len, to);
                let base = bytes.as_mut_ptr();
                // SAFETY:
                // - both ranges lie in the vector.
                unsafe { copy(base.add(from), base.add(to), len) };
                assert!(bytes == expected, "{len} {from} {to}");
            }
        }
    }
}
