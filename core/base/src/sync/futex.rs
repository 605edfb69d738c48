//! Sleeping on a word that processes may share.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

/// Wakes all threads that sleep on `word`.
#[inline]
pub fn wake_all(word: &AtomicU32) {
    // An error can only mean that no thread sleeps there.
    let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
}

/// Sleeps while `word` is `seen`, for at most `limit`. Returns early at a signal. False: the limit has passed.
pub fn wait(word: &AtomicU32, seen: u32, limit: Duration) -> bool {
    let limit = futex::Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos() as _,
    };
    futex::wait(word, futex::Flags::empty(), seen, Some(&limit)) != Err(Errno::TIMEDOUT)
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
