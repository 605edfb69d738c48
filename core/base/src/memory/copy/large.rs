//! Copies larger than the caches of a core, by the faster of two methods on this machine.
//!
//! The faster method depends on shared caches, on memory, and on other load. So the first copies of each class of lengths
//! alternate between both methods, and the measured times decide.

use std::arch::x86_64::{
    __m256i, _MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_loadu_si256,
    _mm256_store_si256, _mm256_stream_si256,
};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::SPREAD;

/// Bytes per measurement while both methods are tried.
const PIECE: usize = 512 << 10;
/// Number of pairs of pieces before the decision.
const PAIRS: u32 = 16;
/// Number of classes of lengths. The first begins at [`SPREAD`] bytes, each other one at twice its predecessor; the last is open.
const CLASSES: usize = 5;

/// The measurements for a class of lengths: pairs tried, and pairs in which [`spread`] was faster.
struct Class {
    tried: AtomicU32,
    won: AtomicU32,
}

static LEARNT: [Class; CLASSES] = [const {
    Class {
        tried: AtomicU32::new(0),
        won: AtomicU32::new(0),
    }
}; CLASSES];

/// As memcpy, by the faster method.
///
/// # Safety
/// `len` bytes, at least [`SPREAD`], are valid at both ends and do not overlap; the processor has AVX.
#[target_feature(enable = "avx")]
pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    let class = &LEARNT[class_of(len)];
    // SAFETY:
    // - contract of this call.
    unsafe {
        match class.verdict() {
            Some(true) => spread(src, dst, len),
            Some(false) => src.copy_to_nonoverlapping(dst, len),
            None => class.try_both(src, dst, len),
        }
    }
}

fn class_of(len: usize) -> usize {
    ((len / SPREAD).ilog2() as usize).min(CLASSES - 1)
}

impl Class {
    /// Whether [`spread`] is the faster method, once decided.
    fn verdict(&self) -> Option<bool> {
        let tried = self.tried.load(Relaxed);
        (tried >= PAIRS).then(|| 2 * self.won.load(Relaxed) > tried)
    }

    /// # Safety
    /// As [`copy`].
    #[target_feature(enable = "avx")]
    unsafe fn try_both(&self, src: *const u8, dst: *mut u8, len: usize) {
        let mut at = 0;
        let mut spread_first = false;
        while len - at >= 2 * PIECE && self.verdict().is_none() {
            let mut took = [Duration::ZERO; 2];
            for way in [spread_first, !spread_first] {
                let began = Instant::now();
                // SAFETY:
                // - contract of this call, for a piece of the range.
                unsafe {
                    match way {
                        true => spread(src.add(at), dst.add(at), PIECE),
                        false => src.add(at).copy_to_nonoverlapping(dst.add(at), PIECE),
                    }
                }
                took[usize::from(way)] = began.elapsed();
                at += PIECE;
            }
            // Other threads may measure at the same time. Their pairs count as well.
            self.won.fetch_add((took[1] < took[0]).into(), Relaxed);
            self.tried.fetch_add(1, Relaxed);
            spread_first = !spread_first;
        }
        let (src, dst, left) = (src.wrapping_add(at), dst.wrapping_add(at), len - at);
        // SAFETY:
        // - contract of this call, for the rest of the range; `spread` gets more than a line.
        unsafe {
            match self.verdict() {
                Some(true) if left >= PIECE => spread(src, dst, left),
                _ => src.copy_to_nonoverlapping(dst, left),
            }
        }
    }
}

const PAGE: usize = 4096;
const LINE: usize = 64;
const PAGES: usize = 4;
const BLOCK: usize = PAGES * PAGE;
const AHEAD: usize = 512;

/// Copies four pages side by side: three by stores through the cache, one by non-temporal stores.
///
/// With one kind of store, a single core cannot saturate memory. Stores through the cache wait for reads of the lines that
/// they overwrite; non-temporal stores wait for the few fill buffers. Together, each fills the gaps of the other.
///
/// # Safety
/// `len` bytes, at least a line, are valid at both ends and do not overlap.
#[target_feature(enable = "avx")]
unsafe fn spread(src: *const u8, dst: *mut u8, len: usize) {
    let head = dst.align_offset(LINE);
    let blocks = (len - head) / BLOCK;
    let tail = head + blocks * BLOCK;
    // SAFETY:
    // - head, blocks and tail are within `len` bytes of both ranges: the head is shorter than a line.
    // - behind the head, the destination is at the begin of a line.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        for at in (head..tail).step_by(BLOCK) {
            spread_block(src.add(at), dst.add(at));
        }
        // Non-temporal stores are weakly ordered: the fence orders them before later stores, such as a notification.
        _mm_sfence();
        std::ptr::copy_nonoverlapping(src.add(tail), dst.add(tail), len - tail);
    }
}

