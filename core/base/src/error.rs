//! The error type of the engine. Each interface maps it to its own codes in one table.

/// Errors of the engine. An operation that returns one has written no data, except as a variant documents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A range leaves its region: `offset + len > region_len` (bytes).
    #[error("bytes {offset}..{offset}+{len} are outside the region of {region_len} bytes")]
    OutOfBounds {
        /// First requested byte.
        offset: usize,
        /// Requested length, in bytes.
        len: usize,
        /// Length of the region, in bytes.
        region_len: usize,
    },
    /// The owner has released the region, or never registered it.
    #[error("the region is not (or no longer) registered by its owner")]
    StaleRegion,
    /// The region does not grant the right that the operation needs.
    #[error("the region does not grant this access")]
    AccessDenied,
    /// The offset is not a multiple of the required number of bytes.
    #[error("the offset must be a multiple of {0} bytes")]
    Misaligned(usize),
    /// The peer has died or has left the job.
    #[error("the peer process has died or left")]
    PeerDead,
    /// A process that a wait depends on has died or left; its rank.
    #[error("rank {0} has died or left")]
    RankDead(u32),
    /// No path leads from this process to the address.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(String),
    /// The deadline has passed. Another call continues the operation.
    #[error("the deadline has passed")]
    Timeout,
    /// The endpoint's queue has no free entry.
    #[error("the queue is full")]
    QueueFull,
    /// The operations in flight to the peer have reached the network's limit. A retry may succeed after a completion.
    /// Only channels return it; an endpoint queues the operation instead.
    #[error("the network takes no more operations now")]
    NotNow,
    /// The network would access memory of this process that is not registered with it.
    /// Only channels return it; an endpoint registers the memory instead.
    #[error("memory of an operation is not registered with the network")]
    NotRegistered,
    /// The target's inbox has no free entry; the record was not delivered.
    #[error("the target's inbox is full")]
    InboxFull,
    /// The peer's handler has refused the message. The handler defines the number.
    #[error("the peer has refused the message ({0})")]
    Refused(u32),
    /// The combination of operation and type is not defined.
    #[error("this operation is not defined for this type")]
    Unsupported,
    /// An argument is invalid; the text says which values are valid.
    #[error("{0}")]
    InvalidArgument(String),
    /// A limit of the engine or of the machine is reached; the text names it.
    #[error("out of {0}")]
    Exhausted(String),
    /// The name or place is in use by another process or object; the text names it.
    #[error("{0} is taken")]
    Taken(String),
    /// Another thread has ended this process's part in the job, or the object of the wait.
    #[error("another thread has ended it during the call")]
    Ended,
    /// Another thread is already running the same collective operation on the group.
    #[error("a collective operation is already active on this group")]
    Busy,
    /// The operating system refused; the text names the call and its error.
    #[error("{0}")]
    Os(String),
}

impl Error {
    /// Wraps an operating-system error with the name of the attempt.
    #[cold]
    pub fn os(what: &str, error: impl std::fmt::Display) -> Self {
        Error::Os(format!("{what}: {error}"))
    }
}

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
