//! The name of an endpoint (fi_getname(3)): where its process is, and where the endpoint's directory is in it. Opaque, and of 64 bytes:
//! programs exchange names by their own means, and have no more room than FI_NAME_MAX for them.
//!
//! Where a process is reached by several transports, not all that they call it by fits. Then the name has the parts of those that reach all
//! hosts, and the directory, which is read first, has the rest (`target`).

use std::ops::Range;

use data_encoding::BASE64URL_NOPAD;
use unipgas_core::bundle::{BUNDLE_LEN, Bundle};
use unipgas_core::peer_numbers::NAME_LEN;
use unipgas_core::{Address, Error, RegionKey};

use crate::service::{Server, Service};
use crate::status::{Errno, Result};

const MAGIC: [u8; 2] = [0xf1, 0x01];
/// Magic, length of the address, length of the key, id.
const HEAD: usize = 12;

/// An endpoint's name: id, address of the process, key of the directory, the last two without the zeroes that they end with, and perhaps
/// without the parts of some transports.
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
        let few = |parts: Range<usize>| {
            let (address, directory) = (address.only(parts.clone()), directory.only(parts));
            Name::of(id, used(&address), used(&directory))
        };
        // Of several transports the first one is for peers of the same host, and the others are in order of preference.
        let networks = (2..=address.count()).rev().map(|end| 1..end);
        let mut shorter = std::iter::once(0..address.count()).chain(networks);
        let name = shorter.find_map(few);
        name.ok_or_else(|| Error::Exhausted("room in a name".into()).into())
    }

    fn of(id: u64, address: &[u8], directory: &[u8]) -> Option<Name> {
        let (middle, end) = (HEAD + address.len(), HEAD + address.len() + directory.len());
        if end > NAME_LEN {
            return None;
        }
        let mut bytes = [0; NAME_LEN];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = address.len() as u8;
        bytes[3] = directory.len() as u8;
        bytes[4..HEAD].copy_from_slice(&id.to_le_bytes());
        bytes[HEAD..middle].copy_from_slice(address);
        bytes[middle..end].copy_from_slice(directory);
        Some(Name(bytes))
    }

    /// From its bytes. Errors: [`Errno::INVAL`] for what no endpoint of this version calls itself.
    pub fn from_bytes(bytes: &[u8]) -> Result<Name> {
        let bytes: [u8; NAME_LEN] = bytes.try_into().map_err(|_| Errno::INVAL)?;
        let name = Name(bytes);
        let fits = name.len() <= NAME_LEN;
        if bytes[..2] == MAGIC && fits && name.id() != 0 {
            Ok(name)
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Bytes that mean anything.
    fn len(&self) -> usize {
        HEAD + self.lengths().0 + self.lengths().1
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

    /// The process; perhaps without the way that is the best one.
    pub fn address(&self) -> Address {
        padded(&self.0[HEAD..HEAD + self.lengths().0])
    }

    /// The directory, as it is reached by [`address`](Name::address).
    pub fn directory(&self) -> RegionKey {
        let (address, directory) = self.lengths();
        padded(&self.0[HEAD + address..HEAD + address + directory])
    }
}

/// How a program calls an endpoint: by its name, or by the service that it is. All have [`LEN`] bytes; as a text (FI_ADDR_STR) they are
/// `fi_unipgas://` and the name's bytes, or `fi_unipgas://:` and the service, on another host `fi_unipgas://10.0.0.2:7471`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Called {
    /// The endpoint that has said this name.
    Name(Name),
    /// The one that is the service when it is talked to for the first time.
    Service(Service),
    /// The same of a service on another host.
    Server(Server),
}

/// What a text begins with; alone it names no endpoint.
pub const SCHEME: &str = "fi_unipgas://";
/// Bytes of the longest form of a name: a text with its zero.
pub const LONGEST: usize = SCHEME.len() + (4 * LEN).div_ceil(3) + 1;

impl Called {
    /// From its bytes. Errors: [`Errno::INVAL`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Called> {
        let name = Name::from_bytes(bytes).map(Called::Name);
        let service = || Service::from_bytes(bytes).map(Called::Service);
        let server = || Server::from_bytes(bytes).map(Called::Server);
        name.or_else(|_| service()).or_else(|_| server())
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; LEN] {
        match self {
            Called::Name(name) => name.as_bytes(),
            Called::Service(service) => service.as_bytes(),
            Called::Server(server) => server.as_bytes(),
        }
    }
}

