//! Copies that write the last word of each cache line last, for readers that poll this word.
//!
//! The line size is that of interfaces that allow such polling: uTofu guide §2.2.10, table 6.4.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::copy::copy;

/// Bytes of a line.
pub const LINE: usize = 256;

/// Whether other processors see the stores of this one in program order (x86-64). On other machines only a release store is
/// ordered after earlier stores.
pub const IN_ORDER: bool = cfg!(target_arch = "x86_64");

/// Size of the last word of `len` bytes at `address`: 1, 2, 4 or 8, or 0 if `len` is 0. One store writes it: it is aligned
/// and lies within the `len` bytes.
#[inline]
pub fn last_word(address: usize, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let aligned = 1 << (address.wrapping_add(len)).trailing_zeros().min(3);
    1 << aligned.min(len).ilog2()
}

/// Bytes from `address` to the end of its line.
#[inline]
pub fn rest_of_line(address: usize) -> usize {
    LINE - address % LINE
}

/// Copies `len` bytes as memmove does. In each line of the destination, including the parts at both ends, the last word becomes
/// visible after the other bytes. Lines become visible in ascending order. The exception is a destination that begins within the
/// source, which memmove copies from the end: then only the very last word comes last.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_lines(src: *const u8, dst: *mut u8, len: usize) {
    if dst.addr().wrapping_sub(src.addr()) < len {
        // SAFETY:
        // - contract of this call.
        return unsafe { copy_end_last(src, dst, len) };
    }
    let head = rest_of_line(dst.addr()).min(len) % LINE;
    let lines = (len - head) / LINE;
    let body = lines * LINE;
    // SAFETY:
    // - contract of this call, for parts of the bytes; the middle begins at a line.
    unsafe {
        copy_end_last(src, dst, head);
        whole_lines(src.add(head), dst.add(head), lines);
        copy_end_last(
            src.add(head + body),
            dst.add(head + body),
            len - head - body,
        );
    }
}

/// # Safety
/// As [`copy`].
unsafe fn copy_end_last(src: *const u8, dst: *mut u8, len: usize) {
    let last = last_word(dst.addr(), len);
    let first = len - last;
    // SAFETY:
    // - contract of this call, for parts of the bytes; `last_word` ensures an aligned store;
    // - the last word is read before the first write, since the ranges may overlap.
    unsafe {
        let (from, to) = (src.add(first), dst.add(first));
        let mut word = [0; 8];
        from.copy_to_nonoverlapping(word.as_mut_ptr(), last);
        let word = u64::from_le_bytes(word);
        copy(src, dst, first);
        match last {
            8 => AtomicU64::from_ptr(to.cast()).store(word.to_le(), Ordering::Release),
            4 => AtomicU32::from_ptr(to.cast()).store((word as u32).to_le(), Ordering::Release),
            2 => AtomicU16::from_ptr(to.cast()).store((word as u16).to_le(), Ordering::Release),
            1 => AtomicU8::from_ptr(to).store(word as u8, Ordering::Release),
            _ => {}
        }
    }
}

/// # Safety
/// `lines` lines are valid at both ends; a line starts at `dst`; no read follows a write to the same bytes.
unsafe fn whole_lines(src: *const u8, dst: *mut u8, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY:
        // - contract of this call; AVX was detected.
        return unsafe { whole_lines_avx(src, dst, lines) };
    }
    for line in 0..lines {
        // SAFETY:
        // - contract of this call: the line is valid at both ends.
        unsafe { copy_end_last(src.add(line * LINE), dst.add(line * LINE), LINE) };
    }
}

