//! Prefetches of cache lines. A prefetch accesses no memory, so any address is allowed.

use crate::cache::LINE;

/// Prefetches the line at `at` for a store. A processor acquires lines for stores one by one, in store order. While it waits for
/// one, a polling peer takes the next line back. Prefetched lines arrive together.
#[inline(always)]
pub fn for_store(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - a prefetch accesses no memory; processors without the instruction treat it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY:
    // - a prefetch accesses no memory.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = at;
}

/// Prefetches the line at `at` for a load.
#[inline(always)]
pub fn for_load(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - a prefetch accesses no memory.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY:
    // - a prefetch accesses no memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = at;
}

/// Number of lines that a processor fetches at a time.
const LINES: usize = 16;

/// Prefetches the first lines of `len` bytes at `at` for stores, `LINES` at most.
#[inline]
pub fn for_stores(at: *const u8, len: usize) {
    for line in (0..len.min(LINE * LINES)).step_by(LINE) {
        for_store(at.wrapping_add(line));
    }
}
