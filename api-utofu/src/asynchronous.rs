//! Chapter 7 of the guide: errors that no call can answer end the program.

use std::fmt::Arguments;
use std::io::Write;

use crate::process::current;

/// One line on standard error. Where nobody can be told, nobody is.
#[cold]
pub(crate) fn tell(what: Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("utofu: {what}\n").as_bytes());
}

/// Says what happened and where, as in `MRQ Overflow on TNI 0 CQ 0`, and ends the program.
#[cold]
pub(crate) fn asynchronous_error(what: Arguments<'_>) -> ! {
    tell(format_args!("asynchronous error: {what}"));
    if let Ok(process) = current() {
        process.network().leave();
    }
    // SAFETY:
    // - ends the program at once: other threads may be anywhere, so that no exit handler may run.
    unsafe { libc::_exit(1) }
}
