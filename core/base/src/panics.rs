//! Recovery from a panic, which is a defect of the library: only the call in which it occurs fails.
//!
//! Locks are `parking_lot`'s: a panic releases them, and the next holder finds the state as it was. This is sound because no code
//! relies on a guarded update being finished: unsafe code checks the values that it takes, unless they were complete before their
//! insertion. A panic may leak memory, a slot or a name. Destructors do not panic: they only do infallible work, or ignore errors.
//! C entry points catch a panic and return their interface's error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bell::SLICE;

/// Runs the body of a service thread until it returns. After a panic it restarts `body` after a pause, so repeated panics do not
/// keep a core busy.
pub(crate) fn keep_going(mut body: impl FnMut()) {
    while catch_unwind(AssertUnwindSafe(&mut body)).is_err() {
        std::thread::sleep(SLICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_on_after_a_panic() {
        let mut rounds = 0;
        keep_going(|| {
            rounds += 1;
            assert!(rounds >= 3, "round {rounds}");
        });
        assert_eq!(rounds, 3);
    }
}
