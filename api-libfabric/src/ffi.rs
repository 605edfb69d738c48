//! The C interface: `fi_prov_ini`, by which libfabric loads the provider, and the functions of its tables.
//!
//! No function unwinds, or crashes on null pointers or values out of range. Objects must be open objects of this provider, as in all of
//! libfabric.
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use unipgas_core::biased::Reentered;
use unipgas_core::{Deadline, process};

use crate::domain::Domain;
use crate::status::{Errno, Result};
use crate::sys::{FI_GETWAIT, FI_GETWAITOBJ, fi_ops, fid};

/// Defines the functions of tables. A row has the arguments of a function, and the call that it makes. `$run` turns the result of the call into
/// that of the function: [`posted`], [`number`] or [`code`].
macro_rules! entries {
    ($run:ident -> $result:ty;
     $(fn $name:ident $([$generic:ident: $bound:ident])? ($($arg:ident: $ty:ty),* $(,)?) = $call:expr;)*) => {$(
        unsafe extern "C" fn $name $(<$generic: $bound>)? ($($arg: $ty),*) -> $result {
            // SAFETY:
            // - libfabric's contract: the arguments are valid, and only objects of this file have the table.
            $run(|| unsafe { $call })
        }
    )*};
}

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

/// Runs a function that returns a number. A panic, which is a defect of the library, becomes -FI_EOTHER. A call in a signal handler that has
/// interrupted a call on the same object becomes -FI_EBUSY.
#[inline(always)]
fn number(function: impl FnOnce() -> Result<usize>) -> isize {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(value)) => value as isize,
        Ok(Err(errno)) => -(errno.0 as isize),
        Err(payload) => panicked(&*payload),
    }
}

#[cold]
fn panicked(payload: &(dyn Any + Send)) -> isize {
    let errno = match payload.is::<Reentered>() {
        true => Errno::BUSY,
        false => Errno::OTHER,
    };
    -(errno.0 as isize)
}

/// As [`number`], without a result. With UNIPGAS_CHECK=1, a message explains a refused call.
#[inline(always)]
fn posted<F: FnOnce() -> Result<()>>(function: F) -> isize {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => 0,
        Ok(Err(errno)) => refused::told(std::any::type_name::<F>(), errno),
        Err(payload) => panicked(&*payload),
    }
}

/// The same for functions that return an int.
#[inline(always)]
fn code(function: impl FnOnce() -> Result<()>) -> c_int {
    posted(function) as c_int
}

/// A function that the provider does not offer. C programs may call it with any arguments.
unsafe extern "C" fn no() -> isize {
    -(Errno::NOSYS.0 as isize)
}

unsafe extern "C" fn no_bind(_fid: *mut fid, _other: *mut fid, _flags: u64) -> c_int {
    -Errno::NOSYS.0
}

unsafe extern "C" fn no_control(_fid: *mut fid, _command: c_int, _arg: *mut c_void) -> c_int {
    -Errno::NOSYS.0
}

/// The function table of every object.
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

/// An object: the structure that C programs see, and the provider's state.
#[repr(C)]
struct Object<Raw, T> {
    raw: Raw,
    inner: T,
    /// The process that opened it.
    process: u32,
}

impl<Raw, T> Object<Raw, T> {
    fn create(raw: Raw, inner: T) -> *mut Raw {
        let process = process::id();
        Box::into_raw(Box::new(Object {
            raw,
            inner,
            process,
        }))
        .cast()
    }

    /// The object behind a pointer to its `raw` member. Errors: [`Errno::INVAL`] for null.
    ///
    /// # Safety
    /// The pointer is null, or a result of `create` with these types that has not been destroyed.
    #[inline(always)]
    unsafe fn at<'a, Any>(pointer: *const Any) -> Result<&'a Self> {
        // SAFETY:
        // - contract of this call: null, or a result of `create`.
        unsafe { pointer.cast::<Self>().as_ref() }.ok_or(Errno::INVAL)
    }

    /// As `at`, for the close of the object. None in the child of a fork, where a close has no effect: peers, registrations and locks of the progress thread
    /// are the parent's.
    ///
    /// # Safety
    /// As for `at`.
    unsafe fn to_close<'a, Any>(pointer: *const Any) -> Result<Option<&'a Self>> {
        // SAFETY:
        // - contract of this call.
        let object = unsafe { Self::at(pointer) }?;
        Ok((object.process == process::id()).then_some(object))
    }

    /// Closes the object if `end` permits, after it has ended the uses of the object.
    ///
    /// # Safety
    /// As for `at`. The caller gives the object up.
    unsafe fn close(pointer: *mut fid, end: impl FnOnce(&T) -> Result<()>) -> Result<()> {
        // SAFETY:
        // - contract of this call. No other code uses the object after `end`.
        unsafe {
            if let Some(object) = Self::to_close(pointer)? {
                end(&object.inner)?;
                Self::destroy(pointer);
            }
        }
        Ok(())
    }

    /// As `close`, while the progress thread uses no object of the domain.
    ///
    /// # Safety
    /// As for `close`.
    unsafe fn close_apart(
        pointer: *mut fid,
        domain: impl FnOnce(&T) -> &Arc<Domain>,
        end: impl FnOnce(&T) -> Result<()>,
    ) -> Result<()> {
        // SAFETY:
        // - contract of this call.
        let Some(object) = (unsafe { Self::to_close(pointer) })? else {
            return Ok(());
        };
        let domain = domain(&object.inner).clone();
        // SAFETY:
        // - contract of this call.
        domain
            .watcher()
            .apart(|| unsafe { Self::close(pointer, end) })
    }

    /// Drops and frees the object.
    ///
    /// # Safety
    /// As for `at`, but not null. No other code uses the object.
    unsafe fn destroy<Any>(pointer: *mut Any) {
        // SAFETY:
        // - contract of this call: a result of `create`, which made a box.
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
    // - contract of this call: not null, so valid for a write.
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

/// An array of C. Errors: [`Errno::INVAL`] for null with elements, or for more than `most` elements.
///
/// # Safety
/// `first` is null or has `count` elements, which do not change during the lifetime of the slice.
#[inline(always)]
unsafe fn list<'a, T>(first: *const T, count: usize, most: usize) -> Result<&'a [T]> {
    if count > most || count > 0 && first.is_null() {
        return Err(Errno::INVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY:
    // - contract of this call: not null, so `count` elements.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Deadline of a timeout in milliseconds. A negative timeout never expires, as in poll(2).
fn deadline(timeout: c_int) -> Deadline {
    match u64::try_from(timeout) {
        Ok(millis) => Deadline::after(Duration::from_millis(millis)),
        Err(_) => Deadline::Never,
    }
}

/// Checks that `object` is the only reference. Errors: [`Errno::BUSY`].
fn check_free<T>(object: &Arc<T>) -> Result<()> {
    match Arc::strong_count(object) {
        1 => Ok(()),
        _ => Err(Errno::BUSY),
    }
}

/// fi_control(3) of an object for which programs wait.
///
/// # Safety
/// The argument fits the command.
unsafe fn control_waits(
    (command, arg): (c_int, *mut c_void),
    descriptor: Option<RawFd>,
    wait: c_int,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: both commands have a place for an int.
    unsafe {
        match command {
            FI_GETWAIT => put(arg.cast::<c_int>(), descriptor.ok_or(Errno::NODATA)?),
            FI_GETWAITOBJ => put(arg.cast::<c_int>(), wait),
            _ => Err(Errno::NOSYS),
        }
    }
}
