//! Signals that end a command, held back so that the command can first report its results.
//!
//! The command never accepts such a signal: it stays pending, and each thread can query it at any time. Ctrl-C also reaches the
//! processes of jobs. If one of them ends by it, the command finds the signal pending here and reports no failure.

use std::ptr::null_mut;

/// Ctrl-C, `kill`, and a terminal that is gone.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Proof that these signals are blocked.
#[derive(Debug)]
pub struct Stop(());

impl Stop {
    /// Blocks the signals. Call it while the process has one thread: new threads inherit the mask. Ignored signals (nohup) stay ignored.
    pub fn hold() -> Stop {
        let mut set = empty();
        for signal in SIGNALS.into_iter().filter(|signal| !is_ignored(*signal)) {
            // SAFETY:
            // - `set` is an initialised set.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        change(libc::SIG_BLOCK, &set);
        Stop(())
    }

    /// Whether a signal has arrived.
    pub fn is_asked(&self) -> bool {
        Stop::is_pending()
    }

    /// [`is_asked`](Stop::is_asked) without a `Stop`. False unless the signals are blocked.
    pub fn is_pending() -> bool {
        let mut pending = empty();
        // SAFETY:
        // - `pending` is an initialised set, and the call fills it.
        unsafe { libc::sigpending(&mut pending) };
        // SAFETY:
        // - as above.
        let is_in = |signal| unsafe { libc::sigismember(&pending, signal) == 1 };
        SIGNALS.into_iter().any(is_in)
    }

    /// Ends this process by the pending signal.
    pub fn obey(self) {
        Stop::let_through();
    }

    /// Unblocks the signals in a process that inherits the mask. Async-signal-safe: allowed between fork and exec.
    pub fn let_through() {
        let mut set = empty();
        for signal in SIGNALS {
            // SAFETY:
            // - `set` is an initialised set.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        change(libc::SIG_UNBLOCK, &set);
    }
}

fn empty() -> libc::sigset_t {
    // SAFETY:
    // - zero bytes are a valid value of the type, and sigemptyset initialises the set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

fn change(how: i32, set: &libc::sigset_t) {
    // SAFETY:
    // - `set` is initialised; a null pointer requests no old mask.
    unsafe { libc::pthread_sigmask(how, set, null_mut()) };
}

/// An ignored signal must not be blocked: blocked, it would become pending.
fn is_ignored(signal: i32) -> bool {
    // SAFETY:
    // - a null new action changes nothing; zero bytes are a valid structure, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
