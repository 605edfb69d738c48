//! Rules of the machine: what breaks them is undefined there, and ends the program here.

use std::fmt::Display;

/// Tells the call and the rule in one line, and aborts.
#[cold]
pub fn broken(call: &str, rule: impl Display) -> ! {
    eprintln!("tofu_double: {call}: {rule}");
    std::process::abort();
}
