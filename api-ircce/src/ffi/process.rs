//! Init and finalize, numbers, time, error texts.

use std::ffi::{CStr, c_char, c_int};

use unipgas_core::rendezvous::JobName;

use super::{data, functions, others, put_if_wanted};
use crate::environment::{self, current};
use crate::launch::{LauncherWords, launcher_words};
use crate::status::{ErrorCode, text};

/// Removes the words of RCCE's launcher from the arguments, and returns them.
///
/// # Safety
/// The pointers are null or refer to the arguments of main.
unsafe fn strip(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Option<LauncherWords> {
    // SAFETY:
    // - contract of this call: the pointers are valid, since they are not null.
    let (count, words) = unsafe {
        if argc.is_null() || argv.is_null() || (*argv).is_null() {
            return None;
        }
        (usize::try_from(*argc).unwrap_or(0), *argv)
    };
    let mut args = Vec::with_capacity(count);
    for nth in 1..count {
        // SAFETY:
        // - contract of this call: main has `count` arguments.
        let word = unsafe { *words.add(nth) };
        if word.is_null() {
            break;
        }
        // SAFETY:
        // - contract of this call: an argument of main is a string that ends with zero.
        args.push(unsafe { CStr::from_ptr(word) }.to_str().unwrap_or(""));
    }
    // The words must agree with the job's size. Without a job there is no size to compare.
    let size = JobName::from_env().ok().and_then(|job| job.size());
    let found = launcher_words(&args, size)?;
    // SAFETY:
    // - `launcher_words` counts only words of `args`, so `moved` is within the arguments. The program's name replaces the last skipped word, since C programs
    //   expect it in argv[0].
    unsafe {
        let moved = words.add(found.words);
        *moved = *words;
        *argv = moved;
        *argc -= found.words as c_int;
    }
    Some(found)
}

/// Seconds of a clock that all processes of the host share.
pub(super) fn seconds() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY:
    // - `now` is a local timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

functions! {
    fn [Synch] RCCE_init(argc: *mut c_int, argv: *mut *mut *mut c_char) {
        if current().is_ok() {
            return Ok(());
        }
        // SAFETY:
        // - C contract: the pointers are null or refer to the arguments of main.
        let words = unsafe { strip(argc, argv) };
        let cores = words.as_ref().map_or(&[][..], |words| &words.cores);
        data::publish(environment::init(cores)?, words.as_ref().map(|words| words.clock));
        Ok(())
    }

    fn [Synch] RCCE_finalize() {
        environment::finalize()
    }

    // RCCE_init has started the message engine.
    fn [Synch] iRCCE_init() {
        current().map(|_| ())
    }

    fn [Debug] RCCE_debug_set(flag: c_int) {
        environment::debug(flag, true)?;
        data::publish_debug();
        Ok(())
    }

    fn [Debug] RCCE_debug_unset(flag: c_int) {
        environment::debug(flag, false)?;
        data::publish_debug();
        Ok(())
    }

    fn [Debug] RCCE_error_string(code: c_int, string: *mut c_char, length: *mut c_int) {
        let found = text(code);
        let bytes = found.unwrap_or_default().to_bytes_with_nul();
        // SAFETY:
        // - C contract: `string` is null or has RCCE_MAX_ERROR_STRING bytes; `length` is null or valid. No text is longer.
        unsafe {
            if !string.is_null() {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), string.cast(), bytes.len());
            }
            put_if_wanted(length, bytes.len() as c_int - 1);
        }
        found.map(|_| ()).ok_or(ErrorCode::InvalidErrorCode.into())
    }
}

others! {
    fn RCCE_ue() -> c_int, or 0; {
        Ok(environment::place()?.0 as c_int)
    }

    fn RCCE_num_ues() -> c_int, or 0; {
        Ok(environment::place()?.1 as c_int)
    }

    fn RCCE_wtime() -> f64, or 0.0; {
        Ok(seconds())
    }
}
