//! The backend's part of an engine address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use unipgas_core::streams::greeting::SECRET;

use crate::wire::PROTOCOL;

/// The address of a process, for its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfiAddress {
    /// Secret that a peer needs to begin a conversation.
    pub secret: [u8; SECRET],
    /// Hash of the provider's name. Both processes must use the same provider.
    pub provider: u32,
    /// TCP port that shows whether the process lives.
    pub lifeline: Option<SocketAddr>,
    /// Name of its endpoint, as the provider gives it.
    pub name: Vec<u8>,
}

/// A hash of the provider's name.
pub fn number(provider: &str) -> u32 {
    // FNV-1a.
    let step = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    provider.bytes().fold(0x811c_9dc5, step)
}

impl OfiAddress {
    /// The encoded address.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = PROTOCOL.to_le_bytes().to_vec();
        bytes.extend(self.secret);
        bytes.extend(self.provider.to_le_bytes());
        let (kind, ip) = match self.lifeline.map(|lifeline| lifeline.ip()) {
            None => (0, Vec::new()),
            Some(IpAddr::V4(ip)) => (4, ip.octets().to_vec()),
            Some(IpAddr::V6(ip)) => (6, ip.octets().to_vec()),
        };
        bytes.push(kind);
        bytes.extend(ip);
        if let Some(lifeline) = self.lifeline {
            bytes.extend(lifeline.port().to_le_bytes());
        }
        bytes.extend(&self.name);
        bytes
    }

    /// Decodes an address. `None`: it does not follow this protocol.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (_, rest) = bytes
            .split_first_chunk()
            .filter(|(first, _)| u16::from_le_bytes(**first) == PROTOCOL)?;
        let (secret, rest) = rest.split_first_chunk()?;
        let (provider, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let (ip, rest): (Option<IpAddr>, _) = match kind {
            0 => (None, rest),
            4 => {
                let (ip, rest) = rest.split_first_chunk::<4>()?;
                (Some(Ipv4Addr::from(*ip).into()), rest)
            }
            6 => {
                let (ip, rest) = rest.split_first_chunk::<16>()?;
                (Some(Ipv6Addr::from(*ip).into()), rest)
            }
            _ => return None,
        };
        let (lifeline, name) = match ip {
            None => (None, rest),
            Some(ip) => {
                let (port, rest) = rest.split_first_chunk()?;
                (Some(SocketAddr::new(ip, u16::from_le_bytes(*port))), rest)
            }
        };
        (!name.is_empty()).then(|| OfiAddress {
            secret: *secret,
            provider: u32::from_le_bytes(*provider),
            lifeline,
            name: name.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_garbage_is_refused() {
        let lifelines = ["10.1.2.3:4711", "[2001:db8::1]:99"].map(|text| text.parse().ok());
        for lifeline in lifelines.into_iter().chain([None]) {
            let address = OfiAddress {
                secret: [7; SECRET],
                provider: number("tcp"),
                lifeline,
                name: vec![1, 2, 3],
            };
            let bytes = address.encode();
            assert_eq!(OfiAddress::decode(&bytes), Some(address));
            for len in 0..=bytes.len() - 3 {
                assert_eq!(OfiAddress::decode(&bytes[..len]), None);
            }
        }
        assert_eq!(OfiAddress::decode(&[0xff; 64]), None);
        assert_ne!(number("tcp"), number("sockets"));
    }
}
