//! Errors of the safe interface, instead of return codes.

use crate::status::Status;

/// The reason of a failure.
///
/// A full queue is no failure: a request waits for room ([`QueueScope`](super::QueueScope)). A tagged request does not wait, and returns
/// [`QueueFull`](Status::QueueFull). A timeout of a [`Pending`](super::Pending) is no failure: [`poll`](super::Pending::poll) returns `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// Timeout (`GASPI_TIMEOUT`, §3.9). No data is lost: the same call may be repeated.
    Timeout,
    /// Failure (`GASPI_ERROR`, §3.11). Usually a process has died: [`Gaspi::states`](super::Gaspi::states) shows it.
    Failed,
    /// An invalid argument or an exhausted resource. The call has had no effect, except for [`Gaspi::receive`](super::Gaspi::receive).
    Refused(Status),
}

/// The result of a call of the safe interface.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The return code of the C interface for this error.
    pub fn status(self) -> Status {
        match self {
            Error::Timeout => Status::Timeout,
            Error::Failed => Status::Error,
            Error::Refused(status) => status,
        }
    }

    /// Whether this is [`Error::Timeout`].
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
