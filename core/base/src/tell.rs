//! Messages for users on standard error, and output on standard output.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{Error, Result};

/// Writes a line `unipgas: <text>` on standard error, in a single write since other processes write there, too. Write errors are
/// ignored.
#[cold]
pub fn tell(text: &str) {
    tell_lines(&format!("unipgas: {text}\n"));
}

/// Whether the ranks' output on standard error ends in an unfinished line.
static UNFINISHED: AtomicBool = AtomicBool::new(false);

/// Makes the next message begin on a new line.
pub fn leave_unfinished() {
    UNFINISHED.store(true, Ordering::Relaxed);
}

/// Writes whole lines on standard error, unchanged, in a single write. Write errors are ignored.
#[cold]
pub fn tell_lines(text: &str) {
    let before = match UNFINISHED.swap(false, Ordering::Relaxed) {
        true => "\n",
        false => "",
    };
    let _ = std::io::stderr().write_all(format!("{before}{text}").as_bytes());
}

/// [`tell`]s the text of an [`Error::Os`] or [`Error::Unreachable`], which most interfaces' error codes cannot carry. Does not repeat
/// the previous text.
#[cold]
pub fn tell_refusal(error: &Error) {
    static LAST: Mutex<String> = Mutex::new(String::new());
    if let Error::Os(why) | Error::Unreachable(why) = error {
        let mut last = LAST.lock();
        if *last != *why {
            last.clone_from(why);
            tell(why);
        }
    }
}

/// Writes and flushes `text` on standard output.
///
/// # Errors
/// [`Error::Os`] if the write fails, for example on a full device.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::os("cannot write to standard output", e))
}
