//! Workers with closed standard descriptors, as some programs have: no descriptor of the library may take their numbers.
//!
//! `UNIPGAS_TEST_CLOSED` is a sum of 1 (input), 2 (output) and 4 (error). With 8 a thread prints to the closed ones all the time.
//! The runtime of Rust opens all three when a program starts, so the worker closes them itself.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::Verdict;

const PRINTING: u8 = 8;

static CLOSED: AtomicU8 = AtomicU8::new(0);
/// A write to a closed descriptor succeeded: it was open for a while.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// The value of the environment variable.
pub(crate) fn wish() -> Result<Option<u8>, String> {
    match std::env::var("UNIPGAS_TEST_CLOSED") {
        Ok(text) => match text.parse() {
            Ok(number @ 0..16) => Ok(Some(number)),
            _ => Err(format!("UNIPGAS_TEST_CLOSED={text}: must be 0 to 15")),
        },
        Err(_) => Ok(None),
    }
}

fn numbers(wish: u8) -> impl Iterator<Item = i32> {
    (0..3).filter(move |number| wish >> number & 1 == 1)
}

pub(crate) fn close(wish: u8) {
    for number in numbers(wish) {
        // SAFETY:
        // - this process does not use them: workers report by their log.
        unsafe { libc::close(number) };
    }
    CLOSED.store(wish, Ordering::Relaxed);
    if wish & PRINTING != 0 {
        std::thread::spawn(move || {
            let text = [b'x'; 64];
            loop {
                for number in numbers(wish) {
                    // SAFETY:
                    // - `text` is readable for its length.
                    let written = unsafe { libc::write(number, text.as_ptr().cast(), text.len()) };
                    if written >= 0 {
                        WRITTEN.store(true, Ordering::Relaxed);
                    }
                }
                std::thread::yield_now();
            }
        });
    }
}

/// Fails if a closed descriptor is open now, or was for a while.
pub(crate) fn check() -> Verdict {
    for number in numbers(CLOSED.load(Ordering::Relaxed)) {
        let taken = std::fs::read_link(format!("/proc/self/fd/{number}"));
        crate::ensure!(
            taken.is_err(),
            "descriptor {number}, which was closed, is now {taken:?}"
        );
    }
    crate::ensure!(
        !WRITTEN.load(Ordering::Relaxed),
        "a closed descriptor was open for a while: what is printed went there"
    );
    Ok(())
}
