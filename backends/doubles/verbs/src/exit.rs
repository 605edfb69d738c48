//! The end of a process. A device still sends what it has answered; here the NIC's thread has to get the time for that.

use std::time::Duration;

use crate::{counters, faults};

/// A thread that ends the process may hold up its NIC.
const PATIENCE: Duration = Duration::from_millis(100);

extern "C" fn at_exit() {
    counters::tell();
    for nic in faults::open_nics() {
        if !nic.is_parents() {
            nic.flush(PATIENCE);
        }
    }
}

/// From the first use on, the end is noticed.
pub fn watch() {
    static WATCHED: parking_lot::Once = parking_lot::Once::new();
    WATCHED.call_once(|| {
        // SAFETY:
        // - the function stays loaded, as the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    });
}
