//! The id of this process without a system call each time; ids of others, as shared memory has them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rustix::process::Pid;

/// The process that a number names which somebody else has written. `None`: it names none. The kernel takes a negative one for a group, or for all processes
/// of the user.
pub fn named(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Whether there is no such process any more, nor anybody who has to wait for it.
pub fn has_ended(id: u32) -> bool {
    named(id).is_none_or(|process| {
        rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
    })
}

/// 0 if not known yet in this process.
static ID: AtomicU32 = AtomicU32::new(0);

/// As [`std::process::id`], also in the child of a fork.
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
    // Not a `Once`, which a fork in another thread would leave locked; to register twice does no harm.
    if !REGISTERED.load(Relaxed) {
        // SAFETY:
        // - the handler only stores to an atomic, which is allowed in the child of a process with threads.
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
