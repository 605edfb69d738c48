//! The library's work at process exit.
//!
//! A signal handler may call `exit` while its thread is inside a library call and holds locks for ever. Then another thread does the
//! work, and the exit waits for it for a limited time. If the work does not finish, peers treat the process as dead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::own_thread;

/// Time limit for the work if the exit has interrupted a library call.
const MOMENT: Duration = Duration::from_secs(1);

/// Runs `work` for an `atexit` handler. A panic ends the work only.
pub fn run(work: impl FnOnce() + Send + 'static) {
    if !is_in_signal_handler() {
        let _ = catch_unwind(AssertUnwindSafe(work));
        return;
    }
    let (done, end) = channel::<()>();
    let mut work = Some((work, done));
    let beside = own_thread::start("unipgas-exit", move || {
        if let Some((work, _done)) = work.take() {
            work();
        }
    });
    if beside.is_ok() {
        // The other thread drops the sender after the work.
        let _ = end.recv_timeout(MOMENT);
    }
}

/// Whether this thread runs a signal handler, according to unwind tables.
#[cfg(not(any(miri, loom)))]
pub fn is_in_signal_handler() -> bool {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn _Unwind_Backtrace(
            visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIPInfo(context: *mut c_void, interrupted: *mut c_int) -> usize;
    }

    /// Stops at a frame that a signal has interrupted.
    unsafe extern "C" fn visit(context: *mut c_void, found: *mut c_void) -> c_int {
        let mut interrupted = 0;
        // SAFETY:
        // - the unwinder provides the context; `found` points to the caller's number below.
        unsafe {
            _Unwind_GetIPInfo(context, &mut interrupted);
            found.cast::<c_int>().write(interrupted);
        }
        interrupted
    }

    let mut found: c_int = 0;
    // SAFETY:
    // - the callback above does not unwind, and its argument is the number that it writes.
    unsafe { _Unwind_Backtrace(visit, (&raw mut found).cast()) };
    found != 0
}

/// Miri and loom have no signals.
#[cfg(any(miri, loom))]
pub fn is_in_signal_handler() -> bool {
    false
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use parking_lot::Mutex;

    use super::*;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: libc::c_int) {
        SEEN.store(1 + u32::from(is_in_signal_handler()), Ordering::Release);
    }

    #[test]
    fn a_handler_of_a_signal_is_known() {
        assert!(!is_in_signal_handler());
        // SAFETY:
        // - the handler stores a word, and no other test uses the signal.
        unsafe {
            let handler = handler as extern "C" fn(libc::c_int);
            libc::signal(libc::SIGUSR2, handler as libc::sighandler_t);
            libc::raise(libc::SIGUSR2);
        }
        assert_eq!(SEEN.load(Ordering::Acquire), 2);
        assert!(!is_in_signal_handler());
    }

    static HELD: Mutex<()> = Mutex::new(());
    static DONE: AtomicU32 = AtomicU32::new(0);

    extern "C" fn exits(_: libc::c_int) {
        run(|| drop(HELD.lock()));
        run(|| DONE.store(1, Ordering::Release));
        run(|| panic!("in work of a test"));
    }

    #[test]
    fn work_behind_a_lock_of_the_interrupted_thread_is_left() {
        let before = Instant::now();
        let _held = HELD.lock();
        // SAFETY:
        // - as above; the handler takes only one lock of this thread, the one above.
        unsafe {
            let handler = exits as extern "C" fn(libc::c_int);
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::raise(libc::SIGUSR1);
        }
        assert!(before.elapsed() >= MOMENT);
        assert_eq!(DONE.load(Ordering::Acquire), 1);
    }
}
