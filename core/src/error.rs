//! The one error type of the engine; each interface maps it to its own codes in one table.

/// What can go wrong in the engine. Nothing has been written anywhere when an operation returns one of these,
/// unless the variant says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A range leaves its region: `offset + len > region_len` (bytes).
    #[error("bytes {offset}..{offset}+{len} are outside the region of {region_len} bytes")]
    OutOfBounds {
        /// First byte asked for.
        offset: usize,
        /// Length asked for, in bytes.
        len: usize,
        /// Length of the region, in bytes.
        region_len: usize,
    },
    /// The region was released by its owner, or never existed.
    #[error("the region is not (or no longer) registered by its owner")]
    StaleRegion,
    /// The region does not grant the right that the operation needs.
    #[error("the region does not grant this access")]
    AccessDenied,
    /// The offset is not a multiple of what the operation needs.
    #[error("the offset must be a multiple of {0} bytes")]
    Misaligned(usize),
    /// The process that the operation is for has died, or has left the job.
    #[error("the peer process has died or left")]
    PeerDead,
    /// One or more processes that a wait depends on have died.
    #[error("rank {0} has died or left")]
    RankDead(u32),
    /// The address does not lead to a process that this process can reach.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(String),
    /// The deadline has passed; the operation can be continued by calling again.
    #[error("the deadline has passed")]
    Timeout,
    /// The endpoint's queue has no free place.
    #[error("the queue is full")]
    QueueFull,
    /// A channel has as many operations to the peer under way as its network takes: the same call may succeed when one of them has ended.
    /// Given by [channels](crate::transport::Channel) alone; what comes through an [`Endpoint`](crate::Endpoint) waits there.
    #[error("the network takes no more operations now")]
    NotNow,
    /// Memory of this process that the network would read or write is not registered with it. Given by
    /// [channels](crate::transport::Channel) alone; what comes through an [`Endpoint`](crate::Endpoint) is registered there.
    #[error("memory of an operation is not registered with the network")]
    NotRegistered,
    /// The target's inbox has no free place; the record was not delivered.
    #[error("the target's inbox is full")]
    InboxFull,
    /// The peer's [handler](crate::transport::Handler) has refused the message; the number is its own.
    #[error("the peer has refused the message ({0})")]
    Refused(u32),
    /// The combination of operation and type is not defined.
    #[error("this operation is not defined for this type")]
    Unsupported,
    /// An argument has no meaning; the text says what would be right.
    #[error("{0}")]
    InvalidArgument(String),
    /// A limit of the engine or of the machine is reached; the text says which.
    #[error("out of {0}")]
    Exhausted(String),
    /// The name or place belongs to somebody else; the text says which.
    #[error("{0} is taken")]
    Taken(String),
    /// Another thread has ended the process's part in the job, or the object that the wait was for.
    #[error("another thread has ended it during the call")]
    Ended,
    /// The same collective operation is already running on the group, in another thread.
    #[error("a collective operation is already active on this group")]
    Busy,
    /// The operating system refused; the text names the call and its error.
    #[error("{0}")]
    Os(String),
}

impl Error {
    /// Wraps an operating-system error with the name of what was attempted.
    #[cold]
    pub fn os(what: &str, error: impl std::fmt::Display) -> Self {
        Error::Os(format!("{what}: {error}"))
    }
}

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
