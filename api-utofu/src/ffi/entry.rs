//! Entry of the C functions: the way to the machine's library, the return code, and checks of pointers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unipgas_core::refused::Prototype;

use super::last_error::remember;
use crate::status::{Result, ReturnCode, SUCCESS};

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
            $crate::ffi::entry::code(unipgas_core::prototype!($name($($arg: $ty),*)), || $body)
        }
    )*};
}
pub(super) use functions;

/// Runs a function. A panic, which is a defect of the library, becomes `UTOFU_ERR_FATAL`.
#[inline(always)]
pub(super) fn code(
    call: &'static Prototype<'static>,
    function: impl FnOnce() -> Result<()>,
) -> i32 {
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
pub(super) unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
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
pub(super) fn given<T>(place: *const T) -> Result<()> {
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
pub(super) unsafe fn array<T: Copy, const N: usize>(place: *const T) -> Result<[T; N]> {
    given(place)?;
    // SAFETY:
    // - contract of this call: a pointer that is not null has `N` elements. An array has the alignment of its elements.
    Ok(unsafe { place.cast::<[T; N]>().read() })
}

/// Writes an array. Errors: [`ReturnCode::InvalidPointer`].
///
/// # Safety
/// `place` is null or has room for `N` elements.
pub(super) unsafe fn put_array<T: Copy, const N: usize>(
    place: *mut T,
    values: [T; N],
) -> Result<()> {
    // SAFETY:
    // - contract of this call: null or room for `N` elements.
    unsafe { put(place.cast::<[T; N]>(), values) }
}
