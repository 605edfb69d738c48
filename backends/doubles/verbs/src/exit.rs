//! The end of a process. A real device still sends its answers then; here the exit waits for the NIC's thread.

use std::time::Duration;

use crate::{counters, faults};

/// Limit of the wait: the thread that ends the process may block the NIC.
const PATIENCE: Duration = Duration::from_millis(100);

extern "C" fn at_exit() {
    counters::tell();
    for nic in faults::open_nics() {
        if !nic.is_parents() {
            nic.flush(PATIENCE);
        }
    }
}

/// Installs the exit handler, once.
pub fn watch() {
    static WATCHED: parking_lot::Once = parking_lot::Once::new();
    WATCHED.call_once(|| {
        // SAFETY:
        // - the function stays loaded: the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    });
}
