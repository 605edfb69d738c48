//! Threads of ours in the process of a program.

use std::thread::JoinHandle;

use crate::panics::keep_going;
use crate::{Error, Result};

/// They call nothing of the program's.
const STACK: usize = 512 << 10;

/// Starts a thread that runs `body` until it returns, also after a panic, and gets no signals: those are for the program's own threads.
/// Errors: [`Error::Os`].
pub fn start(name: &str, body: impl FnMut() + Send + 'static) -> Result<JoinHandle<()>> {
    #[cfg(not(miri))] // which has no signals
    let _blocked = SignalsBlocked::new();
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK)
        .spawn(|| keep_going(body))
        .map_err(|error| Error::os("starting a thread", error))
}

/// Blocks all signals of the calling thread while it lives: a thread started meanwhile inherits that.
#[cfg(not(miri))]
struct SignalsBlocked(libc::sigset_t);

#[cfg(not(miri))]
impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY:
        // - both sets are plain data that the calls fill; the mask of the calling thread is restored on drop.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            SignalsBlocked(old)
        }
    }
}

#[cfg(not(miri))]
impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY:
        // - the mask that `new` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    fn is_blocked(signal: libc::c_int) -> bool {
        // SAFETY:
        // - plain data that the call fills; a query.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
            libc::sigismember(&mask, signal) == 1
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are no signals")]
    fn signals_stay_with_the_program() {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = super::start("own", move || {
            let _ = tell.send(is_blocked(libc::SIGUSR1));
        });
        assert!(told.recv().unwrap());
        thread.unwrap().join().unwrap();
        assert!(!is_blocked(libc::SIGUSR1));
    }
}
