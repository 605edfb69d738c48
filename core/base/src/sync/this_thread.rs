//! Identity of the calling thread, in one instruction.

/// The number of this thread: not 0, and unique among the living threads of the process.
#[inline(always)]
pub(crate) fn number() -> usize {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        let pointer: usize;
        // SAFETY:
        // - on Linux the word at fs:0 is the thread pointer itself (the ABI of thread-local storage). A read has no effect.
        unsafe {
            std::arch::asm!(
                "mov {}, fs:0",
                out(reg) pointer,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        pointer
    }
    #[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
    {
        let pointer: usize;
        // SAFETY:
        // - programs may read the register of the thread pointer.
        unsafe {
            std::arch::asm!(
                "mrs {}, tpidr_el0",
                out(reg) pointer,
                options(nostack, pure, nomem, preserves_flags)
            );
        }
        pointer
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)), loom)))]
    {
        thread_local!(static MARK: u8 = const { 0 });
        MARK.with(|mark| std::ptr::from_ref(mark).addr())
    }
    #[cfg(loom)]
    {
        loom::thread_local!(static MARK: Box<u8> = Box::new(0));
        MARK.with(|mark| std::ptr::from_ref::<u8>(mark).addr())
    }
}
