//! Services: endpoints that are found by a text that programs agree on, as with ports (`service` of fi_getinfo(3)).
//!
//! Each service that is in use on this machine has a file of the engine's rendezvous, in whose one place its endpoint's process says where
//! that is. Whoever looks for it needs nobody's help.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::peer_numbers::NAME_LEN;
use unipgas_core::rendezvous::{JobName, Layout, PROPERTIES_LEN, Rendezvous};
use unipgas_core::{Address, Error, RegionKey, Result as Outcome};

use crate::domain::Domain;
use crate::name::Name;
use crate::status::{Errno, Result};
use crate::target::read_directory_at;

const MAGIC: [u8; 2] = [0xf1, 0x02];
/// Magic, length of the text.
const HEAD: usize = 3;
/// The one place of a service's file.
const PLACE: u32 = 0;
/// The longest text, in bytes.
pub const LONGEST_SERVICE: usize = NAME_LEN - HEAD;

/// The name of a service: as long as that of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Service([u8; NAME_LEN]);

impl Service {
    /// The service that programs call so. Errors: [`Errno::INVAL`] for an empty text, more than [`LONGEST_SERVICE`] bytes, or control
    /// characters.
    pub fn new(text: &str) -> Result<Service> {
        let (len, controls) = (text.len(), text.chars().any(char::is_control));
        if len == 0 || len > LONGEST_SERVICE || controls {
            return Err(Errno::INVAL);
        }
        let mut bytes = [0; NAME_LEN];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = len as u8;
        bytes[HEAD..HEAD + len].copy_from_slice(text.as_bytes());
        Ok(Service(bytes))
    }

    /// From its bytes. Errors: [`Errno::INVAL`] for what is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Service> {
        let text = bytes.strip_prefix(&MAGIC).and_then(|rest| {
            let (len, rest) = rest.split_first()?;
            std::str::from_utf8(rest.get(..usize::from(*len))?).ok()
        });
        let service = Service::new(text.ok_or(Errno::INVAL)?)?;
        if service.0 == *bytes {
            Ok(service)
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; NAME_LEN] {
        &self.0
    }

    /// What programs call it.
    pub fn text(&self) -> &str {
        let len = usize::from(self.0[2]);
        std::str::from_utf8(&self.0[HEAD..HEAD + len]).unwrap_or_default()
    }

    fn join(&self) -> Outcome<Rendezvous> {
        let job = JobName::by_hand(&format!("libfabric service {}", self.text()));
        let layout = Layout {
            places: 1,
            places_per_group: 1,
            words_per_group: 0,
            properties: [0; PROPERTIES_LEN],
        };
        Rendezvous::join(&job, &layout)
    }

    /// Says that the endpoint whose directory is there is the service, until what is given is dropped, or the process ends. Errors:
    /// [`Errno::ADDRINUSE`] if another one is.
    pub(crate) fn serve(&self, address: &Address, directory: &RegionKey) -> Result<Served> {
        let rendezvous = Arc::new(self.join()?);
        match rendezvous.take_place(Some(PLACE)) {
            Err(Error::InvalidArgument(_)) => return Err(Errno::ADDRINUSE),
            taken => taken?,
        };
        rendezvous.publish(address, directory)?;
        let mut served = SERVED.lock();
        served.retain(|known| known.strong_count() > 0);
        served.push(Arc::downgrade(&rendezvous));
        Ok(Served {
            _rendezvous: rendezvous,
        })
    }

    /// The endpoint that is the service now; `None`: there is none. Errors: what keeps it from being reached.
    pub(crate) fn find(&self, domain: &Domain) -> Outcome<Option<Name>> {
        let rendezvous = self.join()?;
        let Some(found) = rendezvous.find(PLACE)?.filter(|_| rendezvous.alive(PLACE)) else {
            return Ok(None);
        };
        let directory = match read_directory_at(domain, &found.address, &found.key) {
            Ok((_, _, directory)) => directory,
            // It has just gone.
            Err(Error::PeerDead) => return Ok(None),
            Err(error) => return Err(error),
        };
        let name = Name::new(directory.id, &found.address, &found.key);
        Ok(name.ok())
    }
}

/// An endpoint's hold on a service.
pub(crate) struct Served {
    _rendezvous: Arc<Rendezvous>,
}

static SERVED: Mutex<Vec<Weak<Rendezvous>>> = Mutex::new(Vec::new());

/// For programs that end without closing what they have: so no file stays behind.
pub(crate) fn leave() {
    let Some(mut served) = SERVED.try_lock() else {
        return;
    };
    for rendezvous in served.drain(..) {
        if let Some(rendezvous) = rendezvous.upgrade() {
            rendezvous.end();
        }
    }
}
