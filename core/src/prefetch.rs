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
