//! What the safe interface returns instead of return codes.

use crate::status::Status;

/// Why an operation has not been done.
///
/// A full queue is none of the reasons: whoever posts waits for room ([`Scope`](super::Scope)). Nor is a time-out, where an operation can go on: there
/// [`Pending::poll`](super::Pending::poll) gives `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The time is over (`GASPI_TIMEOUT`, §3.9). Nothing has been lost: the same call may be made again.
    Timeout,
    /// It has failed (`GASPI_ERROR`, §3.11): most often a process has died, as [`Gaspi::states`](super::Gaspi::states) tells.
    Failed,
    /// An argument, or something that the process does not have enough of. Nothing has been done.
    Refused(Status),
}

/// What the calls of the safe interface give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The return code that C programs get for it.
    pub fn status(self) -> Status {
        match self {
            Error::Timeout => Status::Timeout,
            Error::Failed => Status::Error,
            Error::Refused(status) => status,
        }
    }

    /// Whether it is [`Error::Timeout`].
    pub fn is_timeout(self) -> bool {
        self == Error::Timeout
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        match status {
            Status::Timeout => Error::Timeout,
            Status::Error => Error::Failed,
            status => Error::Refused(status),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Timeout => f.write_str("the time is over"),
            Error::Failed => f.write_str("the operation has failed: a process may have died"),
            Error::Refused(status) => status.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back() {
        for status in [
            Status::Timeout,
            Status::Error,
            Status::QueueFull,
            Status::ErrInvRank,
        ] {
            assert_eq!(Error::from(status).status(), status);
        }
        assert!(Error::from(Status::Timeout).is_timeout());
        assert_ne!(Error::from(Status::QueueFull), Error::Timeout);
    }
}
