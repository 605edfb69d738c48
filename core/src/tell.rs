//! Text for people.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{Error, Result};

/// Writes `unipgas: `, the text and the end of the line in one piece, as other processes write there, too. Where nobody can be told,
/// nobody is: this never fails.
#[cold]
pub fn tell(text: &str) {
    tell_lines(&format!("unipgas: {text}\n"));
}

/// What ranks have written on standard error ends within a line.
static UNFINISHED: AtomicBool = AtomicBool::new(false);

/// What is told next begins a line of its own.
pub fn leave_unfinished() {
    UNFINISHED.store(true, Ordering::Relaxed);
}

/// Writes whole lines on standard error as they are, in one piece. As [`tell`], it never fails.
#[cold]
pub fn tell_lines(text: &str) {
    let before = match UNFINISHED.swap(false, Ordering::Relaxed) {
        true => "\n",
        false => "",
    };
    let _ = std::io::stderr().write_all(format!("{before}{text}").as_bytes());
}

/// [`tell`]s what the system has refused ([`Error::Os`], [`Error::Unreachable`]), which the codes of most interfaces cannot say;
/// unless it was the last thing told so.
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

/// Writes `text` on standard output, all of it before this returns.
///
/// # Errors
/// [`Error::Os`] where it cannot be written, such as on a device that is full.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::os("cannot write to standard output", e))
}
