//! Copies between memory that other processes may access at the same time.

#[cfg(target_arch = "x86_64")]
mod askew;
#[cfg(target_arch = "x86_64")]
mod large;

use crate::trace;

/// The widest register of all machines of this architecture.
#[cfg(target_arch = "x86_64")]
type Piece = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Piece = u128;

/// Longest inline copy, in bytes. The call of memmove is indirect: a misprediction costs more than a copy of this length.
/// Longer copies gain from memmove's wider registers.
pub const SHORT: usize = 128;

// Other architectures use the C library's memmove for all lengths. On aarch64 it is specific to the processor: on the A64FX, `DC ZVA`
// saves the reads of lines that are written whole. Non-temporal stores (`STNP`) are only a hint there and need no fence.

/// Least length for which `spread` may be faster than memmove: source and destination no longer fit into a core's caches.
#[cfg(any(test, target_arch = "x86_64"))]
const SPREAD: usize = 4 << 20;

/// Least length for a call of `copy_large`. Shorter copies use memmove, which beats `askew` at 2 KiB.
const CHOSEN: usize = match cfg!(target_arch = "x86_64") {
    true => 4096,
    false => trace::LARGE,
};

/// Copies `len` bytes as memmove does; the ranges may overlap.
///
/// # Safety
/// `len` bytes are valid at both ends. With concurrent writers the copied bytes are an undefined mixture (GASPI 17.1 §8.2.1),
/// but nothing else is undefined: the copy treats them as raw bytes.
#[inline]
pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - contract of this call; each branch tests the lengths that its callee needs.
    unsafe {
        if len.wrapping_sub(8) <= SHORT - 8 {
            copy_short(src, dst, len)
        } else if len < 8 {
            copy_bytes(src, dst, len)
        } else if len < CHOSEN {
            std::ptr::copy(src, dst, len)
        } else {
            copy_large(src, dst, len)
        }
    }
}

/// As [`copy_short`], for less than 8 bytes.
///
/// # Safety
/// As for `copy`; `len` < 8.
#[inline]
unsafe fn copy_bytes(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - no branch reads or writes more than `len` bytes; accesses are unaligned.
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

/// Copies from both ends, by pieces that meet or overlap in the middle. The ranges may overlap: all loads precede all
/// stores. Named values stay in registers; an array would go through the stack.
///
/// # Safety
/// As for `copy`; 8 <= `len` <= `SHORT`.
#[inline]
unsafe fn copy_short(src: *const u8, dst: *mut u8, len: usize) {
    const PIECE: usize = size_of::<Piece>();
    // SAFETY:
    // - no branch reads or writes more than `len` bytes from either end; accesses are unaligned.
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
// `extern "C"`: never unwinds, so callers on fast paths need no landing pads.
#[cold]
#[inline(never)]
unsafe extern "C" fn copy_large(src: *const u8, dst: *mut u8, len: usize) {
    let span = trace::transfer(len);
    // SAFETY:
    // - contract of this call.
    unsafe { copy_untold(src, dst, len) };
    if let Some(span) = span {
        span.transferred(len);
    }
}

/// # Safety
/// As for `copy`.
unsafe fn copy_untold(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if (src as usize).abs_diff(dst as usize) >= len && is_x86_feature_detected!("avx") {
        if len >= SPREAD {
            // SAFETY:
            // - disjoint ranges of at least `SPREAD` bytes; AVX was detected.
            return unsafe { large::copy(src, dst, len) };
        }
        if askew::is_better(src, dst) {
            // SAFETY:
            // - disjoint ranges of at least `CHOSEN` bytes, which is more than a line; AVX was detected.
            return unsafe { askew::copy(src, dst, len) };
        }
    }
    // SAFETY:
    // - contract of this call; memmove allows overlap.
    unsafe { std::ptr::copy(src, dst, len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::copies;

    #[test]
    fn every_length_and_alignment_copies_exactly() {
        let long = [
            CHOSEN - 1,
            CHOSEN,
            CHOSEN + 129,
            trace::LARGE,
            trace::LARGE + 127,
            SPREAD - 1,
            SPREAD,
            SPREAD + 12_345,
        ];
        let lengths = (0..=SHORT + 2)
            .chain(long)
            .filter(|len| !cfg!(miri) || *len <= 4096);
        copies::are_exact(copy, lengths);
    }

    #[test]
    fn overlapping_ranges_behave_as_memmove() {
        let long = if cfg!(miri) { 4096 } else { SPREAD };
        copies::may_overlap(copy, (8..=SHORT).chain([long]));
    }
}
