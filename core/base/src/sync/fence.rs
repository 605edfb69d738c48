//! Fences in two halves: a light half without cost for frequent operations, and a heavy half by a system call for rare operations. Together they act as two
//! `SeqCst` fences. Two threads each store, pass a half, and load the other's word: at least one thread sees the other's store. Two light halves order
//! nothing.
//!
//! This also holds on processors that reorder more than x86-64. `membarrier` makes each processor that runs a thread of this process execute a full barrier,
//! at some point of that thread's program. Other processors execute a barrier when they switch to a thread: on aarch64 the `dsb` of the kernel's
//! `__switch_to`. Consider a thread that stores, passes the light half, and loads.
//!
//! - The barrier is before its store: its load comes after the barrier, and sees the stores of the heavy thread before the call.
//! - The barrier is after its load: its store comes before the barrier. The heavy thread loads after the call, and sees this store.
//! - The barrier is between them: both hold.
//!
//! There is no other point, since the light half keeps the compiler from reordering store and load. A third thread may learn of the heavy thread's store by
//! a release and an acquire. The same holds for it, since both memory models are cumulative.

#[cfg(not(any(loom, miri)))]
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// The frequent half. The heavy half makes up for the processor's store-load reordering.
#[inline(always)]
pub fn light() {
    #[cfg(not(any(loom, miri)))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(any(loom, miri))]
    model();
}

/// The rare half, against threads of this process. False: the kernel does not support it. [`register`] shows that before.
#[must_use]
pub(crate) fn heavy() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Must precede the first [`heavy`]. The child of a registered process must register again. Returns whether the kernel supports the fence.
pub(crate) fn register() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// The rare half, against threads of all processes that have [registered](register_globally) for it. Returns whether the kernel has executed it.
pub(crate) fn heavy_globally() -> bool {
    let done = membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    #[cfg(not(any(loom, miri)))]
    fence(Ordering::SeqCst);
    done
}

/// Lets [`heavy_globally`] of other processes reach this process.
pub(crate) fn register_globally() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

#[cfg(not(any(loom, miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY:
    // - membarrier takes three integers and accesses no memory of the caller. A kernel without the call returns an error.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(any(loom, miri))]
fn membarrier(_command: libc::c_int) -> bool {
    model();
    true
}

/// Checkers of the memory model know no `membarrier`. For them each half is a full fence, which the pair guarantees.
#[cfg(any(loom, miri))]
fn model() {
    super::atomic::fence(super::atomic::Ordering::SeqCst);
}
