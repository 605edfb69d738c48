//! The backend's part of an engine address.

use bytemuck::{Pod, Zeroable};
use unipgas_core::streams::greeting::{SECRET, VERSION};

/// Protocol version: [greetings](crate::greeting), [messages](crate::mail), and the requests of core's streams.
pub const PROTOCOL: u16 = u16::from_le_bytes([2, VERSION]);

/// Address of a process, as peers get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, packed)]
pub(crate) struct TofuAddress {
    protocol: u16,
    /// A peer that knows it may begin a stream.
    pub secret: [u8; SECRET],
    /// The VCQ that receives greetings and owns the memory regions.
    pub vcq: u64,
}

impl TofuAddress {
    /// Address with the current protocol.
    pub fn new(secret: [u8; SECRET], vcq: u64) -> Self {
        TofuAddress {
            protocol: PROTOCOL,
            secret,
            vcq,
        }
    }

    /// Decodes an address. `None`: malformed, or of another protocol.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let address: TofuAddress = bytemuck::try_pod_read_unaligned(bytes).ok()?;
        (address.protocol == PROTOCOL).then_some(address)
    }
}

/// Identifies a process without disclosure of its secret.
pub fn identity(secret: &[u8; SECRET]) -> u64 {
    let halves: [u64; 2] = bytemuck::cast(*secret);
    halves[0] ^ halves[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_garbage_is_refused() {
        let address = TofuAddress::new([7; SECRET], 0x1234_5678_9abc_def0);
        let bytes = bytemuck::bytes_of(&address);
        assert_eq!(TofuAddress::decode(bytes), Some(address));
        for len in 0..bytes.len() {
            assert_eq!(TofuAddress::decode(&bytes[..len]), None, "{len}");
        }
        assert_eq!(TofuAddress::decode(&[0xff; size_of::<TofuAddress>()]), None);
    }
}
