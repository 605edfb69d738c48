//! The entry point.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::fabric::open_fabric;
use super::info::getinfo;
use super::{library, told};
use crate::sys::{fi_context, fi_provider, version};

/// The version of the interface that the tables are made for. libfabric takes no provider that knows less than itself; ours leave out
/// what they do not know, so that later versions can use them as well.
const INTERFACE: u32 = version(2, 255);

unsafe extern "C" fn cleanup() {}

/// What libfabric calls when it has loaded the library. Null where libfabric's functions cannot be found: a static program has loaded this, whose
/// libfabric would take it for a newer copy of the provider that the program has built in.
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
    // libfabric writes into it, and keeps it for as long as the process lives.
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
            // - it stays.
            unsafe { told::begin(fresh) };
            fresh
        }
        Err(first) => {
            // SAFETY:
            // - made above, and shown to nobody.
            drop(unsafe { Box::from_raw(fresh) });
            first
        }
    }
}
