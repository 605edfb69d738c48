//! Copies between memory that other processes may be using at the same time.

/// From this many bytes on stores bypass the cache: the data would not fit beside what the cores work on, and reading
/// a line only to overwrite it costs a third of the bandwidth.
const STREAM_FROM: usize = 4 << 20;

/// Copies `len` bytes; the ranges may overlap only if `len` is below 4 MiB (then as memmove does).
///
/// # Safety
/// `len` bytes are valid at both ends. Concurrent writers make the copied bytes an undefined mixture (as the interfaces say:
/// GASPI 17.1 §8.2.1), not more: the copy treats them as raw bytes.
#[inline]
pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    if len >= STREAM_FROM {
        // SAFETY:
        // - the caller's word.
        unsafe { copy_large(src, dst, len) }
    } else {
        // SAFETY:
        // - the caller's word; memmove allows overlap.
        unsafe { std::ptr::copy(src, dst, len) }
    }
}

#[cold]
unsafe fn copy_large(src: *const u8, dst: *mut u8, len: usize) {
    let apart = (src as usize).abs_diff(dst as usize) >= len;
    #[cfg(target_arch = "x86_64")]
    if apart {
        // SAFETY:
        // - valid and disjoint ranges; SSE2 is part of x86-64.
        return unsafe { stream(src, dst, len) };
    }
    let _ = apart;
    // SAFETY:
    // - the caller's word; memmove allows overlap.
    unsafe { std::ptr::copy(src, dst, len) }
}

/// # Safety
/// `len` bytes are valid at both ends and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(src: *const u8, dst: *mut u8, len: usize) {
    use std::arch::x86_64::{
        __m128i, _MM_HINT_NTA, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128,
    };
    const PAGE: usize = 4096;
    const LINES: usize = PAGE / 64;
    let head = dst.align_offset(64);
    // SAFETY:
    // - every access below stays within `len` bytes of its range: the head is shorter than a line and `len` is megabytes; streams write
    //   aligned 16-byte pieces of whole lines; prefetches do not fault.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        let (mut from, mut to) = (src.add(head), dst.add(head));
        let mut left = len - head;
        // Four pages at a time: the hardware prefetchers follow each page's stream on its own.
        while left >= 4 * PAGE {
            for line in 0..LINES {
                for page in 0..4 {
                    let at = page * PAGE + line * 64;
                    _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(at + 512).cast());
                    let s: *const __m128i = from.add(at).cast();
                    let d: *mut __m128i = to.add(at).cast();
                    let (a, b, c, e) = (
                        _mm_loadu_si128(s),
                        _mm_loadu_si128(s.add(1)),
                        _mm_loadu_si128(s.add(2)),
                        _mm_loadu_si128(s.add(3)),
                    );
                    _mm_stream_si128(d, a);
                    _mm_stream_si128(d.add(1), b);
                    _mm_stream_si128(d.add(2), c);
                    _mm_stream_si128(d.add(3), e);
                }
            }
            from = from.add(4 * PAGE);
            to = to.add(4 * PAGE);
            left -= 4 * PAGE;
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
        for len in [0, 1, 63, 4096, STREAM_FROM, STREAM_FROM + 12_345] {
            for (from, to) in [(0, 0), (3, 0), (0, 7), (13, 61)] {
                let src: Vec<u8> = (0..len + from).map(|i| (i * 7 % 251) as u8).collect();
                let mut dst = vec![0xAA; len + to + 1];
                // SAFETY:
                // - both vectors hold `len` bytes past the offsets.
                unsafe { copy(src.as_ptr().add(from), dst.as_mut_ptr().add(to), len) };
                assert_eq!(&dst[to..to + len], &src[from..], "{len} {from} {to}");
                assert!(dst[..to].iter().all(|b| *b == 0xAA) && dst[len + to] == 0xAA);
            }
        }
    }

    #[test]
    fn overlapping_large_ranges_behave_as_memmove() {
        let len = STREAM_FROM;
        let mut bytes: Vec<u8> = (0..len + 100).map(|i| (i % 253) as u8).collect();
        let expected: Vec<u8> = bytes[..len].to_vec();
        // SAFETY:
        // - both ranges lie in the vector.
        unsafe { copy(bytes.as_ptr(), bytes.as_mut_ptr().add(100), len) };
        assert!(bytes[100..] == expected[..]);
    }
}
