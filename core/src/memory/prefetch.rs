//! Asking for cache lines before they are needed. A hint touches nothing, wherever it points.

use crate::cache::LINE;

/// Asks for the line at `at` as a store would. A processor gets lines for stores one after the other, in their order; while it waits for one,
/// whoever polls the next takes that away again. What has been asked for before comes together.
#[inline(always)]
pub fn for_store(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - a prefetch touches nothing; processors without the instruction take it for a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY:
    // - a prefetch touches nothing.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = at;
}

/// Asks for the line at `at` as a load would.
#[inline(always)]
pub fn for_load(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - a prefetch touches nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY:
    // - a prefetch touches nothing.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = at;
}

/// As many lines as a processor fetches at a time.
const LINES: usize = 16;

/// Asks for the first lines of `len` bytes at `at`.
#[inline]
pub fn for_stores(at: *const u8, len: usize) {
    for line in (0..len.min(LINE * LINES)).step_by(LINE) {
        for_store(at.wrapping_add(line));
    }
}
