//! Threads of the library in the process of a program.

use std::thread::JoinHandle;

use crate::panics::keep_going;
use crate::{Error, Result};

/// These threads call no code of the program.
const STACK: usize = 512 << 10;

/// Starts a thread that runs `body` until it returns. After a panic `body` runs again. The thread gets no signals: they are for the program's threads. It
/// does little at a time, and other threads wait for that. Errors: [`Error::Os`].
pub fn start(name: &str, body: impl FnMut() + Send + 'static) -> Result<JoinHandle<()>> {
    #[cfg(not(miri))] // which has no signals
    let _blocked = SignalsBlocked::new();
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK)
        .spawn(|| {
            #[cfg(not(miri))]
            runs_soon();
            keep_going(body)
        })
        .map_err(|error| Error::os("starting a thread", error))
}

/// The shortest slice that Linux takes, in nanoseconds (`sched_setattr`(2)).
#[cfg(not(miri))]
const SLICE: u64 = 100_000;

/// Makes the scheduler run the calling thread soon after it is due. A computing thread on the same processor then does not use up its slice of milliseconds.
/// The calling thread gets no more time in total. Linux before 6.12 changes nothing.
#[cfg(not(miri))] // which has no scheduler
fn runs_soon() {
    let (this_thread, size) = (0, size_of::<libc::sched_attr>() as u32);
    // SAFETY:
    // - plain data, for which all zeros are valid. The calls read and write at most `size` bytes of it.
    // - the setting concerns the calling thread only.
    unsafe {
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        let (get, set) = (libc::SYS_sched_getattr, libc::SYS_sched_setattr);
        let got = libc::syscall(get, this_thread, &raw mut attributes, size, 0);
        // Real-time policies have no slices.
        let policies = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(|policy| policy as u32);
        if got == 0 && policies.contains(&attributes.sched_policy) {
            attributes.sched_runtime = SLICE;
            libc::syscall(set, this_thread, &raw const attributes, 0);
        }
    }
}

/// Blocks all signals of the calling thread while it lives. A thread that starts meanwhile inherits the mask.
#[cfg(not(miri))]
struct SignalsBlocked(libc::sigset_t);

#[cfg(not(miri))]
impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY:
        // - both sets are plain data that the calls fill. The drop restores the mask of the calling thread.
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

    /// Policy, niceness and slice of the calling thread.
    fn scheduling() -> (u32, i32, u64) {
        // SAFETY:
        // - plain data that the call fills.
        unsafe {
            let mut attributes: libc::sched_attr = std::mem::zeroed();
            let size = size_of_val(&attributes);
            let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
            assert_eq!(got, 0);
            (
                attributes.sched_policy,
                attributes.sched_nice,
                attributes.sched_runtime,
            )
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no scheduler")]
    fn it_runs_soon_and_no_more_than_others() {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = super::start("own", move || {
            let _ = tell.send(scheduling());
        });
        let (policy, nice, slice) = told.recv().unwrap();
        thread.unwrap().join().unwrap();
        let others = scheduling();
        assert_eq!((policy, nice), (others.0, others.1));
        #[cfg(not(miri))]
        // Older kernels, and gVisor, have no slices.
        assert!([super::SLICE, others.2].contains(&slice), "{slice}");
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
