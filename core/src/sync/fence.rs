//! Fences in two halves: one that costs nothing, for those who come often, and one that costs a system call, for those who come rarely.
//! Together they are what two `SeqCst` fences are: of two threads that each store, pass a half, and load what the other one stores, one
//! sees the other. Two light halves give nothing.

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
