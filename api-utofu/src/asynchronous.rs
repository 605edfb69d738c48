//! Chapter 7 of the guide: errors that no call can answer end the program.

use std::fmt::Arguments;

use crate::process::current;

/// Says what happened and where, as in `MRQ Overflow on TNI 0 CQ 0`, and ends the program.
#[cold]
pub(crate) fn asynchronous_error(what: Arguments<'_>) -> ! {
    eprintln!("utofu: asynchronous error: {what}");
    if let Ok(process) = current() {
        process.network().leave();
    }
    // SAFETY:
    // - ends the program at once: other threads may be anywhere, so that no exit handler may run.
    unsafe { libc::_exit(1) }
}
