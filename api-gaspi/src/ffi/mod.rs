//! The C interface: `gaspi_x`, and under the shifted name `pgaspi_x` (GASPI 17.1 §14.2) the procedure itself. The prototypes
//! are those of the headers in `include/`, where each one is described.
//!
//! No procedure unwinds, and none crashes on null pointers or on names, offsets and sizes that do not exist: they return the
//! codes of release 1.6's checking library. Pointers that are not null must be valid as C requires.
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::explain;
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

/// Defines procedures under both names. `moves`: the bytes that a call moves to or from a rank, if it succeeds.
macro_rules! procedures {
    ($(
        fn $name:ident | $shifted:ident($($arg:ident: $ty:ty),* $(,)?)
        $(moves $moved:ident($rank:expr, $bytes:expr))? $body:block
    )*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $shifted($($arg: $ty),*) -> i32 {
            $crate::ffi::procedures!(@ $name ($($arg)*) $(($moved, $rank, $bytes))? $body)
        }

        // A tool's own gaspi_x takes this one's place; nothing in the library relies on it.
        #[inline(never)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            // The body once more: a call between the two would copy all arguments.
            $crate::ffi::procedures!(@ $name ($($arg)*) $(($moved, $rank, $bytes))? $body)
        }
    )*};
    (@ $name:ident ($($arg:ident)*) $(($moved:ident, $rank:expr, $bytes:expr))? $body:block) => {{
        let explain = move |status| {
            $crate::explain::explain(stringify!($name), &[$((stringify!($arg), &$arg)),*], status);
        };
        const NUMBER: Option<usize> = $crate::statistics::procedure(stringify!($name));
        if let Some(number) = NUMBER
            && $crate::statistics::is_on()
        {
            let counted = || {
                $crate::statistics::counted(number, || $body)?;
                $($crate::statistics::moved($crate::statistics::Moved::$moved, $rank, $bytes);)?
                Ok(())
            };
            return $crate::ffi::code_or(counted, explain);
        }
        $crate::ffi::code_or(|| $body, explain)
    }};
}
use procedures;

/// Runs a procedure; a panic (which would be a defect of the library) becomes `GASPI_ERROR`.
#[inline(always)]
fn code(procedure: impl FnOnce() -> Result<()>) -> i32 {
    code_or(procedure, |_| {})
}

/// The same; `explain`s what has gone wrong, where that is wanted.
#[inline(always)]
fn code_or(procedure: impl FnOnce() -> Result<()>, explain: impl FnOnce(Status)) -> i32 {
    match catch_unwind(AssertUnwindSafe(procedure)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => refuse(status, explain),
        Err(_) => Status::Error as i32,
    }
}

#[cold]
#[inline(never)]
fn refuse(status: Status, explain: impl FnOnce(Status)) -> i32 {
    if explain::is_wanted() {
        let _ = catch_unwind(AssertUnwindSafe(|| explain(status)));
    }
    status as i32
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