/// # Safety
/// [`BLOCK`] bytes are valid at both ends and do not overlap. `to` is at the begin of a line.
#[target_feature(enable = "avx")]
#[inline]
unsafe fn spread_block(from: *const u8, to: *mut u8) {
    // SAFETY:
    // - contract of this call: the accesses stay within the block, and stores go to aligned halves of lines. Prefetches do not fault.
    unsafe {
        for line in (0..PAGE).step_by(LINE) {
            // A prefetch beyond the end of its page continues in the same page of the next block.
            let ahead = (line + AHEAD) % PAGE + (line + AHEAD) / PAGE * BLOCK;
            for page in 0..PAGES {
                let at = ahead + page * PAGE;
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast());
                if page != PAGES - 1 {
                    _mm_prefetch::<_MM_HINT_ET0>(to.wrapping_add(at).cast());
                }
            }
            copy_line_of_pages(from.add(line), to.add(line));
        }
    }
}

/// Copies one line of each page of a block.
///
/// # Safety
/// As [`spread_block`], for these lines.
#[target_feature(enable = "avx")]
#[inline]
unsafe fn copy_line_of_pages(from: *const u8, to: *mut u8) {
    // SAFETY:
    // - contract of this call: the lines are valid, and the stores are aligned.
    unsafe {
        // All loads precede all stores: a load waits for an earlier store to the same offset of another page.
        let lines: [[__m256i; 2]; PAGES] = std::array::from_fn(|page| {
            let at: *const __m256i = from.add(page * PAGE).cast();
            [_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))]
        });
        for (page, [low, high]) in lines.into_iter().enumerate() {
            let at: *mut __m256i = to.add(page * PAGE).cast();
            if page != PAGES - 1 {
                _mm256_store_si256(at, low);
                _mm256_store_si256(at.add(1), high);
            } else {
                _mm256_stream_si256(at, low);
                _mm256_stream_si256(at.add(1), high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_double() {
        let of = |mib: usize| class_of(mib << 20);
        assert_eq!(
            [4, 7, 8, 16, 32, 63, 64, 4096].map(of),
            [0, 0, 1, 2, 3, 3, 4, 4]
        );
    }

    #[test]
    fn what_wins_most_pairs_is_taken() {
        let class = |tried, won| Class {
            tried: AtomicU32::new(tried),
            won: AtomicU32::new(won),
        };
        assert_eq!(class(PAIRS - 1, 9).verdict(), None);
        assert_eq!(class(PAIRS, 9).verdict(), Some(true));
        assert_eq!(class(PAIRS, 7).verdict(), Some(false));
    }

    #[test]
    fn both_ways_copy_exactly() {
        if !is_x86_feature_detected!("avx") || cfg!(miri) {
            return;
        }
        let src: Vec<u8> = (0..SPREAD + 12_345).map(|i| (i * 7 % 251) as u8).collect();
        // Rest after the pairs: nothing, less than a line, some, all.
        for len in [SPREAD, SPREAD + 1, SPREAD + 63, src.len()] {
            for (tried, won) in [(0, 0), (PAIRS - 1, 0), (PAIRS, 0), (PAIRS, PAIRS)] {
                let class = Class {
                    tried: AtomicU32::new(tried),
                    won: AtomicU32::new(won),
                };
                for at in [0, 1, 63] {
                    let mut dst = vec![0u8; len + 64];
                    // SAFETY:
                    // - both vectors have `len` bytes after `at`; AVX was detected.
                    unsafe { class.try_both(src.as_ptr(), dst.as_mut_ptr().add(at), len) };
                    assert!(dst[at..at + len] == src[..len], "{len} {tried} {won} {at}");
                    let around = dst[..at].iter().chain(&dst[at + len..]);
                    assert!(
                        around.clone().all(|byte| *byte == 0),
                        "{len} {tried} {won} {at}"
                    );
                }
                assert!(class.tried.load(Relaxed) >= tried);
            }
        }
    }
}
