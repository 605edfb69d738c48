//! Services: endpoints that programs find by an agreed text, for example a port number (`service` of fi_getinfo(3)).
//!
//! Each service in use on this machine has a rendezvous file. The process of its endpoint publishes its address in the one place of the file,
//! so peers need no help to find it. Processes of other hosts find services that are port numbers: the endpoint's process serves its name at
//! this TCP port.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use unipgas_core::peer_numbers::NAME_LEN;
use unipgas_core::reception::{Inquiry, InquiryResult, Reception};
use unipgas_core::rendezvous::{JobName, Layout, PROPERTIES_LEN, Rendezvous};
use unipgas_core::{Address, Error, RegionKey, Result as Outcome};

use crate::domain::Domain;
use crate::name::EndpointName;
use crate::process::has_other_hosts;
use crate::status::{Errno, Result};
use crate::target::read_directory_at;

const MAGIC: [u8; 2] = [0xf1, 0x02];
/// Magic, length of the text.
const HEAD: usize = 3;
/// Index of the one place in a service's file.
const PLACE: u32 = 0;
/// The longest text, in bytes.
pub const LONGEST_SERVICE: usize = NAME_LEN - HEAD;

/// The name of a service. It is as long as an endpoint's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceName([u8; NAME_LEN]);

impl ServiceName {
    /// The service with this text. Errors: [`Errno::INVAL`] for an empty text, more than [`LONGEST_SERVICE`] bytes, or control characters.
    pub fn new(text: &str) -> Result<ServiceName> {
        let (len, controls) = (text.len(), text.chars().any(char::is_control));
        if len == 0 || len > LONGEST_SERVICE || controls {
            return Err(Errno::INVAL);
        }
        let mut bytes = [0; NAME_LEN];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = len as u8;
        bytes[HEAD..HEAD + len].copy_from_slice(text.as_bytes());
        Ok(ServiceName(bytes))
    }

    /// A service from its bytes. Errors: [`Errno::INVAL`] for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<ServiceName> {
        let text = bytes.strip_prefix(&MAGIC).and_then(|rest| {
            let (len, rest) = rest.split_first()?;
            std::str::from_utf8(rest.get(..usize::from(*len))?).ok()
        });
        let service = ServiceName::new(text.ok_or(Errno::INVAL)?)?;
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

    /// Its text.
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

    /// The TCP port for other hosts.
    pub fn port(&self) -> Option<u16> {
        self.text().parse().ok().filter(|port| *port > 0)
    }

    /// Announces this endpoint as the service, until the result is dropped or the process ends. Errors: [`Errno::ADDRINUSE`] if another endpoint
    /// provides the service, or if another program uses the port for other hosts.
    pub(crate) fn serve(
        &self,
        name: &EndpointName,
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

    /// The endpoint that provides the service now. `None`: there is none. Errors: it is unreachable.
    pub(crate) fn find(&self, domain: &Domain) -> Outcome<Option<EndpointName>> {
        let rendezvous = self.join()?;
        let Some(found) = rendezvous.find(PLACE)?.filter(|_| rendezvous.alive(PLACE)) else {
            return Ok(None);
        };
        let directory = match read_directory_at(domain, &found.address, &found.key) {
            Ok((_, _, directory)) => directory,
            // The endpoint has just ended.
            Err(Error::PeerDead) => return Ok(None),
            Err(error) => return Err(error),
        };
        let name = EndpointName::new(directory.id, &found.address, &found.key);
        Ok(name.ok())
    }
}

/// An endpoint's claim of a service.
pub(crate) struct Served {
    _reception: Option<Reception>,
    _rendezvous: Arc<Rendezvous>,
}

/// A service of another host. It is as long as a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Server([u8; NAME_LEN]);

const SERVER: [u8; 2] = [0xf1, 0x03];
/// Address, port.
const IP: usize = SERVER.len();
const PORT: usize = IP + 16;

impl Server {
    /// The service at this port of a host. Errors: [`Errno::INVAL`] for an address without listeners: port 0, unspecified, multicast.
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

    /// A service from its bytes. Errors: [`Errno::INVAL`] for other bytes.
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

    /// Its socket address.
    pub fn at(&self) -> SocketAddr {
        let ip: [u8; 16] = std::array::from_fn(|at| self.0[IP + at]);
        let port = u16::from_be_bytes([self.0[PORT], self.0[PORT + 1]]);
        SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
    }
}

/// Least time between two requests after an answer without a service.
const PAUSE: Duration = Duration::from_millis(50);

/// The search for a server of another host. It never waits.
#[derive(Default)]
pub(crate) struct Search {
    inquiry: Option<Inquiry>,
    pause: Option<Instant>,
}

impl Search {
    /// The endpoint that provides the service there. `None`: there is none now, or the answer is pending. Errors: it is unreachable.
    pub fn look(&mut self, server: &Server) -> Outcome<Option<EndpointName>> {
        if self.pause.is_some_and(|pause| pause.elapsed() < PAUSE) {
            return Ok(None);
        }
        let mut inquiry = match self.inquiry.take() {
            Some(inquiry) => inquiry,
            None => Inquiry::begin(server.at())?,
        };
        match inquiry.look()? {
            InquiryResult::Waits => self.inquiry = Some(inquiry),
            InquiryResult::Nobody => self.pause = Some(Instant::now()),
            InquiryResult::Said(name) => {
                let other_release = |_| {
                    let at = server.at();
                    Error::Unreachable(format!(
                        "the service at {at} is of another release of unipgas"
                    ))
                };
                return EndpointName::from_bytes(&name)
                    .map(Some)
                    .map_err(other_release);
            }
        }
        Ok(None)
    }
}

static SERVED: Mutex<Vec<Weak<Rendezvous>>> = Mutex::new(Vec::new());

/// Removes the files of services at exit, for programs that do not close their endpoints.
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
