//! Fences in two halves: one that costs nothing, for those who come often, and one that costs a system call, for those who come rarely.
//! Together they are what two `SeqCst` fences are: of two threads that each store, pass a half, and load what the other one stores, one
//! sees the other. Two light halves give nothing.
//!
//! That holds on processors that reorder more than x86-64, too. `membarrier` has every processor that runs a thread of ours execute a full
//! barrier, at some place of that thread's program (other processors execute one when they switch to a thread: on aarch64 the `dsb` of the
//! kernel's `__switch_to`). Of a thread that stores, passes the light half, and loads: if the place is before its store, the load comes after
//! the barrier, and sees what the heavy one stored before the call; if it is behind its load, the store comes before the barrier, and the
//! heavy one, which loads after the call, sees it; between them, both. There is no other place, since the light half keeps the compiler from
//! exchanging the two. What a third thread learns of the heavy one, by a release and an acquire, holds for it as well: both models are
//! cumulative.

#[cfg(not(any(loom, miri)))]
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// The half that comes often. The processor's own store-load reordering is answered by the other half.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(any(loom, miri)))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(any(loom, miri))]
    model();
}

/// The half that comes rarely, against threads of this process. False if the kernel does not do it; [`register`] tells before.
#[must_use]
pub(crate) fn heavy() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Before the first [`heavy`]; the child of a process that registered does so again. Gives whether there is such a fence.
pub(crate) fn register() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// The half that comes rarely, against threads of all processes that have [registered](register_globally) for it. Gives whether the kernel
/// has done it.
pub(crate) fn heavy_globally() -> bool {
    let done = membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    #[cfg(not(any(loom, miri)))]
    fence(Ordering::SeqCst);
    done
}

/// Lets other processes' [`heavy_globally`] reach this one.
pub(crate) fn register_globally() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

#[cfg(not(any(loom, miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY:
    // - membarrier takes three integers and touches no memory of ours; a kernel without the call refuses it.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(any(loom, miri))]
fn membarrier(_command: libc::c_int) -> bool {
    model();
    true
}

/// Checkers of the memory model know no `membarrier`: for them each half is what the pair promises, a fence.
#[cfg(any(loom, miri))]
fn model() {
    super::atomic::fence(super::atomic::Ordering::SeqCst);
}
