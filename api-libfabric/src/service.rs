//! Services: endpoints that are found by a text that programs agree on, as with ports (`service` of fi_getinfo(3)).
//!
//! Each service that is in use on this machine has a file of the engine's rendezvous, in whose one place its endpoint's process says where
//! that is. Whoever looks for it needs nobody's help. Processes of other hosts, if there may be any, find those that are numbers of ports: the
//! endpoint's name is handed out at that port of TCP.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use unipgas_core::peer_numbers::NAME_LEN;
use unipgas_core::reception::{Inquiry, Reception, Reply};
use unipgas_core::rendezvous::{JobName, Layout, PROPERTIES_LEN, Rendezvous};
use unipgas_core::{Address, Error, RegionKey, Result as Outcome};

use crate::domain::Domain;
use crate::name::Name;
use crate::process::has_other_hosts;
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

    /// The port at which other hosts find it.
    pub fn port(&self) -> Option<u16> {
        self.text().parse().ok().filter(|port| *port > 0)
    }

    /// Says that the endpoint of this name, whose directory is there, is the service, until what is given is dropped, or the process ends. Errors:
    /// [`Errno::ADDRINUSE`] if another one is, or if other hosts were to find it at a port that another program has.
    pub(crate) fn serve(
        &self,
        name: &Name,
        address: &Address,
        directory: &RegionKey,
    ) -> Result<Served> {
        let rendezvous = Arc::new(self.join()?);
        match rendezvous.take_place(Some(PLACE)) {
            Err(Error::InvalidArgument(_)) => return Err(Errno::ADDRINUSE),
            taken => taken?,
        };
        let port = self.port().filter(|_| has_other_hosts() == Ok(true));
        let reception = port.map(|port| Reception::open(port, name.as_bytes()));
        let reception = reception.transpose().map_err(|error| match error {
            Error::Taken(port) => {
                unipgas_core::tell(&format!(
                    "the service has {port}, which another program uses"
                ));
                Errno::ADDRINUSE
            }
            error => error.into(),
        })?;
        rendezvous.publish(address, directory)?;
        let mut served = SERVED.lock();
        served.retain(|known| known.strong_count() > 0);
        served.push(Arc::downgrade(&rendezvous));
        Ok(Served {
            _reception: reception,
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
    _reception: Option<Reception>,
    _rendezvous: Arc<Rendezvous>,
}

/// A service of another host, as long as a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Server([u8; NAME_LEN]);

const SERVER: [u8; 2] = [0xf1, 0x03];
/// Address, port.
const IP: usize = SERVER.len();
const PORT: usize = IP + 16;

impl Server {
    /// The one at this port of a host. Errors: [`Errno::INVAL`] for what no process listens at.
    pub fn new(at: SocketAddr) -> Result<Server> {
        let ip = match at.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        if at.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
            return Err(Errno::INVAL);
        }
        let mut bytes = [0; NAME_LEN];
        bytes[..IP].copy_from_slice(&SERVER);
        bytes[IP..PORT].copy_from_slice(&ip.octets());
        bytes[PORT..PORT + 2].copy_from_slice(&at.port().to_be_bytes());
        Ok(Server(bytes))
    }

    /// From its bytes. Errors: [`Errno::INVAL`] for what is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Server> {
        let bytes: [u8; NAME_LEN] = bytes.try_into().map_err(|_| Errno::INVAL)?;
        let server = Server::new(Server(bytes).at())?;
        if server.0 == bytes {
            Ok(server)
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; NAME_LEN] {
        &self.0
    }

    /// Where it is.
    pub fn at(&self) -> SocketAddr {
        let ip: [u8; 16] = std::array::from_fn(|at| self.0[IP + at]);
        let port = u16::from_be_bytes([self.0[PORT], self.0[PORT + 1]]);
        SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
    }
}

/// Nobody is asked again before that.
const PAUSE: Duration = Duration::from_millis(50);

/// The search for a server of another host, by looks that never wait.
#[derive(Default)]
pub(crate) struct Search {
    inquiry: Option<Inquiry>,
    pause: Option<Instant>,
}

impl Search {
    /// The endpoint that is the service there; `None`: none is now, or it is not known yet. Errors: what keeps it from being reached.
    pub fn look(&mut self, server: &Server) -> Outcome<Option<Name>> {
        if self.pause.is_some_and(|pause| pause.elapsed() < PAUSE) {
            return Ok(None);
        }
        let mut inquiry = match self.inquiry.take() {
            Some(inquiry) => inquiry,
            None => Inquiry::begin(server.at())?,
        };
        match inquiry.look()? {
            Reply::Waits => self.inquiry = Some(inquiry),
            Reply::Nobody => self.pause = Some(Instant::now()),
            Reply::Said(name) => {
                let other_release = |_| {
                    let at = server.at();
                    Error::Unreachable(format!(
                        "the service at {at} is of another release of unipgas"
                    ))
                };
                return Name::from_bytes(&name).map(Some).map_err(other_release);
            }
        }
        Ok(None)
    }
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
