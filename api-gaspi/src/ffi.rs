//! The C interface. Each procedure has the name `gaspi_x` and the shifted name `pgaspi_x` (GASPI 17.1 §14.2). The headers in `include/`
//! have the prototypes and describe them.
//!
//! No procedure unwinds. Null pointers and invalid names, offsets and sizes do not crash: the procedures return the codes of the checking
//! library of release 1.6. Pointers that are not null must be valid as C requires.
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

/// Defines procedures under both names.
/// - `moves`: the bytes that a successful call moves to or from a rank.
/// - `quick`: a first attempt with the process and the call, without a wait. After `None` the body runs, in another function.
/// - `with process`: the body gets the process from [`environment::process`](crate::environment::process).
macro_rules! procedures {
    ($(
        fn $name:ident | $shifted:ident($($arg:ident: $ty:ty),* $(,)?)
        $(with $process:ident)? $(quick($here:ident, $call:ident) $quick:block)?
        $(moves $moved:ident($rank:expr, $bytes:expr))? $body:block
    )*) => {$(
        mod $name {
            #[allow(unused_imports, reason = "some bodies need none")]
            use super::*;

            /// The procedure without the quick form. It has the same arguments: they stay in their registers.
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
            // - same contract as this function.
            $crate::ffi::procedures!(@ unsafe { $name::slow($($arg),*) }, $($process)?, [$($here, $call, $quick)?], $body)
        }

        // A tool may replace this function by its own gaspi_x. The library does not rely on it.
        #[inline(never)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            // SAFETY:
            // - same contract as this function. The macro repeats the body, since a call of `$shifted` would copy all arguments.
            $crate::ffi::procedures!(@ unsafe { $name::slow($($arg),*) }, $($process)?, [$($here, $call, $quick)?], $body)
        }
    )*};
    (@ $slow:expr, , [], $body:block) => {{
        if $crate::watch::is_on() {
            // A call instead of a jump: the frame of this function keeps the name of the procedure in stack traces.
            return std::hint::black_box($slow);
        }
        $crate::status::code(|| $body)
    }};
    (@ $slow:expr, process, [], $body:block) => {{
        if !$crate::environment::is_unwatched() {
            return std::hint::black_box($slow);
        }
        $crate::status::code(|| $body)
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

/// As [`code`](crate::status::code); `None`: the procedure has done nothing.
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
    // - contract of this function: `place` is valid, since it is not null.
    unsafe { place.write(value) };
    Ok(())
}

/// Refuses a null pointer before the call has an effect.
#[inline(always)]
fn given<T>(place: *const T) -> Result<()> {
    if place.is_null() {
        Err(Status::ErrNullptr)
    } else {
        Ok(())
    }
}
