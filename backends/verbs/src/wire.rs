//! The protocol between processes: the begin of a connection, and the immediate of a message.

use bytemuck::{Pod, Zeroable};
use unipgas_core::streams::greeting::{ADDRESS, SECRET, VERSION};

/// Protocol version: this file, and the requests of core's streams.
pub const PROTOCOL: u16 = u16::from_le_bytes([1, VERSION]);
/// Start of [`ConnectRequest`] and [`ConnectReply`].
pub const MAGIC: [u8; 8] = *b"uverbs\0\0";

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct QpParameters {
    /// Number of its queue pair.
    pub pair: u32,
    /// Number of its first packet.
    pub first: u32,
    /// Initial credits of the peer.
    pub credits: u32,
    /// LID of its port.
    pub lid: u16,
    /// Maximum packet size, as an `ibv_mtu`.
    pub mtu: u8,
    /// 1: Ethernet. 0: InfiniBand.
    pub ethernet: u8,
    /// Maximum reads and atomic operations of this side in flight.
    pub reads: u8,
    /// Maximum reads and atomic operations of the peer that it serves at once.
    pub serves: u8,
    pub pad: [u8; 2],
    /// GID of its port.
    pub gid: [u8; 16],
}

/// Bits of queue pair numbers and packet numbers.
const NUMBER_BITS: u32 = 24;
/// Values of `ibv_mtu`, for 256 to 4096 bytes.
const MTUS: std::ops::RangeInclusive<u8> = 1..=5;

impl QpParameters {
    /// Whether the peer's values are plausible. They go to the device.
    pub fn are_possible(&self) -> bool {
        self.pair >> NUMBER_BITS == 0 && self.first >> NUMBER_BITS == 0 && MTUS.contains(&self.mtu)
    }
}

/// First message, from the initiator.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ConnectRequest {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// Bytes of the address.
    pub len: u16,
    /// End of the initiator.
    pub ends: QpParameters,
    /// Secret of the target.
    pub secret: [u8; SECRET],
    /// Address of the initiator.
    pub address: [u8; ADDRESS],
}

/// The answer. The initiator then sends [`READY`].
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ConnectReply {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// A verdict: one of the constants below.
    pub verdict: u16,
    /// End of the target, if the verdict is [`ACCEPTED`].
    pub ends: QpParameters,
}

/// The connection begins.
pub const ACCEPTED: u16 = 0;
/// The secret is wrong.
pub const STRANGER: u16 = 1;
/// The protocol versions differ.
pub const OTHER_VERSION: u16 = 2;
/// One port is Ethernet, the other InfiniBand.
pub const OTHER_LINK: u16 = 3;
/// There is no room for another connection.
pub const FULL: u16 = 4;

/// Both ends are connected.
pub const READY: u8 = b'R';
/// The connection stays open without the socket, because descriptors are scarce.
pub const STAYS: u8 = b'S';

/// Kind of an immediate. The immediate also returns credits to its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ImmediateKind {
    /// Bytes of the stream.
    Bytes = 1,
    /// A write, which a caller may wait for.
    Written = 2,
    /// Only credits.
    Credits = 3,
    /// The end of the stream.
    Close = 4,
}

/// Encodes an immediate.
pub fn word(kind: ImmediateKind, credits: u32) -> u32 {
    ((kind as u32) << 24 | credits & 0xff_ffff).to_be()
}

/// Decodes an immediate.
pub fn split(word: u32) -> Option<(ImmediateKind, u32)> {
    let word = u32::from_be(word);
    let kind = match word >> 24 {
        1 => ImmediateKind::Bytes,
        2 => ImmediateKind::Written,
        3 => ImmediateKind::Credits,
        4 => ImmediateKind::Close,
        _ => return None,
    };
    Some((kind, word & 0xff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        for kind in [
            ImmediateKind::Bytes,
            ImmediateKind::Written,
            ImmediateKind::Credits,
            ImmediateKind::Close,
        ] {
            for credits in [0, 1, 0xff_ffff] {
                assert_eq!(split(word(kind, credits)), Some((kind, credits)));
            }
        }
        assert_eq!(split(0), None);
        assert_eq!(split(u32::MAX), None);
    }
}
