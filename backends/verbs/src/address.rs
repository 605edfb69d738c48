//! The backend's part of an engine address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use unipgas_core::streams::greeting::SECRET;

use crate::wire::PROTOCOL;

/// Address of a process, as peers get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerbsAddress {
    /// A peer that knows it may connect.
    pub secret: [u8; SECRET],
    /// TCP port for the begin of connections.
    pub door: SocketAddr,
}

impl VerbsAddress {
    /// Encodes the address.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = PROTOCOL.to_le_bytes().to_vec();
        bytes.extend(self.secret);
        bytes.extend(self.door.port().to_le_bytes());
        match self.door.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        bytes
    }

    /// Decodes an address. `None`: malformed, or of another protocol.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (_, rest) = bytes
            .split_first_chunk()
            .filter(|(first, _)| u16::from_le_bytes(**first) == PROTOCOL)?;
        let (secret, rest) = rest.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let ip = match rest.len() {
            4 => Ipv4Addr::from(*rest.first_chunk::<4>()?).into(),
            16 => Ipv6Addr::from(*rest.first_chunk::<16>()?).into(),
            _ => return None,
        };
        Some(VerbsAddress {
            secret: *secret,
            door: SocketAddr::new(ip, u16::from_le_bytes(*port)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_garbage_is_refused() {
        for door in ["10.1.2.3:4711", "[2001:db8::1]:99"] {
            let address = VerbsAddress {
                secret: [7; SECRET],
                door: door.parse().unwrap(),
            };
            let bytes = address.encode();
            assert_eq!(VerbsAddress::decode(&bytes), Some(address));
            for len in 0..bytes.len() {
                let cut = VerbsAddress::decode(&bytes[..len]);
                assert!(cut.is_none() || len == bytes.len() - 12, "{len}");
            }
        }
        assert_eq!(VerbsAddress::decode(&[0xff; 64]), None);
    }
}
