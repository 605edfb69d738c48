//! The end of a wait.

use std::time::{Duration, Instant};

/// When a wait gives up. Every wait in the engine takes one.
///
/// GASPI 17.1 §3.9: `GASPI_TEST` is [`Deadline::Now`], `GASPI_BLOCK` is [`Deadline::Never`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Look once, do what can be done at once, return.
    Now,
    /// Give up at this instant.
    At(Instant),
    /// Wait until it happens, or until nobody is left who could make it happen.
    Never,
}

impl Deadline {
    /// Gives up after `span` from now; a span that the clock cannot hold is [`Deadline::Never`].
    pub fn after(span: Duration) -> Self {
        if span.is_zero() {
            return Deadline::Now;
        }
        Instant::now()
            .checked_add(span)
            .map_or(Deadline::Never, Deadline::At)
    }

    /// Not before `span` from now.
    pub fn not_before(self, span: Duration) -> Self {
        let least = Deadline::after(span);
        match (self, least) {
            (Deadline::Never, _) | (_, Deadline::Never) => Deadline::Never,
            (Deadline::At(end), Deadline::At(least)) => Deadline::At(end.max(least)),
            (Deadline::Now, least) => least,
            (end, Deadline::Now) => end,
        }
    }

    /// Not after `span` from now.
    pub fn not_after(self, span: Duration) -> Self {
        match (self, Deadline::after(span)) {
            (Deadline::Now, _) | (_, Deadline::Now) => Deadline::Now,
            (Deadline::Never, most) => most,
            (end, Deadline::Never) => end,
            (Deadline::At(end), Deadline::At(most)) => Deadline::At(end.min(most)),
        }
    }

    /// Looks once.
    pub fn now() -> Self {
        Deadline::Now
    }

    /// Never gives up.
    pub fn never() -> Self {
        Deadline::Never
    }

    /// Whether the wait is over.
    pub fn expired(&self) -> bool {
        match self {
            Deadline::Now => true,
            Deadline::At(end) => Instant::now() >= *end,
            Deadline::Never => false,
        }
    }

    /// What is left, `None` for ever.
    pub fn remaining(&self) -> Option<Duration> {
        match self {
            Deadline::Now => Some(Duration::ZERO),
            Deadline::At(end) => Some(end.saturating_duration_since(Instant::now())),
            Deadline::Never => None,
        }
    }
}
