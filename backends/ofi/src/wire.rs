//! The head of each message, and the messages that begin a conversation.

use bytemuck::{Pod, Zeroable};
use unipgas_core::streams::greeting::{ADDRESS, SECRET, VERSION};

/// Version of the protocol: the messages below, and the requests of core's streams. Both sides need the same.
pub const PROTOCOL: u16 = u16::from_le_bytes([4, VERSION]);

/// The head of a message.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Head {
    /// The receiver's number of the conversation.
    pub conversation: u32,
    /// One of the kinds below.
    pub kind: u32,
    /// The receiver's cookie of the conversation.
    pub cookie: u64,
}

/// Request to begin a conversation; an [`OpenRequest`] follows.
pub const OPEN: u32 = u32::from_le_bytes(*b"uofi");
/// The conversation has begun; an [`Acceptance`] follows.
pub const ACCEPT: u32 = 2;
/// Bytes of the stream follow.
pub const BYTES: u32 = 3;
/// The conversation has ended.
pub const CLOSE: u32 = 4;
/// Refusal: the sender of [`OPEN`] does not know the secret.
pub const REFUSE: u32 = 5;
/// Question whether the process lives.
pub const ASK: u32 = 6;
/// Answer to [`ASK`].
pub const HERE: u32 = 7;
/// A piece of a stream before another message: an [`Along`], the piece, then that message, if any.
pub const ALONG: u32 = 8;

/// The length of a piece.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Along {
    /// In bytes.
    pub len: u32,
    /// Padding.
    pub pad: u32,
}

/// Bytes that a piece of `len` bytes needs before a message.
pub const fn along(len: usize) -> usize {
    size_of::<Head>() + size_of::<Along>() + len
}

/// Splits the bytes after the head of a piece into the piece and the next message.
pub fn ride(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (along, rest) = split::<Along>(message)?;
    rest.split_at_checked(along.len as usize)
}

/// Data of a request to begin a conversation.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct OpenRequest {
    /// Secret of the receiver.
    pub secret: [u8; SECRET],
    /// Cookie that messages to the sender must carry.
    pub cookie: u64,
    /// The sender's number of the conversation.
    pub conversation: u32,
    /// Length of the address.
    pub len: u32,
    /// Address of the sender.
    pub address: [u8; ADDRESS],
}

/// Length of the longest message without stream bytes. A provider must support it.
pub const LEAST: usize = size_of::<Head>() + size_of::<OpenRequest>();

/// Data of an acceptance.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Acceptance {
    /// Cookie that messages to the sender must carry.
    pub cookie: u64,
    /// The sender's number of the conversation.
    pub conversation: u32,
    /// Padding.
    pub pad: u32,
}

/// Splits a message into its fixed part and the rest.
pub fn split<T: Pod>(message: &[u8]) -> Option<(T, &[u8])> {
    let (fixed, rest) = message.split_at_checked(size_of::<T>())?;
    Some((bytemuck::pod_read_unaligned(fixed), rest))
}
