//! The C interface. The header `utofu.h` has the prototypes and describes each function. `fjmpi/mpi-ext.h` does the same for MPI's topology functions.
//!
//! No function unwinds, and none crashes on null pointers, wrong handles, ids, flags, sizes or numbers: they return the codes of
//! guide §3.1.2. Pointers that are not null must be valid as C requires. The operation that uses a STADD checks it.
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use unipgas_core::refused::Prototype;

use crate::status::{Result, ReturnCode, SUCCESS};

mod barrier;
mod completion;
mod last_error;
mod management;
pub(crate) mod native;
mod onesided;
mod stadd;
mod topology;

pub use barrier::*;
pub use completion::*;
pub(crate) use last_error::remember;
pub use last_error::*;
pub use management::*;
pub(crate) use onesided::take_over;
pub use onesided::*;
pub use stadd::*;
pub use topology::*;

/// Defines C functions. Each body returns a `Result<()>`.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn by_native($($arg: $ty),*) -> i32 {
                // SAFETY:
                // - contract of this call: the same C contract. The machine's function differs in the names of types only.
                unsafe {
                    match $crate::ffi::native::get() {
                        None => $name($($arg),*),
                        Some(native) => $crate::ffi::native::returned(
                            unipgas_core::prototype!($name($($arg: $ty),*)),
                            (native.$name)($($arg as _),*),
                        ),
                    }
                }
            }
            if $crate::ffi::native::may_be() {
                // SAFETY:
                // - contract of this call: the same C contract.
                return unsafe { by_native($($arg),*) };
            }
            $crate::ffi::code(unipgas_core::prototype!($name($($arg: $ty),*)), || $body)
        }
    )*};
}
use functions;

/// Runs a function. A panic, which is a defect of the library, becomes `UTOFU_ERR_FATAL`.
#[inline(always)]
fn code(call: &'static Prototype<'static>, function: impl FnOnce() -> Result<()>) -> i32 {
    let code = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => return SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => ReturnCode::Fatal,
    };
    if !code.asks_for_patience() {
        remember(call, code);
    }
    code as i32
}

/// Stores a result. Errors: [`ReturnCode::InvalidPointer`].
///
/// # Safety
/// `place` is null or valid for a write.
#[inline(always)]
unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(ReturnCode::InvalidPointer);
    }
    // SAFETY:
    // - contract of this call: a pointer that is not null is valid.
    unsafe { place.write(value) };
    Ok(())
}

/// Checks a pointer, before the call has any effect. Errors: [`ReturnCode::InvalidPointer`] if it is null.
#[inline(always)]
fn given<T>(place: *const T) -> Result<()> {
    if place.is_null() {
        Err(ReturnCode::InvalidPointer)
    } else {
        Ok(())
    }
}

/// Reads an array. Errors: [`ReturnCode::InvalidPointer`].
///
/// # Safety
/// `place` is null or has `N` elements.
unsafe fn array<T: Copy, const N: usize>(place: *const T) -> Result<[T; N]> {
    given(place)?;
    // SAFETY:
    // - contract of this call: a pointer that is not null has `N` elements. An array has the alignment of its elements.
    Ok(unsafe { place.cast::<[T; N]>().read() })
}

/// Writes an array. Errors: [`ReturnCode::InvalidPointer`].
///
/// # Safety
/// `place` is null or has room for `N` elements.
unsafe fn put_array<T: Copy, const N: usize>(place: *mut T, values: [T; N]) -> Result<()> {
    // SAFETY:
    // - contract of this call: null or room for `N` elements.
    unsafe { put(place.cast::<[T; N]>(), values) }
}
