//! The C interface: `fi_prov_ini`, by which libfabric loads the provider, and the functions of its tables.
//!
//! No function unwinds, and none crashes on null pointers or values out of range. Objects must be those that this provider has made
//! and that have not been closed, as in all of libfabric.
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use unipgas_core::Deadline;
use unipgas_core::biased::Reentered;

use crate::status::{Errno, Result};
use crate::sys::{fi_ops, fid};

mod atomic;
mod av;
mod av_set;
mod collective;
mod counter;
mod domain;
mod endpoint;
mod event;
mod fabric;
mod info;
mod library;
mod memory;
mod message;
mod naming;
mod poll;
mod provider;
mod queue;
mod refused;
mod rma;
mod shared;
mod told;
mod trigger;
mod wait;

pub use library::{DupInfo, FreeInfo, stand_in};
pub use provider::fi_prov_ini;

/// Runs a function that gives a number; a panic (which would be a defect of the library) becomes -FI_EOTHER, and a call in a handler of a
/// signal that has interrupted another one of the same object -FI_EBUSY.
#[inline(always)]
fn number(function: impl FnOnce() -> Result<usize>) -> isize {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(value)) => value as isize,
        Ok(Err(errno)) => -(errno.0 as isize),
        Err(payload) if payload.is::<Reentered>() => -(Errno::BUSY.0 as isize),
        Err(_) => -(Errno::OTHER.0 as isize),
    }
}

/// Runs a function that gives nothing. Why it refuses a call is told where that is asked for.
#[inline(always)]
fn posted<F: FnOnce() -> Result<()>>(function: F) -> isize {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => 0,
        Ok(Err(errno)) => refused::told(std::any::type_name::<F>(), errno),
        Err(_) => -(Errno::OTHER.0 as isize),
    }
}

/// The same for functions of type int.
#[inline(always)]
fn code(function: impl FnOnce() -> Result<()>) -> c_int {
    posted(function) as c_int
}

/// What is not offered: callable with any arguments.
unsafe extern "C" fn no() -> isize {
    -(Errno::NOSYS.0 as isize)
}

unsafe extern "C" fn no_bind(_fid: *mut fid, _other: *mut fid, _flags: u64) -> c_int {
    -Errno::NOSYS.0
}

unsafe extern "C" fn no_control(_fid: *mut fid, _command: c_int, _arg: *mut c_void) -> c_int {
    -Errno::NOSYS.0
}

/// The table of functions that each object has.
const fn fid_ops(
    close: unsafe extern "C" fn(*mut fid) -> c_int,
    bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close,
        bind,
        control,
        ops_open: no,
        tostr: no,
        ops_set: no,
    }
}

/// An object: what C sees of it, and what it is.
#[repr(C)]
struct Object<Raw, T> {
    raw: Raw,
    inner: T,
}

impl<Raw, T> Object<Raw, T> {
    fn create(raw: Raw, inner: T) -> *mut Raw {
        Box::into_raw(Box::new(Object { raw, inner })).cast()
    }

    /// The object behind a pointer to its first part. Errors: [`Errno::INVAL`] for null.
    ///
    /// # Safety
    /// Null, or made by `create` with these types, and not destroyed.
    #[inline(always)]
    unsafe fn at<'a, Any>(pointer: *const Any) -> Result<&'a Self> {
        // SAFETY:
        // - the caller's word.
        unsafe { pointer.cast::<Self>().as_ref() }.ok_or(Errno::INVAL)
    }

    /// Ends the object.
    ///
    /// # Safety
    /// As for `at`; nobody uses it any more.
    unsafe fn destroy<Any>(pointer: *mut Any) {
        // SAFETY:
        // - the caller's word.
        drop(unsafe { Box::from_raw(pointer.cast::<Self>()) });
    }
}

const fn fid_of(fclass: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid {
        fclass,
        context,
        ops,
    }
}

/// Stores a result. Errors: [`Errno::INVAL`] for a null place.
///
/// # Safety
/// `place` is null or valid for a write.
unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    given(place)?;
    // SAFETY:
    // - not null, so valid by the caller's word.
    unsafe { place.write(value) };
    Ok(())
}

fn given<T>(place: *const T) -> Result<()> {
    if place.is_null() {
        Err(Errno::INVAL)
    } else {
        Ok(())
    }
}

/// An array of C. Errors: [`Errno::INVAL`] for null with elements, or more than `most` of them.
///
/// # Safety
/// `first` is null or has `count` elements that stay as they are.
#[inline(always)]
unsafe fn list<'a, T>(first: *const T, count: usize, most: usize) -> Result<&'a [T]> {
    if count > most || count > 0 && first.is_null() {
        return Err(Errno::INVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY:
    // - not null, so `count` elements by the caller's word.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Milliseconds as poll(2) counts them: negative is for ever.
fn deadline(timeout: c_int) -> Deadline {
    match u64::try_from(timeout) {
        Ok(millis) => Deadline::after(Duration::from_millis(millis)),
        Err(_) => Deadline::Never,
    }
}

/// Whether nobody but the caller has `object`.
fn is_free<T>(object: &Arc<T>) -> bool {
    Arc::strong_count(object) == 1
}
