//! The library's work at process exit.
//!
//! A signal handler may call `exit` while its thread is inside a library call and holds locks for ever. Then another thread does the
//! work, and the exit waits for it for a limited time. If the work does not finish, peers treat the process as dead. If the signal has interrupted the memory
//! allocator, no code can allocate in this thread any more, and there is no work.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::own_thread;

/// Time limit for the work if the exit has interrupted a library call.
const MOMENT: Duration = Duration::from_secs(1);

/// Runs `work` for an `atexit` handler. A panic ends the work only.
pub fn run(work: impl FnOnce() + Send + 'static) {
    match interrupted(&ALLOCATOR) {
        Interrupted::Nothing => {
            let _ = catch_unwind(AssertUnwindSafe(work));
            return;
        }
        Interrupted::Listed => return,
        Interrupted::Other => {}
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

/// The call that a signal handler of this thread has interrupted.
#[derive(Debug, PartialEq, Eq)]
enum Interrupted {
    /// The thread runs no signal handler.
    Nothing,
    /// A call of a listed function.
    Listed,
    Other,
}

/// Functions that may hold locks of the allocator.
const ALLOCATOR: [*const c_void; 6] = [
    libc::malloc as *const c_void,
    libc::calloc as *const c_void,
    libc::realloc as *const c_void,
    libc::free as *const c_void,
    libc::posix_memalign as *const c_void,
    libc::aligned_alloc as *const c_void,
];

/// Whether this thread runs a signal handler, according to unwind tables.
pub(crate) fn is_in_signal_handler() -> bool {
    interrupted(&[]) != Interrupted::Nothing
}

/// Reads the unwind tables. `functions`: addresses of functions.
#[cfg(not(any(miri, loom)))]
fn interrupted(functions: &[*const c_void]) -> Interrupted {
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIPInfo(context: *mut c_void, interrupted: *mut c_int) -> usize;
        fn _Unwind_GetRegionStart(context: *mut c_void) -> usize;
    }

    struct Seen<'a> {
        functions: &'a [*const c_void],
        what: Interrupted,
    }

    /// Stops at a frame of a listed function below a handler.
    unsafe extern "C" fn visit(context: *mut c_void, seen: *mut c_void) -> c_int {
        let mut interrupted = 0;
        // SAFETY:
        // - the unwinder provides the context; `seen` points to the caller's structure below, which no other code uses meanwhile.
        let (seen, start) = unsafe {
            _Unwind_GetIPInfo(context, &mut interrupted);
            (
                &mut *seen.cast::<Seen<'_>>(),
                _Unwind_GetRegionStart(context),
            )
        };
        if interrupted != 0 {
            seen.what = Interrupted::Other;
        }
        if seen.what == Interrupted::Nothing {
            return 0;
        }
        if seen.functions.iter().any(|one| one.addr() == start) {
            seen.what = Interrupted::Listed;
        }
        c_int::from(seen.what == Interrupted::Listed || seen.functions.is_empty())
    }

    let mut seen = Seen {
        functions,
        what: Interrupted::Nothing,
    };
    // SAFETY:
    // - the callback above does not unwind, and its argument is the structure that it uses.
    unsafe { _Unwind_Backtrace(visit, (&raw mut seen).cast()) };
    seen.what
}

/// Miri and loom have no signals.
#[cfg(any(miri, loom))]
fn interrupted(_functions: &[*const c_void]) -> Interrupted {
    Interrupted::Nothing
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

    extern "C" fn looks(_: libc::c_int) {
        let search = libc::bsearch as *const c_void;
        let here = interrupted(&[search]) == Interrupted::Listed;
        let elsewhere = interrupted(&ALLOCATOR) == Interrupted::Other;
        KNOWN.store(1 + u32::from(here && elsewhere), Ordering::Release);
    }

    static KNOWN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        // SAFETY:
        // - the handler stores a word.
        unsafe { libc::raise(libc::SIGURG) };
        0
    }

    #[test]
    fn an_interrupted_function_is_known() {
        let two = [0u8; 2];
        let key = two.as_ptr().cast();
        let handler = looks as extern "C" fn(libc::c_int);
        // SAFETY:
        // - two elements of a byte; no other test uses the signal.
        unsafe {
            libc::signal(libc::SIGURG, handler as libc::sighandler_t);
            libc::bsearch(key, key, 2, 1, Some(compare));
        }
        assert_eq!(KNOWN.load(Ordering::Acquire), 2);
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
