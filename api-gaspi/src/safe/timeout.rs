//! How long a call waits for other processes.

use std::time::{Duration, Instant};

/// How long a call waits for other processes (§3.9, §4.2.1). Where a call takes one, a [`Duration`] does as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// As long as it takes (`GASPI_BLOCK`). A process that has died ends the wait, too.
    Block,
    /// Not at all (`GASPI_TEST`): the call does what it can.
    Test,
    /// At most so long. It is rounded up to whole milliseconds.
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
    /// As the procedures have it.
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

    /// What is left of it, from now on, at any later time.
    pub(super) fn running(self) -> impl Fn() -> u64 {
        let end = match self {
            // One that no clock reaches is none.
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
