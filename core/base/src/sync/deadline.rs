//! The end of a wait.

use std::time::{Duration, Instant};

/// The time at which a wait gives up. Each wait in the engine takes a deadline.
///
/// GASPI 17.1 §3.9: `GASPI_TEST` is [`Deadline::Now`], `GASPI_BLOCK` is [`Deadline::Never`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Check once, make progress without a wait, return.
    Now,
    /// Give up at this instant.
    At(Instant),
    /// Wait until the event. Errors still end the wait, for example if the awaited peers have died.
    Never,
}

impl Deadline {
    /// Gives up after `span` from now. A span that the clock cannot represent is [`Deadline::Never`].
    pub fn after(span: Duration) -> Self {
        if span.is_zero() {
            return Deadline::Now;
        }
        Instant::now()
            .checked_add(span)
            .map_or(Deadline::Never, Deadline::At)
    }

    /// At the earliest `span` from now.
    pub fn not_before(self, span: Duration) -> Self {
        let least = Deadline::after(span);
        match (self, least) {
            (Deadline::Never, _) | (_, Deadline::Never) => Deadline::Never,
            (Deadline::At(end), Deadline::At(least)) => Deadline::At(end.max(least)),
            (Deadline::Now, least) => least,
            (end, Deadline::Now) => end,
        }
    }

    /// At the latest `span` from now.
    pub fn not_after(self, span: Duration) -> Self {
        match (self, Deadline::after(span)) {
            (Deadline::Now, _) | (_, Deadline::Now) => Deadline::Now,
            (Deadline::Never, most) => most,
            (end, Deadline::Never) => end,
            (Deadline::At(end), Deadline::At(most)) => Deadline::At(end.min(most)),
        }
    }

    /// Whether the deadline has passed.
    pub fn expired(&self) -> bool {
        match self {
            Deadline::Now => true,
            Deadline::At(end) => Instant::now() >= *end,
            Deadline::Never => false,
        }
    }

    /// The remaining time. `None`: no limit.
    pub fn remaining(&self) -> Option<Duration> {
        match self {
            Deadline::Now => Some(Duration::ZERO),
            Deadline::At(end) => Some(end.saturating_duration_since(Instant::now())),
            Deadline::Never => None,
        }
    }
}
