//! What NICs say to each other.

use bytemuck::{Pod, Zeroable};

/// Of a queue pair's 24 bits the upper ones are its NIC's number, the others its own.
pub const QPS_PER_NIC: u32 = 1 << 12;
/// NICs on one fabric. 0 and 1 are numbers of special queue pairs' NICs: they are not used.
pub const NICS: u32 = 1 << 12;

pub fn qp_number(nic: u32, index: u32) -> u32 {
    nic * QPS_PER_NIC + index
}

pub fn nic_number(qp: u32) -> u32 {
    qp / QPS_PER_NIC
}

/// Messages are numbered modulo this.
pub const SEQUENCE: u32 = 1 << 24;

pub fn next(sequence: u32) -> u32 {
    (sequence + 1) % SEQUENCE
}

/// What a packet carries at most.
pub const CHUNK: u32 = 64 << 10;

// Kinds. A requester's are the opcodes of work requests; these are a responder's.
/// This and all earlier messages have been carried out.
pub const ACK: u8 = 128;
pub const READ_DATA: u8 = 129;
pub const ATOMIC_RESULT: u8 = 130;
/// The message ends the connection; why is in `status`.
pub const NAK: u8 = 131;
/// No buffer; the responder's timer is in `status`.
pub const RNR: u8 = 132;
/// Nobody took the packet. A real network says nothing; here the sender is told, so that it can tell what is lost from what waits for a process that
/// has stopped.
pub const LOST: u8 = 133;

pub const FIRST: u8 = 1;
pub const LAST: u8 = 2;
pub const SOLICITED: u8 = 4;
pub const IMMEDIATE: u8 = 8;

/// Of each packet; `len` bytes follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable, Default)]
pub(crate) struct Header {
    pub dest: u32,
    pub source: u32,
    pub kind: u8,
    pub flags: u8,
    /// Of a request: reads and atomic operations under way, with this one.
    pub depth: u8,
    /// IBV_WC_... or a timer.
    pub status: u8,
    /// The LID or GID that it is sent to.
    pub route: u32,
    pub sequence: u32,
    /// How often the requester has begun again.
    pub epoch: u32,
    /// Where the data belong in the message.
    pub offset: u32,
    pub len: u32,
    /// Of the whole message.
    pub total: u32,
    pub rkey: u32,
    pub immediate: u32,
    pub slid: u32,
    pub remote: u64,
    /// The result of an atomic operation comes back in it.
    pub operand: u64,
    pub swap: u64,
}

pub const HEADER: usize = size_of::<Header>();

/// The next packet of a stream, and its data, if all of it is there.
pub fn split(stream: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let (head, rest) = stream.split_at_checked(HEADER)?;
    let header: Header = bytemuck::pod_read_unaligned(head);
    let (data, rest) = rest.split_at_checked(header.len as usize)?;
    Some((header, data, rest))
}
