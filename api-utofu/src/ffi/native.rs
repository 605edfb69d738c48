//! The machine's own uTofu library, used if the job's processes reach each other by Tofu. Calls go to it unchanged, and the program gets its VCQ ids,
//! STADDs and descriptors. The engine takes no part, so the queues follow the machine's rules.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::Once;
use unipgas_core::refused::Prototype;
use unipgas_core::registry;
use unipgas_utofu_sys::{
    UTOFU_ERR_BUSY, UTOFU_ERR_NOT_COMPLETED, UTOFU_ERR_NOT_FOUND, UtofuFunctions,
};

use super::{last_error, onesided};
use crate::status::{ReturnCode, SUCCESS};

/// `found` has not run yet.
const UNDECIDED: *mut UtofuFunctions = std::ptr::without_provenance_mut(1);

/// Null: calls go to the engine.
static NATIVE: AtomicPtr<UtofuFunctions> = AtomicPtr::new(UNDECIDED);

/// Undecided, or calls go to the machine's library.
static MAY_BE: AtomicBool = AtomicBool::new(true);

/// False: calls go to the engine, which pay only for this check. True: [`get`] decides, at a higher cost.
#[inline(always)]
pub fn may_be() -> bool {
    MAY_BE.load(Ordering::Relaxed)
}

/// The library's functions. `None`: calls go to the engine, and [`may_be`] is false.
#[inline]
pub fn get() -> Option<&'static UtofuFunctions> {
    let mut known = NATIVE.load(Ordering::Acquire);
    if known == UNDECIDED {
        known = decide();
    }
    // SAFETY:
    // - null, or a result of `found`, which has static lifetime.
    unsafe { known.as_ref() }
}

/// The body of a naked function that jumps to the address in a static.
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
fn decide() -> *mut UtofuFunctions {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let found = found();
        // SAFETY:
        // - null, or a result of `found`, which has static lifetime.
        if let Some(native) = unsafe { found.as_ref() } {
            onesided::take_over(native);
        }
        NATIVE.store(found, Ordering::Release);
        MAY_BE.store(!found.is_null(), Ordering::Relaxed);
    });
    NATIVE.load(Ordering::Acquire)
}

/// Ignores errors in the environment: opening the engine reports them.
fn found() -> *mut UtofuFunctions {
    let offered = registry::interface_below().ok().flatten();
    let functions = offered.and_then(|any| any.downcast_ref::<UtofuFunctions>());
    functions.map_or(std::ptr::null_mut(), |functions| {
        std::ptr::from_ref(functions).cast_mut()
    })
}

/// Passes on the return code of the library. Records an error for `utofu_get_last_error`.
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
    let known = ReturnCode::ALL.iter().find(|known| **known as i32 == code);
    if let Some(code) = known.filter(|code| !code.asks_for_patience()) {
        last_error::remember(call, *code);
    }
}
