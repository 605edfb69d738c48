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
pub use passive::*;
pub use print::*;
pub use process::*;
pub use segment::*;
pub use statistics::*;
pub use threads::*;
pub use transfer::*;

/// Defines procedures under both names. `moves`: the bytes that a call moves to or from a rank, if it succeeds. The body gets the process by `process()`: of
/// [`environment::process`](crate::environment::process), or, where nobody watches, what has been found already.
macro_rules! procedures {
    ($(
        fn $name:ident | $shifted:ident($($arg:ident: $ty:ty),* $(,)?)
        $(with $process:ident)? $(moves $moved:ident($rank:expr, $bytes:expr))? $body:block
    )*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $shifted($($arg: $ty),*) -> i32 {
            // A function with the same arguments, which stay where they are.
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn watched($($arg: $ty),*) -> i32 {
                const NUMBER: Option<usize> = $crate::statistics::procedure(stringify!($name));
                let moved = || {
                    $($crate::statistics::moved($crate::statistics::Moved::$moved, $rank, $bytes);)?
                };
                let explained = |status| {
                    $crate::explain::explain(stringify!($name), &[$((stringify!($arg), &$arg)),*], status);
                };
                $crate::watch::watched(NUMBER, || $body, moved, explained)
            }
            // SAFETY:
            // - the caller's word.
            $crate::ffi::procedures!(@ unsafe { watched($($arg),*) }, $($process)?, $body)
        }

        // A tool's own gaspi_x takes this one's place; nothing in the library relies on it.
        #[inline(never)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            // SAFETY:
            // - the caller's word. The body once more: a call between the two would copy all arguments.
            $crate::ffi::procedures!(@ unsafe { $shifted($($arg),*) }, $($process)?, $body)
        }
    )*};
    (@ $watched:expr, , $body:block) => {{
        if $crate::watch::is_on() {
            // Not a jump: the caller's name is that of a function with a frame.
            return std::hint::black_box($watched);
        }
        $crate::ffi::code(|| $body)
    }};
    (@ $watched:expr, $process:ident, $body:block) => {{
        let Some(here) = $crate::environment::unwatched() else {
            return std::hint::black_box($watched);
        };
        let $process = || -> $crate::status::Result<&'static $crate::Process> { Ok(here) };
        $crate::ffi::code(|| $body)
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
