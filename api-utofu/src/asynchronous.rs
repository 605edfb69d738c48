//! Asynchronous errors (guide, chapter 7): no call can return them, so they end the program.

use std::fmt::Arguments;
use std::io::Write;

use crate::process::current;

/// Writes one line to standard error. Write errors are ignored.
#[cold]
pub(crate) fn tell(what: Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("utofu: {what}\n").as_bytes());
}

/// Reports an error and its place, such as `MRQ Overflow on TNI 0 CQ 0`, and ends the program.
#[cold]
pub(crate) fn asynchronous_error(what: Arguments<'_>) -> ! {
    tell(format_args!("asynchronous error: {what}"));
    if let Ok(process) = current() {
        process.network().leave();
    }
    // SAFETY:
    // - it ends the program at once and runs no exit handler. Other threads may be at any point.
    unsafe { libc::_exit(1) }
}
