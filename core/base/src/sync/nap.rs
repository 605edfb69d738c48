//! Naps of a thread that polls memory. For programs with more processes than cores that poll without a call.
//!
//! The kernel takes the core from such a thread only at the end of its time slice, some milliseconds later. With `UNIPGAS_NAP=N`, a timer interrupts the
//! thread that initialises the library each N microseconds. Its signal handler sleeps as briefly as the kernel can.

use std::mem::{MaybeUninit, zeroed};

use crate::{Error, Result, variables};

const NAME: &str = "UNIPGAS_NAP";

/// The signal of the timer: the last real-time signal but one.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 1
}

/// Starts the timer for this thread, if `UNIPGAS_NAP` asks for it; once per process.
///
/// # Errors
/// [`Error::InvalidArgument`] if the value is not a number of microseconds below a second, or if the program handles the signal. [`Error::Os`].
pub fn begin() -> Result<()> {
    static ONCE: parking_lot::Once = parking_lot::Once::new();
    let Some(each @ 1..) = variables::number(NAME)? else {
        return Ok(());
    };
    if each >= 1_000_000 {
        let must = "must be a number of microseconds below 1000000";
        return Err(variables::wrong(NAME, &each.to_string(), must));
    }
    let mut begun = Ok(());
    ONCE.call_once(|| begun = start(each as libc::c_long * 1000));
    begun
}

fn start(nanoseconds: libc::c_long) -> Result<()> {
    let failed = |what| Err(Error::os(what, std::io::Error::last_os_error()));
    // SAFETY:
    // - zeroes are values of these C structures, and the calls get valid pointers.
    // - the handler makes async-signal-safe calls only (signal-safety(7)).
    unsafe {
        let mut before: libc::sigaction = zeroed();
        if libc::sigaction(signal(), std::ptr::null(), &raw mut before) != 0 {
            return failed("sigaction");
        }
        if before.sa_sigaction != libc::SIG_DFL {
            let text = format!(
                "{NAME}: the program handles signal {}, which the timer needs",
                signal()
            );
            return Err(Error::InvalidArgument(text));
        }
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = nap as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        if libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) != 0 {
            return failed("sigaction");
        }
        let mut event: libc::sigevent = zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer = MaybeUninit::uninit();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr()) != 0 {
            return failed("timer_create");
        }
        let span = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds,
        };
        let always = libc::itimerspec {
            it_interval: span,
            it_value: span,
        };
        match libc::timer_settime(
            timer.assume_init(),
            0,
            &raw const always,
            std::ptr::null_mut(),
        ) {
            0 => Ok(()),
            _ => failed("timer_settime"),
        }
    }
}

extern "C" fn nap(_: libc::c_int) {
    let shortest = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    // SAFETY:
    // - nanosleep is async-signal-safe and gets a valid pointer. It may change errno, which belongs to this thread and is restored.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::nanosleep(&raw const shortest, std::ptr::null_mut());
        *errno = before;
    }
}
