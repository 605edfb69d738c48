//! Signals that ask a command to end, and that let it first tell what it has found out.
//!
//! Such a signal is never taken: it stays pending, where every thread sees it at any time. Ctrl-C reaches the processes of jobs as well; whoever
//! finds that one has ended by it finds it pending here, and takes nothing for failed.

use std::ptr::null_mut;

/// Ctrl-C, `kill`, and a terminal that is gone.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// While there is one, these signals wait.
#[derive(Debug)]
pub struct Stop(());

impl Stop {
    /// To be called while the process has one thread: others inherit what it blocks. What this process was told to ignore (nohup) stays ignored.
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

    /// Whether one has come.
    pub fn is_asked(&self) -> bool {
        Stop::is_pending()
    }

    /// The same for who does not hold them. False where nobody does.
    pub fn is_pending() -> bool {
        let mut pending = empty();
        // SAFETY:
        // - `pending` is an initialised set, which the call fills.
        unsafe { libc::sigpending(&mut pending) };
        // SAFETY:
        // - as above.
        let is_in = |signal| unsafe { libc::sigismember(&pending, signal) == 1 };
        SIGNALS.into_iter().any(is_in)
    }

    /// Ends this process by what has come.
    pub fn obey(self) {
        Stop::let_through();
    }

    /// In a process that has inherited what another one holds. May be called between fork and exec.
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
    // - a set of zero bytes is a valid value of the type, and sigemptyset initialises it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

fn change(how: i32, set: &libc::sigset_t) {
    // SAFETY:
    // - `set` is initialised, and the old one is not asked for.
    unsafe { libc::pthread_sigmask(how, set, null_mut()) };
}

/// Blocked, it would be pending all the same.
fn is_ignored(signal: i32) -> bool {
    // SAFETY:
    // - a null new action changes nothing; zero bytes are a valid value of the structure, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
