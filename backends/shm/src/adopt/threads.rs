//! Threads of this process: their number, their control blocks, and their signals, for a swap.

use std::ops::Range;
use std::sync::OnceLock;

use rustix::fs::{CWD, StatxFlags, statx};

/// Bytes around a thread's robust-list head in which C libraries keep its control block. A few words before the head is the word
/// that the kernel clears and wakes at the end of the thread. The area for restartable sequences is behind the head.
const BEFORE_HEAD: usize = 1024;
const AFTER_HEAD_AT_MOST: usize = 2048;

/// The number of threads of this process; `None` if /proc does not show it.
pub(super) fn count() -> Option<usize> {
    let task = statx(
        CWD,
        c"/proc/self/task",
        rustix::fs::AtFlags::empty(),
        StatxFlags::NLINK,
    )
    .ok()?;
    // One link for each thread, and the directory's own two.
    (task.stx_nlink as usize)
        .checked_sub(2)
        .filter(|threads| *threads > 0)
}

/// Whether a thread's control block touches `range`. Such pages must stay private: at the end of the thread, the kernel clears its id there
/// and wakes the joiner by a futex. The mapping identifies the futex, so a joiner that began to wait before the swap would never wake.
pub(super) fn control_block_in(range: &Range<usize>, threads: Option<usize>) -> bool {
    if block_overlaps(0, range) {
        return true;
    }
    // SAFETY:
    // - __errno_location has no preconditions; the address is only compared
    let errno_at = unsafe { libc::__errno_location() } as usize;
    if range.contains(&errno_at) {
        return true;
    }
    if threads == Some(1) {
        return false;
    }
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return true;
    };
    tasks.flatten().any(|entry| {
        let tid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        tid.is_some_and(|tid: libc::pid_t| block_overlaps(tid, range))
    })
}

fn block_overlaps(tid: libc::pid_t, range: &Range<usize>) -> bool {
    robust_list_head(tid).is_some_and(|head| {
        head.saturating_sub(BEFORE_HEAD) < range.end
            && range.start < head.saturating_add(after_head())
    })
}

/// `None` if the thread has ended, or its library has no robust lists. Then no control block needs protection.
fn robust_list_head(tid: libc::pid_t) -> Option<usize> {
    let mut head = 0_usize;
    let mut len = 0_usize;
    // SAFETY:
    // - get_robust_list writes one pointer and one size_t through the two addresses, which live here
    let failed =
        unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) } != 0;
    (!failed && head != 0).then_some(head)
}

/// Bytes from a thread's robust-list head to the end of its control block. Memory of the program may begin right there (a heap
/// behind a stack). So the number is exact if the C library publishes the offset of the area for restartable sequences, the last member of the block.
fn after_head() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        exact_after_head()
            .filter(|bytes| *bytes <= AFTER_HEAD_AT_MOST)
            .unwrap_or(AFTER_HEAD_AT_MOST)
    })
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_env = "gnu"
))]
fn exact_after_head() -> Option<usize> {
    const RSEQ_AREA: usize = 32;
    // SAFETY:
    // - a name of the C library; the object, if there is one, is a constant ptrdiff_t
    let offset = unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        symbol.cast::<isize>().as_ref().copied()
    }?;
    let pointer = thread_pointer();
    let area_end = pointer.checked_add_signed(offset)?.checked_add(RSEQ_AREA)?;
    area_end
        .max(pointer + BEHIND_POINTER)
        .checked_sub(robust_list_head(0)?)
}

/// Bytes of the control block from the thread pointer on. On x86-64 the end of the area shows more; on aarch64 the block ends with two words
/// there, and thread-local variables follow.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_env = "gnu"
))]
const BEHIND_POINTER: usize = if cfg!(target_arch = "aarch64") { 16 } else { 0 };

/// The base of the offset of the area.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn thread_pointer() -> usize {
    // SAFETY:
    // - pthread_self has no preconditions; it is the thread pointer here
    unsafe { libc::pthread_self() as usize }
}

#[cfg(all(target_arch = "aarch64", target_env = "gnu"))]
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY:
    // - reads a register that every thread may read
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_env = "gnu"
)))]
fn exact_after_head() -> Option<usize> {
    None
}

/// Makes the kernel read 8 bytes at `at`, so that a stack grows down to there. No effect on unmapped addresses.
pub(super) fn touch(at: usize) {
    const NO_SUCH_CHANGE: i32 = 99;
    // SAFETY:
    // - the kernel checks the address; it reads a signal set from it, then refuses the requested kind of change
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NO_SUCH_CHANGE,
            at,
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
    }
}

/// Blocks all signals of this thread until dropped, also the C library's internal ones.
pub(super) struct SignalsBlocked {
    before: u64,
}

impl SignalsBlocked {
    pub(super) fn new() -> SignalsBlocked {
        let all = u64::MAX;
        let mut before = 0_u64;
        // SAFETY:
        // - the kernel's signal set is 64 bits; both addresses live here
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const all,
                &raw mut before,
                size_of::<u64>(),
            );
        }
        SignalsBlocked { before }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY:
        // - the kernel's signal set is 64 bits; it is read from this object, no old set is asked for
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut::<u64>(),
                size_of::<u64>(),
            );
        }
    }
}
