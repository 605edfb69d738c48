//! Atomic operations on this process's memory.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use unipgas_verbs_sys::*;

use crate::device::Device;
use crate::packet::Header;

/// Returns the old value.
///
/// # Safety
/// `at` is aligned and valid for writes, and no reference to it exists.
pub unsafe fn carry_out(device: &Device, at: *mut u64, header: &Header) -> u64 {
    // SAFETY:
    // - contract of this function: `at` is aligned, valid, and not referenced.
    let word = unsafe { AtomicU64::from_ptr(at) };
    let is_swap = u32::from(header.kind) == IBV_WR_ATOMIC_CMP_AND_SWP;
    if device.config.atomics == IBV_ATOMIC_GLOB {
        return match is_swap {
            true => {
                let swapped = word.compare_exchange(header.operand, header.swap, SeqCst, SeqCst);
                swapped.unwrap_or_else(|found| found)
            }
            false => word.fetch_add(header.operand, SeqCst),
        };
    }
    // As with HCA atomicity of real devices, this is not atomic with respect to the CPU: a concurrent store of the CPU is lost.
    let _guard = device.atomics.lock();
    let found = word.load(SeqCst);
    std::thread::yield_now();
    match is_swap {
        true if found == header.operand => word.store(header.swap, SeqCst),
        true => {}
        false => word.store(found.wrapping_add(header.operand), SeqCst),
    }
    found
}
