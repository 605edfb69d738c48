//! Asking for cache lines before they are needed.

/// Asks for the line at `at` as a store would. A processor gets lines for stores one after the other, in their order; while it waits for one,
/// whoever polls the next takes that away again. What has been asked for before comes together.
#[inline(always)]
pub fn for_store(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - a prefetch touches nothing, wherever it points; processors without the instruction take it for a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// As many lines as a processor fetches at a time.
const LINES: usize = 16;

/// Asks for the first lines of `len` bytes at `at`.
#[inline]
pub fn for_stores(at: *const u8, len: usize) {
    for line in (0..len.min(64 * LINES)).step_by(64) {
        for_store(at.wrapping_add(line));
    }
}
