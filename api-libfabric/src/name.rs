//! The name of an endpoint (fi_getname(3)): the address of its process, and the key of its directory there. It is opaque and has 64 bytes:
//! programs exchange names on their own, and have FI_NAME_MAX bytes of room for each.
//!
//! The address of a process with several transports may exceed a name. Then the name has only parts of transports that reach all hosts. The
//! directory, which peers read first, has all parts (`target`).

use std::ops::Range;

use data_encoding::BASE64URL_NOPAD;
use unipgas_core::bundle::{BUNDLE_LEN, Bundle};
use unipgas_core::peer_numbers::NAME_LEN;
use unipgas_core::{Address, Error, RegionKey};

use crate::service::{Server, ServiceName};
use crate::status::{Errno, Result};

const MAGIC: [u8; 2] = [0xf1, 0x01];
/// Magic, length of the address, length of the key, id.
const HEAD: usize = 12;

/// An endpoint's name: id, address of the process, key of the directory. Address and key lack trailing zeroes, and possibly the parts of some
/// transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndpointName([u8; NAME_LEN]);

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

impl EndpointName {
    /// The name of the endpoint `id`. Errors: [`Errno::NOMEM`] if address and key exceed 64 bytes.
    pub fn new(id: u64, address: &Address, directory: &RegionKey) -> Result<EndpointName> {
        let few = |parts: Range<usize>| {
            let (address, directory) = (address.only(parts.clone()), directory.only(parts));
            EndpointName::of(id, used(&address), used(&directory))
        };
        // The first of several transports serves peers of the same host. The others are in order of preference.
        let networks = (2..=address.count()).rev().map(|end| 1..end);
        let mut shorter = std::iter::once(0..address.count()).chain(networks);
        let name = shorter.find_map(few);
        name.ok_or_else(|| Error::Exhausted("room in a name".into()).into())
    }

    fn of(id: u64, address: &[u8], directory: &[u8]) -> Option<EndpointName> {
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
        Some(EndpointName(bytes))
    }

    /// A name from its bytes. Errors: [`Errno::INVAL`] unless an endpoint of this version made them.
    pub fn from_bytes(bytes: &[u8]) -> Result<EndpointName> {
        let bytes: [u8; NAME_LEN] = bytes.try_into().map_err(|_| Errno::INVAL)?;
        let name = EndpointName(bytes);
        let fits = name.len() <= NAME_LEN;
        if bytes[..2] == MAGIC && fits && name.id() != 0 {
            Ok(name)
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Number of used bytes.
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

    /// The process, perhaps without its best transport.
    pub fn address(&self) -> Address {
        padded(&self.0[HEAD..HEAD + self.lengths().0])
    }

    /// The directory, for access through [`address`](EndpointName::address).
    pub fn directory(&self) -> RegionKey {
        let (address, directory) = self.lengths();
        padded(&self.0[HEAD + address..HEAD + address + directory])
    }
}

/// The address of an endpoint in a program: its name, or its service. All forms have [`LEN`] bytes. The text (FI_ADDR_STR) of a name is
/// `fi_unipgas://` and the used bytes in Base64. The text of a service is `fi_unipgas://:` and the service, on another host `fi_unipgas://10.0.0.2:7471`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Called {
    /// The endpoint with this name.
    Name(EndpointName),
    /// The endpoint that provides the service at the first contact.
    Service(ServiceName),
    /// The endpoint that provides a service on another host, at the first contact.
    Server(Server),
}

/// Prefix of all texts. Alone it is not an address.
pub const SCHEME: &str = "fi_unipgas://";
/// Bytes of the longest form of an address: a text with its terminating zero.
pub const LONGEST: usize = SCHEME.len() + (4 * LEN).div_ceil(3) + 1;

impl Called {
    /// An address from its bytes. Errors: [`Errno::INVAL`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Called> {
        let name = EndpointName::from_bytes(bytes).map(Called::Name);
        let service = || ServiceName::from_bytes(bytes).map(Called::Service);
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
            return ServiceName::new(service).map(Called::Service);
        }
        if rest.contains(':') {
            let at = rest.parse().map_err(|_| Errno::INVAL)?;
            return Server::new(at).map(Called::Server);
        }
        let decoded = BASE64URL_NOPAD.decode(rest.as_bytes());
        let mut bytes = decoded.map_err(|_| Errno::INVAL)?;
        let given = bytes.len();
        bytes.resize(LEN.max(given), 0);
        let name = EndpointName::from_bytes(&bytes)?;
        // Exactly the used bytes, so each name has only one text.
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
        let address = Address::pack([(Tag::new(2), &[3u8; 20][..])]).unwrap();
        let directory = RegionKey::pack([(Tag::new(2), &[4u8; 8][..])]).unwrap();
        let name = EndpointName::new(77, &address, &directory).unwrap();
        let again = EndpointName::from_bytes(name.as_bytes()).unwrap();
        assert_eq!(
            (again.id(), again.address(), again.directory()),
            (77, address, directory)
        );
        assert_eq!(EndpointName::from_bytes(&[0; 64]), Err(Errno::INVAL));
        assert_eq!(
            EndpointName::from_bytes(&name.as_bytes()[1..]),
            Err(Errno::INVAL)
        );
    }

    #[test]
    fn of_several_transports_those_stay_that_reach_all_hosts() {
        let parts = |lens: [usize; 3]| {
            let tags = [Tag::new(2), Tag::new(3), Tag::LOOPBACK];
            let bytes = [[1; 40], [2; 40], [3; 40]];
            let parts: Vec<_> = (0..3)
                .map(|n| (tags[n], bytes[n][..lens[n]].to_vec()))
                .collect();
            Address::pack(parts.iter().map(|(tag, part)| (*tag, &part[..]))).unwrap()
        };
        // Kept parts: all three, the two networks, the first network. The case below keeps none.
        for (address, directory, kept) in [
            ([10, 5, 5], [4, 4, 4], 0..3),
            ([32, 10, 8], [8, 8, 8], 1..3),
            ([32, 16, 8], [8, 20, 20], 1..2),
        ] {
            let (address, directory) = (parts(address), parts(directory));
            let name = EndpointName::new(5, &address, &directory).unwrap();
            assert_eq!(name.address(), address.only(kept.clone()));
            assert_eq!(name.directory(), directory.only(kept));
            assert_eq!(EndpointName::from_bytes(name.as_bytes()), Ok(name));
        }
        let (address, directory) = (parts([10, 30, 10]), parts([10, 20, 20]));
        assert!(EndpointName::new(5, &address, &directory).is_err());
    }

    #[test]
    fn texts_mean_what_they_were_made_from() {
        let address = Address::pack([(Tag::new(2), &[3u8; 20][..])]).unwrap();
        let directory = RegionKey::pack([(Tag::new(2), &[0u8; 8][..])]).unwrap();
        let longest = "s".repeat(crate::service::LONGEST_SERVICE);
        let mut all = vec![Called::Name(
            EndpointName::new(9, &address, &directory).unwrap(),
        )];
        for service in ["7471", "a b", "ü", &longest] {
            all.push(Called::Service(ServiceName::new(service).unwrap()));
        }
        for at in ["10.0.0.2:7471", "[2001:db8::7]:1"] {
            all.push(Called::Server(Server::new(at.parse().unwrap()).unwrap()));
        }
        for called in all {
            let text = called.to_string();
            // The room of programs for such texts.
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
            assert_eq!(ServiceName::new(service), Err(Errno::INVAL));
        }
    }
}
