//! The first bytes of a stream. Only peers with the address of the process are served: the address contains its secret.

use unipgas_base::Error;

/// Length of a secret in bytes.
pub const SECRET: usize = 16;
/// Maximum length of an address in bytes. A greeting contains the address, padded with zeros to this length.
pub const ADDRESS: usize = 96;
/// Version of the protocol on streams, including the agent's requests. Each change increments it.
pub const VERSION: u8 = b'3';
const MAGIC: [u8; 8] = [b'u', b'n', b'i', b'p', b'g', b'a', b's', VERSION];
/// Length of a greeting in bytes.
pub const HELLO: usize = MAGIC.len() + SECRET + ADDRESS;

/// The address of a process, padded with zeros.
pub type PaddedAddress = [u8; ADDRESS];

/// The greeting to the process with this secret, from the process that listens at `own`.
pub fn greeting(secret: &[u8; SECRET], own: &[u8]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    let parts = [&MAGIC[..], secret, own];
    for (byte, said) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
        *byte = *said;
    }
    bytes
}

/// The listen address in a greeting. `None`: the secret is wrong.
pub fn greeted(said: &[u8; HELLO], secret: &[u8; SECRET]) -> Option<PaddedAddress> {
    let (said, own) = said.split_last_chunk::<ADDRESS>()?;
    let right = greeting(secret, &[]);
    // In constant time, so that the time reveals no byte.
    let wrong = said.iter().zip(&right).fold(0, |all, (a, b)| all | (a ^ b));
    (wrong == 0).then_some(*own)
}

/// The protocol version of the sender, if it differs.
pub(crate) fn other_version(said: &[u8; HELLO]) -> Option<char> {
    let (version, name) = MAGIC.split_last()?;
    let theirs = said[name.len()];
    (said.starts_with(name) && theirs != *version).then_some(theirs.into())
}

/// An address as in a greeting. A longer one is cut off.
pub fn padded(address: &[u8]) -> PaddedAddress {
    let mut bytes = [0; ADDRESS];
    for (byte, said) in bytes.iter_mut().zip(address) {
        *byte = *said;
    }
    bytes
}

/// The error of an address that a backend does not understand. Addresses of all backends but the sockets begin with the version of their protocol.
pub fn foreign_address(address: &[u8], protocol: u16, backend: &str) -> Error {
    let theirs = address
        .first_chunk()
        .map(|first| u16::from_le_bytes(*first))
        .filter(|theirs| *theirs != protocol);
    Error::Unreachable(match theirs {
        Some(theirs) => format!(
            "the peer has another release of unipgas, which speaks version {theirs:#x} of the {backend} protocol, not {protocol:#x}: install one release on all hosts"
        ),
        None => format!("not an address of the {backend} backend"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_the_secret_says_where_he_listens() {
        let own = [7; ADDRESS - 1];
        let mut said = greeting(&[3; SECRET], &own);
        assert_eq!(greeted(&said, &[3; SECRET]), Some(padded(&own)));
        assert_eq!(greeted(&said, &[4; SECRET]), None);
        for at in 0..HELLO - ADDRESS {
            said[at] ^= 1;
            assert_eq!(greeted(&said, &[3; SECRET]), None, "{at}");
            let other = (at == MAGIC.len() - 1).then_some(char::from(VERSION ^ 1));
            assert_eq!(other_version(&said), other, "{at}");
            said[at] ^= 1;
        }
    }
}
