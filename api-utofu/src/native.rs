//! The machine's own uTofu library, where the job's processes reach each other by Tofu: calls are handed to it as they are, and its VCQ IDs, STADDs and descriptors are those of
//! the program. So nothing of the engine stands between, and the laws of its queues are the machine's.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::Once;
use unipgas_core::refused::Prototype;
use unipgas_core::registry;
use unipgas_utofu_sys::{Functions, UTOFU_ERR_BUSY, UTOFU_ERR_NOT_COMPLETED, UTOFU_ERR_NOT_FOUND};

use crate::ffi;
use crate::status::{Code, SUCCESS};

/// Nobody has looked yet.
const UNDECIDED: *mut Functions = std::ptr::without_provenance_mut(1);

/// Null: there is none.
static NATIVE: AtomicPtr<Functions> = AtomicPtr::new(UNDECIDED);

/// Nobody has looked yet, or there is one.
static MAY_BE: AtomicBool = AtomicBool::new(true);

/// Whether calls may have to go by it; [`get`] tells, which costs more. Calls that go by the engine pay no more than this.
#[inline(always)]
pub fn may_be() -> bool {
    MAY_BE.load(Ordering::Relaxed)
}

/// Its functions. `None`: calls go by the engine, and [`may_be`] says so from now on.
#[inline]
pub fn get() -> Option<&'static Functions> {
    let mut known = NATIVE.load(Ordering::Acquire);
    if known == UNDECIDED {
        known = decide();
    }
    // SAFETY:
    // - null, or what `found` has given, which stays for good.
    unsafe { known.as_ref() }
}

/// The body of a function that jumps to where a static says.
macro_rules! jump {
    ($way:path) => {{
        #[cfg(target_arch = "x86_64")]
        std::arch::naked_asm!("jmp qword ptr [rip + {way}]", way = sym $way);
        #[cfg(target_arch = "aarch64")]
        std::arch::naked_asm!(
            "adrp x16, {way}",
            "ldr x16, [x16, :lo12:{way}]",
            "br x16",
            way = sym $way
        );
    }};
}
pub(crate) use jump;

#[cold]
#[inline(never)]
fn decide() -> *mut Functions {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let found = found();
        // SAFETY:
        // - null, or functions that stay.
        if let Some(native) = unsafe { found.as_ref() } {
            ffi::take_over(native);
        }
        NATIVE.store(found, Ordering::Release);
        MAY_BE.store(!found.is_null(), Ordering::Relaxed);
    });
    NATIVE.load(Ordering::Acquire)
}

/// An environment that makes no sense is told of by who opens the engine.
fn found() -> *mut Functions {
    let offered = registry::interface_below().ok().flatten();
    let functions = offered.and_then(|any| any.downcast_ref::<Functions>());
    functions.map_or(std::ptr::null_mut(), |functions| {
        std::ptr::from_ref(functions).cast_mut()
    })
}

/// What a call of its has returned, which is remembered as that of a call of ours.
#[inline]
pub fn returned(call: &'static Prototype<'static>, code: i32) -> i32 {
    match code {
        SUCCESS | UTOFU_ERR_NOT_FOUND | UTOFU_ERR_NOT_COMPLETED | UTOFU_ERR_BUSY => {}
        _ => note(call, code),
    }
    code
}

#[cold]
fn note(call: &'static Prototype<'static>, code: i32) {
    let known = Code::ALL.iter().find(|known| **known as i32 == code);
    if let Some(code) = known.filter(|code| !code.asks_for_patience()) {
        ffi::remember(call, *code);
    }
}
