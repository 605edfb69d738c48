//! The library's work at the exit of its process.
//!
//! A handler of a signal may call `exit` while its thread is inside a call, and holds locks of the library for ever. Then another thread does
//! the work, and the exit waits for it a moment only: peers take the process for dead if its leave is not done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::own_thread;

/// For the work beside an interrupted call.
const MOMENT: Duration = Duration::from_secs(1);

/// Does `work`, for a handler of `atexit`. A panic in it ends it.
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
        // The sender goes with the work.
        let _ = end.recv_timeout(MOMENT);
    }
}

/// Whether this thread runs a handler of a signal, as far as unwind tables tell.
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
        // - the context that the unwinder gives, and a place for a number; `found` is that of the caller below.
        unsafe {
            _Unwind_GetIPInfo(context, &mut interrupted);
            found.cast::<c_int>().write(interrupted);
        }
        interrupted
    }

    let mut found: c_int = 0;
    // SAFETY:
    // - the function above, which does not unwind, and the number that it writes to.
    unsafe { _Unwind_Backtrace(visit, (&raw mut found).cast()) };
    found != 0
}

/// Neither has signals.
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
        // - a handler that stores a word, and a signal that nothing else uses here.
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
        // - as above: what the handler does takes no lock of this thread but the one above.
        unsafe {
            let handler = exits as extern "C" fn(libc::c_int);
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::raise(libc::SIGUSR1);
        }
        assert!(before.elapsed() >= MOMENT);
        assert_eq!(DONE.load(Ordering::Acquire), 1);
    }
}
