//! Internal functions of RCCE's library that some programs use.

use std::ffi::{c_char, c_int, c_void};

use super::print;
use crate::status::SUCCESS;

/// The comparison function of `qsort`.
type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn RCCE_qsort(
    base: *mut c_char,
    num: usize,
    size: usize,
    compare: Option<Compare>,
) -> c_int {
    if num > 1 && size > 0 && !base.is_null() && compare.is_some() {
        // SAFETY:
        // - C contract: `base` has `num` elements of `size` bytes, and `compare` accepts them.
        unsafe { libc::qsort(base.cast(), num, size, compare) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn id_compare(one: *const c_void, other: *const c_void) -> c_int {
    if one.is_null() || other.is_null() {
        return 0;
    }
    // SAFETY:
    // - C contract: both pointers refer to ints, since they are not null.
    let (one, other) = unsafe { (one.cast::<c_int>().read(), other.cast::<c_int>().read()) };
    one.cmp(&other) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn RCCE_error_return(debug: c_int, error: c_int) -> c_int {
    if debug != 0 && error != SUCCESS {
        print(error);
    }
    error
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn RCCE_global_color(_: c_int, _: *mut c_void) -> c_int {
    1
}
