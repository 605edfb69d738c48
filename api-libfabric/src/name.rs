//! The name of an endpoint (fi_getname(3)): where its process is, and where the endpoint's directory is in it. Opaque, and of 64 bytes:
//! programs exchange names by their own means, and have no more room than FI_NAME_MAX for them.

use unipgas_core::bundle::{BUNDLE_LEN, Bundle};
use unipgas_core::lanes::NAME_LEN;
use unipgas_core::{Address, Error, RegionKey};

use crate::status::{Errno, Result};

const MAGIC: [u8; 2] = [0xf1, 0x01];
/// Magic, length of the address, length of the key, id.
const HEAD: usize = 12;

/// An endpoint's name: id, address of the process, key of the directory, the last two without the zeroes that they end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name([u8; NAME_LEN]);

/// Bytes of a name.
pub const LEN: usize = NAME_LEN;

fn used(bundle: &Bundle) -> &[u8] {
    let bytes = bundle.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != 0);
    &bytes[..end.map_or(0, |last| last + 1)]
}

fn padded(bytes: &[u8]) -> Bundle {
    let mut whole = [0; BUNDLE_LEN];
    whole[..bytes.len()].copy_from_slice(bytes);
    Bundle::from_bytes(&whole).expect("of that length")
}

impl Name {
    /// The name of the endpoint `id`. Errors: [`Errno::NOMEM`] if the process cannot be named in 64 bytes.
    pub fn new(id: u64, address: &Address, directory: &RegionKey) -> Result<Name> {
        let (address, directory) = (used(address), used(directory));
        let (middle, end) = (HEAD + address.len(), HEAD + address.len() + directory.len());
        if end > NAME_LEN {
            return Err(Error::Exhausted("room in a name".into()).into());
        }
        let mut bytes = [0; NAME_LEN];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = address.len() as u8;
        bytes[3] = directory.len() as u8;
        bytes[4..HEAD].copy_from_slice(&id.to_le_bytes());
        bytes[HEAD..middle].copy_from_slice(address);
        bytes[middle..end].copy_from_slice(directory);
        Ok(Name(bytes))
    }

    /// From its bytes. Errors: [`Errno::INVAL`] for what no endpoint of this version calls itself.
    pub fn from_bytes(bytes: &[u8]) -> Result<Name> {
        let bytes: [u8; NAME_LEN] = bytes.try_into().map_err(|_| Errno::INVAL)?;
        let name = Name(bytes);
        let fits = HEAD + name.lengths().0 + name.lengths().1 <= NAME_LEN;
        if bytes[..2] == MAGIC && fits && name.id() != 0 {
            Ok(name)
        } else {
            Err(Errno::INVAL)
        }
    }

    fn lengths(&self) -> (usize, usize) {
        (usize::from(self.0[2]), usize::from(self.0[3]))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; NAME_LEN] {
        &self.0
    }

    /// A number that no other endpoint has; not 0.
    pub fn id(&self) -> u64 {
        u64::from_le_bytes(self.0[4..HEAD].try_into().expect("8 bytes"))
    }

    /// The process.
    pub fn address(&self) -> Address {
        padded(&self.0[HEAD..HEAD + self.lengths().0])
    }

    /// The directory.
    pub fn directory(&self) -> RegionKey {
        let (address, directory) = self.lengths();
        padded(&self.0[HEAD + address..HEAD + address + directory])
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
        let name = Name::new(77, &address, &directory).unwrap();
        let again = Name::from_bytes(name.as_bytes()).unwrap();
        assert_eq!(
            (again.id(), again.address(), again.directory()),
            (77, address, directory)
        );
        assert_eq!(Name::from_bytes(&[0; 64]), Err(Errno::INVAL));
        assert_eq!(Name::from_bytes(&name.as_bytes()[1..]), Err(Errno::INVAL));
        assert_eq!(name.to_string(), "fi_unipgas://000000000000004d");
    }
}
