//! Timeouts of calls.

use std::time::{Duration, Instant};

/// Most time that a call waits for other processes (§3.9, §4.2.1). Calls also accept a [`Duration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// No limit (`GASPI_BLOCK`). The death of a process also ends the wait.
    Block,
    /// No wait (`GASPI_TEST`).
    Test,
    /// A time, rounded up to milliseconds.
    After(Duration),
}

impl From<Duration> for Timeout {
    fn from(duration: Duration) -> Self {
        match duration.is_zero() {
            true => Timeout::Test,
            false => Timeout::After(duration),
        }
    }
}

impl Timeout {
    /// The timeout of the C interface.
    pub(super) fn millis(self) -> u64 {
        match self {
            Timeout::Block => u64::MAX,
            Timeout::Test => 0,
            Timeout::After(duration) => {
                let millis = duration.as_nanos().div_ceil(1_000_000);
                u64::try_from(millis).unwrap_or(u64::MAX).min(u64::MAX - 1)
            }
        }
    }

    /// A function that returns the remaining milliseconds. The time starts now.
    pub(super) fn running(self) -> impl Fn() -> u64 {
        let end = match self {
            // A time beyond the range of the clock has no end.
            Timeout::After(duration) => Instant::now().checked_add(duration),
            _ => None,
        };
        move || match end {
            Some(end) => Timeout::from(end.saturating_duration_since(Instant::now())).millis(),
            None => self.millis(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up() {
        let millis = |duration: Duration| Timeout::from(duration).millis();
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_micros(1001)), 2);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::MAX), u64::MAX - 1);
        assert_eq!(Timeout::Block.millis(), u64::MAX);
        assert_eq!(Timeout::Test.millis(), 0);
    }

    #[test]
    fn what_is_left_of_a_short_time_is_nothing() {
        let left = Timeout::After(Duration::from_nanos(1)).running();
        while left() > 0 {}
        assert_eq!(Timeout::Block.running()(), u64::MAX);
        assert_eq!(Timeout::After(Duration::MAX).running()(), u64::MAX - 1);
    }
}
