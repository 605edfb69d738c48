//! The procedures of GASPI_Threads.h. They have no shifted names.

use std::ffi::c_void;

use super::{given, put};
use crate::status::{Result, Status, code};
use crate::threads;

/// # Safety
/// `place` is null or valid for a write.
unsafe fn tell(place: *mut i32, number: impl FnOnce() -> Result<u32>) -> Result<()> {
    given(place)?;
    let number = i32::try_from(number()?).map_err(|_| Status::Error)?;
    // SAFETY:
    // - same contract as this function.
    unsafe { put(place, number) }
}

macro_rules! numbers {
    ($($name:ident: $number:path;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(place: *mut i32) -> i32 {
            // SAFETY:
            // - null or valid, by the C contract.
            code(|| unsafe { tell(place, $number) })
        }
    )*};
}

numbers! {
    gaspi_threads_get_tid: threads::number;
    gaspi_threads_get_total: threads::total;
    gaspi_threads_get_num_cores: threads::cores;
    gaspi_threads_register: threads::register;
    gaspi_threads_init: on_all_cores;
}

fn on_all_cores() -> Result<u32> {
    let cores = threads::cores()?;
    threads::init(cores).map(|()| cores)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gaspi_threads_init_user(threads: u32) -> i32 {
    code(|| threads::init(threads))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gaspi_threads_term() -> i32 {
    code(|| {
        threads::term();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gaspi_threads_run(
    function: Option<threads::Function>,
    arg: *mut c_void,
) -> i32 {
    code(|| {
        let function = function.ok_or(Status::ErrNullptr)?;
        // SAFETY:
        // - C contract: `function` may be called with `arg`, from any thread.
        unsafe { threads::run(function, arg) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gaspi_threads_sync() {
    // The procedure has no result. `sync` has printed a line about the error.
    code(threads::sync);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gaspi_threads_sync_all(group: u8, timeout: u64) -> i32 {
    code(|| threads::sync_all(group, timeout))
}
