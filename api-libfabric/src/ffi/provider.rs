//! The entry point.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::fabric::open_fabric;
use super::info::getinfo;
use super::{library, told};
use crate::sys::{fi_context, fi_provider, version};

/// Version of the interface that the provider reports. fi_getinfo(3) skips a provider with an older version than the program requests, so this one is
/// high. Later versions of libfabric see in the size of each table which functions it lacks.
const INTERFACE: u32 = version(2, 255);

unsafe extern "C" fn cleanup() {}

/// The entry point, which libfabric calls after it has loaded the library. Null if libfabric's functions are not found. Then a static program has
/// loaded the library, and its libfabric would take it for a newer copy of the built-in provider.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    if !library::is_there() {
        return std::ptr::null_mut();
    }
    static PROVIDER: AtomicPtr<fi_provider> = AtomicPtr::new(std::ptr::null_mut());
    let known = PROVIDER.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // libfabric writes to the structure, and keeps it until the process exits.
    let fresh = Box::into_raw(Box::new(fi_provider {
        version: version(0, 1),
        fi_version: INTERFACE,
        context: fi_context {
            internal: [std::ptr::null_mut(); 4],
        },
        name: c"unipgas".as_ptr().cast::<c_char>(),
        getinfo,
        fabric: open_fabric as unsafe extern "C" fn(_, _, *mut c_void) -> c_int,
        cleanup,
    }));
    let place = PROVIDER.compare_exchange(
        std::ptr::null_mut(),
        fresh,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    match place {
        Ok(_) => {
            // SAFETY:
            // - `fresh` is never freed.
            unsafe { told::begin(fresh) };
            fresh
        }
        Err(first) => {
            // SAFETY:
            // - made above; no other reference exists.
            drop(unsafe { Box::from_raw(fresh) });
            first
        }
    }
}
