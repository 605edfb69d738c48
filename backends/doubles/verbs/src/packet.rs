//! Packets between NICs.

use bytemuck::{Pod, Zeroable};

/// Queue pairs of a NIC. The number of a queue pair has 24 bits: the upper 12 are its NIC's number, the lower 12 its index.
pub const QPS_PER_NIC: u32 = 1 << 12;
/// NICs on one fabric. The numbers 0 and 1 are unused: special queue pairs have them.
pub const NICS: u32 = 1 << 12;

pub fn qp_number(nic: u32, index: u32) -> u32 {
    nic * QPS_PER_NIC + index
}

pub fn nic_number(qp: u32) -> u32 {
    qp / QPS_PER_NIC
}

/// Modulus of message numbers.
pub const SEQUENCE: u32 = 1 << 24;

pub fn next(sequence: u32) -> u32 {
    (sequence + 1) % SEQUENCE
}

/// Maximum number of data bytes in a packet.
pub const CHUNK: u32 = 64 << 10;

// Kinds of packets. Packets of a requester have the opcodes of work requests. These are the packets of a responder.
/// This message and all earlier ones are executed.
pub const ACK: u8 = 128;
pub const READ_DATA: u8 = 129;
pub const ATOMIC_RESULT: u8 = 130;
/// The message ends the connection; `status` has the reason.
pub const NAK: u8 = 131;
/// The responder has no buffer; `status` has its timer.
pub const RNR: u8 = 132;
/// The packet is lost. A real network does not report it. Here the sender needs the report, to distinguish a lost packet from a packet to a stopped process.
pub const LOST: u8 = 133;

pub const FIRST: u8 = 1;
pub const LAST: u8 = 2;
pub const SOLICITED: u8 = 4;
pub const IMMEDIATE: u8 = 8;

/// Header of each packet; `len` bytes of data follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable, Default)]
pub(crate) struct Header {
    pub dest: u32,
    pub source: u32,
    pub kind: u8,
    pub flags: u8,
    /// In a request: number of outstanding reads and atomic operations, including this one.
    pub depth: u8,
    /// IBV_WC_..., or a timer.
    pub status: u8,
    /// The LID or the hash of the GID of the destination.
    pub route: u32,
    pub sequence: u32,
    /// Number of restarts of the requester.
    pub epoch: u32,
    /// Offset of the data in the message.
    pub offset: u32,
    pub len: u32,
    /// Length of the whole message.
    pub total: u32,
    pub rkey: u32,
    pub immediate: u32,
    pub slid: u32,
    pub remote: u64,
    /// Operand of an atomic operation. In the answer: its result.
    pub operand: u64,
    pub swap: u64,
}

pub const HEADER: usize = size_of::<Header>();

/// The next packet of a stream, its data, and the rest. `None`: it is not complete.
pub fn split(stream: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let (head, rest) = stream.split_at_checked(HEADER)?;
    let header: Header = bytemuck::pod_read_unaligned(head);
    let (data, rest) = rest.split_at_checked(header.len as usize)?;
    Some((header, data, rest))
}