impl std::str::FromStr for Called {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Called> {
        let rest = text.strip_prefix(SCHEME).ok_or(Errno::INVAL)?;
        if let Some(service) = rest.strip_prefix(':') {
            return Service::new(service).map(Called::Service);
        }
        if rest.contains(':') {
            let at = rest.parse().map_err(|_| Errno::INVAL)?;
            return Server::new(at).map(Called::Server);
        }
        let decoded = BASE64URL_NOPAD.decode(rest.as_bytes());
        let mut bytes = decoded.map_err(|_| Errno::INVAL)?;
        let given = bytes.len();
        bytes.resize(LEN.max(given), 0);
        let name = Name::from_bytes(&bytes)?;
        // Only as many as it needs, so that there is one text for each.
        if given == name.len() {
            Ok(Called::Name(name))
        } else {
            Err(Errno::INVAL)
        }
    }
}

impl std::fmt::Display for Called {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Called::Name(name) => {
                let bytes = &name.as_bytes()[..name.len()];
                write!(f, "{SCHEME}{}", BASE64URL_NOPAD.encode(bytes))
            }
            Called::Service(service) => write!(f, "{SCHEME}:{}", service.text()),
            Called::Server(server) => write!(f, "{SCHEME}{}", server.at()),
        }
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
    }

    #[test]
    fn of_several_transports_those_stay_that_reach_all_hosts() {
        let parts = |lens: [usize; 3]| {
            let tags = [Tag::Shm, Tag::Opaque, Tag::Loopback];
            let bytes = [[1; 40], [2; 40], [3; 40]];
            let parts: Vec<_> = (0..3)
                .map(|n| (tags[n], bytes[n][..lens[n]].to_vec()))
                .collect();
            Address::pack(parts.iter().map(|(tag, part)| (*tag, &part[..]))).unwrap()
        };
        // All three, the two networks, the first network, none.
        for (address, directory, kept) in [
            ([10, 5, 5], [4, 4, 4], 0..3),
            ([32, 10, 8], [8, 8, 8], 1..3),
            ([32, 16, 8], [8, 20, 20], 1..2),
        ] {
            let (address, directory) = (parts(address), parts(directory));
            let name = Name::new(5, &address, &directory).unwrap();
            assert_eq!(name.address(), address.only(kept.clone()));
            assert_eq!(name.directory(), directory.only(kept));
            assert_eq!(Name::from_bytes(name.as_bytes()), Ok(name));
        }
        let (address, directory) = (parts([10, 30, 10]), parts([10, 20, 20]));
        assert!(Name::new(5, &address, &directory).is_err());
    }

    #[test]
    fn texts_mean_what_they_were_made_from() {
        let address = Address::pack([(Tag::Shm, &[3u8; 20][..])]).unwrap();
        let directory = RegionKey::pack([(Tag::Shm, &[0u8; 8][..])]).unwrap();
        let longest = "s".repeat(crate::service::LONGEST_SERVICE);
        let mut all = vec![Called::Name(Name::new(9, &address, &directory).unwrap())];
        for service in ["7471", "a b", "ü", &longest] {
            all.push(Called::Service(Service::new(service).unwrap()));
        }
        for at in ["10.0.0.2:7471", "[2001:db8::7]:1"] {
            all.push(Called::Server(Server::new(at.parse().unwrap()).unwrap()));
        }
        for called in all {
            let text = called.to_string();
            // The room that programs have for such texts.
            assert!(text.len() < 128, "{text}");
            assert_eq!(text.parse(), Ok(called));
            assert_eq!(Called::from_bytes(called.as_bytes()), Ok(called));
        }
        let wrong = [
            "",
            "fi_unipgas://",
            "fi_unipgas://:",
            "fi_unipgas://AAAA",
            "fi_shm://:7",
            "fi_unipgas://10.0.0.2:0",
            "fi_unipgas://h1:7471",
        ];
        for text in wrong {
            assert_eq!(text.parse::<Called>(), Err(Errno::INVAL), "{text}");
        }
        for service in ["", "a\0", "\n", &format!("{longest}x")] {
            assert_eq!(Service::new(service), Err(Errno::INVAL));
        }
    }
}
