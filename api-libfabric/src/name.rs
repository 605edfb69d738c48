//! The name of an endpoint (fi_getname(3)): where its process is, and where the endpoint's directory is in it. Opaque, 144 bytes;
//! programs exchange names by their own means.

use unipgas_core::lanes::NAME_LEN;
use unipgas_core::{Address, RegionKey};

use crate::status::{Errno, Result};

const MAGIC: [u8; 8] = *b"unipgfi\x01";

/// An endpoint's name: magic, id, address of the process, key of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name([u8; NAME_LEN]);

/// Bytes of a name.
pub const LEN: usize = NAME_LEN;

impl Name {
    /// The name of the endpoint `id`.
    pub fn new(id: u64, address: &Address, directory: &RegionKey) -> Name {
        let mut bytes = [0; NAME_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&id.to_le_bytes());
        bytes[16..80].copy_from_slice(address.as_bytes());
        bytes[80..].copy_from_slice(directory.as_bytes());
        Name(bytes)
    }

    /// From its bytes. Errors: [`Errno::INVAL`] for what no endpoint of this version calls itself.
    pub fn from_bytes(bytes: &[u8]) -> Result<Name> {
        let bytes: [u8; NAME_LEN] = bytes.try_into().map_err(|_| Errno::INVAL)?;
        if bytes[..8] == MAGIC && bytes[8..16] != [0; 8] {
            Ok(Name(bytes))
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; NAME_LEN] {
        &self.0
    }

    /// A number that no other endpoint has; not 0.
    pub fn id(&self) -> u64 {
        u64::from_le_bytes(self.0[8..16].try_into().expect("8 bytes"))
    }

    /// The process.
    pub fn address(&self) -> Address {
        Address::from_bytes(&self.0[16..80]).expect("64 bytes")
    }

    /// The directory.
    pub fn directory(&self) -> RegionKey {
        RegionKey::from_bytes(&self.0[80..]).expect("64 bytes")
    }
}

impl std::fmt::Display for Name {
    /// For people (fi_av_straddr(3)).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fi_unipgas://{:016x}", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unipgas_core::bundle::Tag;

    #[test]
    fn parts_come_back_and_garbage_is_refused() {
        let address = Address::pack([(Tag::Shm, &[3u8; 20][..])]).unwrap();
        let directory = RegionKey::pack([(Tag::Shm, &[4u8; 8][..])]).unwrap();
        let name = Name::new(77, &address, &directory);
        let again = Name::from_bytes(name.as_bytes()).unwrap();
        assert_eq!(
            (again.id(), again.address(), again.directory()),
            (77, address, directory)
        );
        assert_eq!(Name::from_bytes(&[0; 144]), Err(Errno::INVAL));
        assert_eq!(Name::from_bytes(&name.as_bytes()[1..]), Err(Errno::INVAL));
        assert_eq!(name.to_string(), "fi_unipgas://000000000000004d");
    }
}
