//! Rules of the machine. Breaking them is undefined behavior there, and ends the program here.

use std::fmt::Display;

/// Prints one line with the call and the rule, and aborts.
#[cold]
pub fn broken(call: &str, rule: impl Display) -> ! {
    eprintln!("tofu_double: {call}: {rule}");
    std::process::abort();
}
