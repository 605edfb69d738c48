//! The cached id of this process, and checks of process ids from shared memory.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::descriptor;

/// The process with an `id` that another process has written. `None`: the number cannot be a process id. The kernel takes a negative
/// id for a group, or for all processes of the user.
pub fn named(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Whether the process is gone, and no longer a zombie either. True for a number that cannot be a process id.
pub fn has_ended(id: u32) -> bool {
    named(id).is_none_or(|process| {
        rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
    })
}

/// Whether all threads of process `id` have ended. The process may be a zombie.
pub fn has_no_threads(id: u32) -> bool {
    let Some(process) = named(id) else {
        return true;
    };
    match descriptor::process(process) {
        // A pidfd polls readable from then on.
        Ok(life) => {
            let mut fds = [PollFd::new(&life, PollFlags::IN)];
            matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
        }
        Err(rustix::io::Errno::SRCH) => true,
        Err(_) => rustix::process::test_kill_process(process).is_err(),
    }
}

/// 0 before the first look-up in this process.
static ID: AtomicU32 = AtomicU32::new(0);

/// As [`std::process::id`], without a system call each time. Correct in the child of a fork, too.
#[inline]
pub fn id() -> u32 {
    match ID.load(Relaxed) {
        0 => look_up(),
        id => id,
    }
}

extern "C" fn forget() {
    ID.store(0, Relaxed);
}

#[cold]
fn look_up() -> u32 {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // Not a `Once`: a fork in another thread could leave it locked in the child. A second registration does no harm.
    if !REGISTERED.load(Relaxed) {
        // SAFETY:
        // - the handler only stores to an atomic, which is allowed in the child of a multithreaded process.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(forget)) };
        assert_eq!(failed, 0, "no memory for a fork handler");
        REGISTERED.store(true, Relaxed);
    }
    let id = std::process::id();
    ID.store(id, Relaxed);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn no_number_names_a_group_or_everybody() {
        for nobody in [0, u32::MAX, u32::MAX - 1, 1 << 31] {
            assert_eq!(named(nobody), None, "{nobody}");
            assert!(has_ended(nobody), "{nobody}");
        }
        assert!(!has_ended(std::process::id()));
    }
}
