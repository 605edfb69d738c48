//! Sleeping on a word that processes may share.
//!
//! Direct system calls: the wrapper of `rustix` passes a pointer to an atomic, which Miri rejects.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Wakes all threads that sleep on `word`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: contract of futex(2): FUTEX_WAKE reads no memory, and `word` is aligned to 4 bytes. The result is the number of woken threads.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps while `word` is `seen`, for at most `limit`. Returns early at a signal. False: the limit has passed.
pub fn wait(word: &AtomicU32, seen: u32, limit: Duration) -> bool {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos() as libc::c_long,
    };
    // SAFETY: contract of futex(2): `word` and `limit` are valid for the call. The kernel reads both and writes neither.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            &raw const limit,
        )
    };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_sleep_ends_at_its_limit_and_at_once_for_another_value() {
        let word = AtomicU32::new(1);
        assert!(!wait(&word, 1, Duration::from_millis(1)));
        assert!(wait(&word, 2, Duration::from_secs(3600)));
    }

    #[test]
    fn a_wake_ends_a_sleep() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, Duration::from_secs(3600));
                }
            });
            word.store(1, Ordering::Release);
            wake_all(&word);
        });
    }
}
