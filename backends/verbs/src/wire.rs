//! What is said between processes: how a connection begins, and the word that goes with a message.

use bytemuck::{Pod, Zeroable};
use unipgas_core::streams::greeting::{ADDRESS, SECRET, VERSION};

/// Both sides speak the same: what is below, and the requests of core's streams.
pub const PROTOCOL: u16 = u16::from_le_bytes([1, VERSION]);
/// Ahead of [`Opening`] and [`Answer`].
pub const MAGIC: [u8; 8] = *b"uverbs\0\0";

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Ends {
    /// The number of the queue pair.
    pub pair: u32,
    /// Of its first packet.
    pub first: u32,
    /// Messages that it takes before it says that it takes more.
    pub credits: u32,
    /// Of its port.
    pub lid: u16,
    /// The longest packet, as verbs counts it.
    pub mtu: u8,
    /// By Ethernet, or InfiniBand.
    pub ethernet: u8,
    /// Reads and atomic operations that it may have under way.
    pub reads: u8,
    /// Those of the other side that it serves at once.
    pub serves: u8,
    pub pad: [u8; 2],
    /// The address of the port.
    pub gid: [u8; 16],
}

/// Numbers of queue pairs and packets have so many bits.
const NUMBER_BITS: u32 = 24;
/// As verbs counts 256 and 4096 bytes.
const MTUS: std::ops::RangeInclusive<u8> = 1..=5;

impl Ends {
    /// Whether they can be those of a queue pair: what others say goes to the device.
    pub fn are_possible(&self) -> bool {
        self.pair >> NUMBER_BITS == 0 && self.first >> NUMBER_BITS == 0 && MTUS.contains(&self.mtu)
    }
}

/// Said first, by who begins.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Opening {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// Bytes of the address.
    pub len: u16,
    /// Its end.
    pub ends: Ends,
    /// Of the process that is meant.
    pub secret: [u8; SECRET],
    /// Of who begins.
    pub address: [u8; ADDRESS],
}

/// The answer. Who begins says [`READY`] then.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Answer {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// One of those below.
    pub verdict: u16,
    /// Its end, if it is [`ACCEPTED`].
    pub ends: Ends,
}

/// It begins.
pub const ACCEPTED: u16 = 0;
/// The process does not know the secret.
pub const STRANGER: u16 = 1;
/// Another version is spoken.
pub const OTHER_VERSION: u16 = 2;
/// One is by Ethernet, the other by InfiniBand.
pub const OTHER_LINK: u16 = 3;
/// There is no room for another one.
pub const FULL: u16 = 4;

/// Both ends are connected.
pub const READY: u8 = b'R';
/// The socket goes, as descriptors are few; the connection stays.
pub const STAYS: u8 = b'S';

/// What a message or a write says beside its bytes: a kind, and how many messages its sender takes again from the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of the stream.
    Bytes = 1,
    /// Something has been written that somebody may wait for.
    Written = 2,
    /// Nothing else.
    Credits = 3,
    /// The stream has ended.
    Close = 4,
}

/// As it travels.
pub fn word(kind: Kind, credits: u32) -> u32 {
    ((kind as u32) << 24 | credits & 0xff_ffff).to_be()
}

/// What it says.
pub fn split(word: u32) -> Option<(Kind, u32)> {
    let word = u32::from_be(word);
    let kind = match word >> 24 {
        1 => Kind::Bytes,
        2 => Kind::Written,
        3 => Kind::Credits,
        4 => Kind::Close,
        _ => return None,
    };
    Some((kind, word & 0xff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        for kind in [Kind::Bytes, Kind::Written, Kind::Credits, Kind::Close] {
            for credits in [0, 1, 0xff_ffff] {
                assert_eq!(split(word(kind, credits)), Some((kind, credits)));
            }
        }
        assert_eq!(split(0), None);
        assert_eq!(split(u32::MAX), None);
    }
}
