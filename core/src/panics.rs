//! What a panic, which would be a defect of ours, leaves in being: everything but the call that it ended.
//!
//! Locks are `parking_lot`'s: a panic under one releases it, and whoever comes next finds what was there. That is sound because
//! nothing relies on what a lock guards being finished: unsafe code checks what it takes from there, or it was complete before it
//! was entered. What a panic may leave is memory, a slot or a name that nobody uses any more. Destructors do not panic: they do what
//! cannot fail, or pass over what fails. C entry points catch a panic and return their interface's error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bell::SLICE;

/// Runs a thread that others rely on, until `body` returns: a panic in it begins it anew, after a pause, so that a panic which comes
/// again and again does not keep a core busy.
pub fn keep_going(mut body: impl FnMut()) {
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
