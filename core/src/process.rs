//! The id of this process without a system call each time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

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
