//! What goes ahead of each message, and the messages by which a conversation begins.

use bytemuck::{Pod, Zeroable};
use unipgas_core::streams::greeting::{ADDRESS, SECRET, VERSION};

/// Both sides speak the same: the messages below, and the requests of core's streams.
pub const PROTOCOL: u16 = u16::from_le_bytes([4, VERSION]);

/// Ahead of a message.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Head {
    /// The conversation, as the receiver numbers it.
    pub conversation: u32,
    /// One of those below.
    pub kind: u32,
    /// What the receiver has said that he wants to hear.
    pub cookie: u64,
}

/// Somebody begins a conversation; an [`Opening`] follows.
pub const OPEN: u32 = u32::from_le_bytes(*b"uofi");
/// It has begun; an [`Accepted`] follows.
pub const ACCEPT: u32 = 2;
/// Bytes of the stream follow.
pub const BYTES: u32 = 3;
/// It has ended.
pub const CLOSE: u32 = 4;
/// It does not begin: the sender of [`OPEN`] does not know the secret.
pub const REFUSE: u32 = 5;
/// Whether the process is there.
pub const ASK: u32 = 6;
/// It is.
pub const HERE: u32 = 7;
/// A piece of a stream goes ahead of another message: an [`Along`], the piece, and that message, unless it is the last.
pub const ALONG: u32 = 8;

/// How long a piece is.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Along {
    /// In bytes.
    pub len: u32,
    /// Nothing.
    pub pad: u32,
}

/// Bytes that a piece takes ahead of a message.
pub const fn along(len: usize) -> usize {
    size_of::<Head>() + size_of::<Along>() + len
}

/// What follows the head of a piece: its bytes, and the next message.
pub fn ride(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (along, rest) = split::<Along>(message)?;
    rest.split_at_checked(along.len as usize)
}

/// How a conversation begins.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Opening {
    /// The receiver's.
    pub secret: [u8; SECRET],
    /// What the sender wants to hear.
    pub cookie: u64,
    /// The conversation, as the sender numbers it.
    pub conversation: u32,
    /// Bytes of the address.
    pub len: u32,
    /// Of the sender.
    pub address: [u8; ADDRESS],
}

/// The longest message without bytes of a stream: a provider must take that.
pub const LEAST: usize = size_of::<Head>() + size_of::<Opening>();

/// How it goes on.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Accepted {
    /// What the sender wants to hear.
    pub cookie: u64,
    /// The conversation, as the sender numbers it.
    pub conversation: u32,
    /// Nothing.
    pub pad: u32,
}

/// The fixed part at the beginning of a message, and what follows it.
pub fn split<T: Pod>(message: &[u8]) -> Option<(T, &[u8])> {
    let (fixed, rest) = message.split_at_checked(size_of::<T>())?;
    Some((bytemuck::pod_read_unaligned(fixed), rest))
}
