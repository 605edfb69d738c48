//! The C interface. The headers in `include/` declare and describe each function.
//!
//! No function unwinds. For null pointers and invalid numbers, addresses or communicators, functions return the codes of RCCE.h. The C contract of the SAFETY
//! comments: pointers to memory of the program are null or valid. If another UE has died, the process ends ([`give_up`]).
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use unipgas_core::refused::{self, Prototype};

use crate::environment::{Debug, current, debugging, give_up, is_running, tell_on_stderr};
use crate::status::{ErrorCode, Failure, Result, SUCCESS, text};

mod collective;
mod comm;
mod data;
mod flag;
mod lock;
mod message;
mod mpb;
mod power;
mod process;
mod shared;
mod tools;
mod wait_list;

pub use collective::*;
pub use comm::*;
pub use data::*;
pub use flag::*;
pub use lock::*;
pub use message::*;
pub use mpb::*;
pub use power::*;
pub use process::*;
pub use shared::*;
pub use tools::*;
pub use wait_list::*;

/// The return code of a successful body: `RCCE_SUCCESS`, or the body's own code.
pub(crate) trait Answer {
    fn code(self) -> i32;
}

impl Answer for () {
    fn code(self) -> i32 {
        SUCCESS
    }
}

impl Answer for i32 {
    fn code(self) -> i32 {
        self
    }
}

/// Defines C functions that return a code. A body returns a `Result` of an [`Answer`]. In brackets: the [`Debug`] class.
macro_rules! functions {
    ($(fn [$class:ident] $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            let call = unipgas_core::prototype!($name($($arg: $ty),*));
            $crate::ffi::code(call, $crate::environment::Debug::$class, || $body)
        }
    )*};
}
pub(crate) use functions;

/// Defines C functions that return another type. After `or`: the value that they return on failure.
macro_rules! others {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $out:ty, or $default:expr; $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $out {
            $crate::ffi::other(unipgas_core::prototype!($name($($arg: $ty),*)), $default, || $body)
        }
    )*};
}
pub(crate) use others;

/// Runs a function. A panic, which is a defect of the library, becomes `iRCCE_ERROR`.
#[inline(always)]
pub(crate) fn code<A: Answer>(
    call: &Prototype<'_>,
    class: Debug,
    function: impl FnOnce() -> Result<A>,
) -> i32 {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(answer)) => answer.code(),
        Ok(Err(failure)) => failed(call, class, failure),
        Err(_) => ErrorCode::General as i32,
    }
}

#[inline(always)]
pub(crate) fn other<T>(
    call: &Prototype<'_>,
    default: T,
    function: impl FnOnce() -> Result<T>,
) -> T {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            failed(call, Debug::Comm, failure);
            default
        }
        Err(_) => default,
    }
}

#[cold]
fn failed(call: &Prototype<'_>, class: Debug, failure: Failure) -> i32 {
    let code = match failure {
        Failure::Engine(error) if is_running() => give_up(&error),
        // Another thread may have finalized the UE during the call.
        Failure::NotRunning | Failure::Engine(_) => {
            let failure = Failure::NotRunning;
            tell_on_stderr(&format!("{}: {failure}", call.name));
            return ErrorCode::Id as i32;
        }
        Failure::Code(code) => {
            refused::explain(call, code.c_name(), &code.to_string(), code.reason());
            code as i32
        }
    };
    if debugging(class) {
        print(code);
    }
    code
}

fn print(code: i32) {
    let id = current().map_or(-1, |ue| ue.id() as i32);
    let text = text(code).unwrap_or(c"");
    // SAFETY:
    // - the format and its arguments agree: an int and a string. `printf` keeps the order with the program's lines.
    unsafe { libc::printf(c"Error on UE %d: %s\n".as_ptr(), id, text.as_ptr()) };
}

/// Stores a result. Errors: [`ErrorCode::ValUndefined`].
///
/// # Safety
/// `place` is null or valid for a write.
#[inline(always)]
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(ErrorCode::ValUndefined.into());
    }
    // SAFETY:
    // - contract of this call: `place` is valid for a write, since it is not null.
    unsafe { place.write(value) };
    Ok(())
}

/// Stores a result, unless `place` is null.
///
/// # Safety
/// `place` is null or valid for a write.
#[inline(always)]
pub(crate) unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY:
        // - contract of this call: `place` is valid for a write, since it is not null.
        unsafe { place.write(value) };
    }
}