/// x86-64 stores become visible in program order. Lines are stored in ascending order, the last word of each by a separate store.
///
/// # Safety
/// As [`whole_lines`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn whole_lines_avx(src: *const u8, dst: *mut u8, lines: usize) {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm_store_si128, _mm256_loadu_si256, _mm256_store_si256,
    };
    const WIDE: usize = 32;
    for line in 0..lines {
        let (from, to) = (src.wrapping_add(line * LINE), dst.wrapping_add(line * LINE));
        // SAFETY:
        // - all accesses are within the line; stores are aligned, since the line is.
        unsafe {
            let a = _mm256_loadu_si256(from.cast());
            let b = _mm256_loadu_si256(from.add(WIDE).cast());
            let c = _mm256_loadu_si256(from.add(2 * WIDE).cast());
            let d = _mm256_loadu_si256(from.add(3 * WIDE).cast());
            let e = _mm256_loadu_si256(from.add(4 * WIDE).cast());
            let f = _mm256_loadu_si256(from.add(5 * WIDE).cast());
            let g = _mm256_loadu_si256(from.add(6 * WIDE).cast());
            let h = _mm_loadu_si128(from.add(7 * WIDE).cast());
            let y = from.add(LINE - 16).cast::<u64>().read_unaligned();
            let z = from.add(LINE - 8).cast::<u64>().read_unaligned();
            _mm256_store_si256(to.cast(), a);
            _mm256_store_si256(to.add(WIDE).cast(), b);
            _mm256_store_si256(to.add(2 * WIDE).cast(), c);
            _mm256_store_si256(to.add(3 * WIDE).cast(), d);
            _mm256_store_si256(to.add(4 * WIDE).cast(), e);
            _mm256_store_si256(to.add(5 * WIDE).cast(), f);
            _mm256_store_si256(to.add(6 * WIDE).cast(), g);
            _mm_store_si128(to.add(7 * WIDE).cast(), h);
            to.add(LINE - 16).cast::<u64>().write(y);
            AtomicU64::from_ptr(to.add(LINE - 8).cast()).store(z, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::copies;

    fn lengths() -> impl Iterator<Item = usize> {
        (0..600).step_by(if cfg!(miri) { 37 } else { 1 })
    }

    #[test]
    fn every_length_and_alignment_copies_exactly() {
        let long = if cfg!(miri) { 1000 } else { 70_001 };
        copies::are_exact(copy_lines, lengths().chain([4096, long]));
    }

    #[test]
    fn overlapping_ranges_behave_as_memmove() {
        copies::may_overlap(copy_lines, lengths().chain([5000]));
    }

    #[test]
    fn the_last_word_is_aligned_and_no_longer_than_what_there_is() {
        for address in 0..16 {
            for len in 1..600 {
                let last = last_word(address, len);
                assert!(matches!(last, 1 | 2 | 4 | 8) && last <= len);
                assert!((address + len).is_multiple_of(last));
            }
        }
        assert_eq!((last_word(0, 256), last_word(0, 300)), (8, 4));
        assert_eq!(
            (last_word(0, 7), last_word(0, 6), last_word(0, 0)),
            (1, 2, 0)
        );
    }

    /// A reader that sees the last word of a line sees the whole line, at any time.
    #[test]
    #[cfg_attr(
        miri,
        ignore = "a race by design: a poll reads the line during the copy"
    )]
    fn lines_are_seen_whole() {
        const LINES: usize = 40;
        let ends: Vec<AtomicU64> = (0..LINES * LINE / 8).map(|_| AtomicU64::new(0)).collect();
        let words = LINE / 8;
        let skip = ends.as_ptr().align_offset(LINE).min(words);
        let target = &ends[skip..skip + (LINES - 1) * words];
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=3000u64 {
                    let from = vec![round; target.len()];
                    let to = target.as_ptr().cast_mut().cast::<u8>();
                    // SAFETY:
                    // - both ends have the same number of words; readers use atomics, since the words change concurrently.
                    unsafe { copy_lines(from.as_ptr().cast(), to, target.len() * 8) };
                }
                over.store(true, Ordering::Release);
            });
            while !over.load(Ordering::Acquire) {
                for line in target.chunks(words) {
                    let end = line[words - 1].load(Ordering::Acquire);
                    assert!(line.iter().all(|word| word.load(Ordering::Relaxed) >= end));
                }
            }
        });
    }
}
