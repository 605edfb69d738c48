//! The C interface: `gaspi_x`, and under the shifted name `pgaspi_x` (GASPI 17.1 §14.2) the procedure itself. The prototypes
//! are those of the headers in `include/`, where each one is described.
//!
//! No procedure unwinds, and none crashes on null pointers or on names, offsets and sizes that do not exist: they return the
//! codes of release 1.6's checking library. Pointers that are not null must be valid as C requires.
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::status::{Result, SUCCESS, Status};

mod collective;
mod environment;
mod getters;
mod lowlevel;
mod passive;
mod print;
mod process;
mod segment;
mod statistics;
mod threads;
mod transfer;

pub use collective::*;
pub use environment::*;
pub use getters::*;
pub use lowlevel::*;
pub use passive::*;
pub use print::*;
pub use process::*;
pub use segment::*;
pub use statistics::*;
pub use threads::*;
pub use transfer::*;

/// Defines procedures under both names. `moves`: the bytes that a call moves to or from a rank, if it succeeds. `quick`: a first try, with the process and the
/// call, which does not wait; `None`: the body does it, in another function. The body gets the process by [`environment::process`](crate::environment::process).
macro_rules! procedures {
    ($(
        fn $name:ident | $shifted:ident($($arg:ident: $ty:ty),* $(,)?)
        $(with $process:ident)? $(quick($here:ident, $call:ident) $quick:block)?
        $(moves $moved:ident($rank:expr, $bytes:expr))? $body:block
    )*) => {$(
        mod $name {
            #[allow(unused_imports, reason = "some bodies need none")]
            use super::*;

            /// The procedure without the quick form. It has the same arguments, which stay in their registers.
            #[cold]
            #[inline(never)]
            pub(super) unsafe extern "C" fn slow($($arg: $ty),*) -> i32 {
                const NUMBER: Option<usize> = $crate::statistics::procedure(stringify!($name));
                let moved = || {
                    $($crate::statistics::moved($crate::statistics::Moved::$moved, $rank, $bytes);)?
                };
                let explained = |status| {
                    $crate::explain::explain(stringify!($name), &[$((stringify!($arg), &$arg)),*], status);
                };
                $crate::watch::watched(NUMBER, || $body, moved, explained)
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $shifted($($arg: $ty),*) -> i32 {
            // SAFETY:
            // - the caller's word.
            $crate::ffi::procedures!(@ unsafe { $name::slow($($arg),*) }, $($process)?, [$($here, $call, $quick)?], $body)
        }

        // A tool's own gaspi_x takes this one's place; nothing in the library relies on it.
        #[inline(never)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            // SAFETY:
            // - the caller's word. The body once more: a call between the two would copy all arguments.
            $crate::ffi::procedures!(@ unsafe { $name::slow($($arg),*) }, $($process)?, [$($here, $call, $quick)?], $body)
        }
    )*};
    (@ $slow:expr, , [], $body:block) => {{
        if $crate::watch::is_on() {
            // Not a jump: the caller's name is that of a function with a frame.
            return std::hint::black_box($slow);
        }
        $crate::ffi::code(|| $body)
    }};
    (@ $slow:expr, process, [], $body:block) => {{
        if !$crate::environment::is_unwatched() {
            return std::hint::black_box($slow);
        }
        $crate::ffi::code(|| $body)
    }};
    (@ $slow:expr, process, [$here:ident, $call:ident, $quick:block], $body:block) => {{
        if let Some($call) = unipgas_core::calls::Call::begin_fast()
            && let Some($here) = $crate::environment::in_call(&$call)
            && let Some(code) = $crate::ffi::code_of(|| $quick)
        {
            return code;
        }
        std::hint::black_box($slow)
    }};
}
use procedures;

/// Runs a procedure; a panic (which would be a defect of the library) becomes `GASPI_ERROR`.
#[inline(always)]
pub(crate) fn code(procedure: impl FnOnce() -> Result<()>) -> i32 {
    match catch_unwind(AssertUnwindSafe(procedure)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status as i32,
        Err(_) => Status::Error as i32,
    }
}

/// As [`code`]; `None`: the procedure has done nothing.
#[inline(always)]
pub(crate) fn code_of(procedure: impl FnOnce() -> Option<Result<()>>) -> Option<i32> {
    match catch_unwind(AssertUnwindSafe(procedure)) {
        Ok(None) => None,
        Ok(Some(Ok(()))) => Some(SUCCESS),
        Ok(Some(Err(status))) => Some(status as i32),
        Err(_) => Some(Status::Error as i32),
    }
}

/// Stores a result. Errors: [`Status::ErrNullptr`].
///
/// # Safety
/// `place` is null or valid for a write.
#[inline(always)]
unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Status::ErrNullptr);
    }
    // SAFETY:
    // - not null, so valid by the caller's word.
    unsafe { place.write(value) };
    Ok(())
}

/// Refuses a null pointer before anything has an effect.
#[inline(always)]
fn given<T>(place: *const T) -> Result<()> {
    if place.is_null() {
        Err(Status::ErrNullptr)
    } else {
        Ok(())
    }
}
