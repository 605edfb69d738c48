//! This process's place in the network of streams.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::event::{EventfdFlags, eventfd};
use unipgas_core::agent::Registered;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::descriptor::above;
use unipgas_core::region::{Memory, RemoteRegion, Rights};
use unipgas_core::transport::{Capabilities, Channel, Life, Peer, Transport};
use unipgas_core::{Error, Result, variables};

use crate::agent::Agent;
use crate::endpoint::Endpoint;
use crate::link::Link;
use crate::region::{Heap, Registration, import};
use crate::release::Releases;
use crate::stream::{self, Listener};

/// What everything of one process shares.
pub struct Home {
    pub registered: Registered,
    pub heap: Heap,
    pub listener: Listener,
    /// Ends the agent's sleep.
    pub alarm: OwnedFd,
    pub stop: AtomicBool,
    pub leaving: AtomicBool,
    pub releases: Releases,
    /// Streams that the agent does not know yet.
    pub new_links: Mutex<Vec<Arc<Link>>>,
    links: RwLock<Vec<Arc<Link>>>,
}

impl Home {
    /// Lets the agent look around.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }

    /// The stream to the peer with this index.
    pub fn link(&self, peer: u32) -> Result<Arc<Link>> {
        let links = self.links.read();
        links.get(peer as usize).cloned().ok_or(Error::PeerDead)
    }
}

/// This process's place.
pub struct Opaque {
    // The agent goes before what it serves.
    _agent: Agent,
    home: Arc<Home>,
}

impl Opaque {
    /// With streams as UNIPGAS_OPAQUE says. Errors: [`Error::InvalidArgument`] for what it cannot say, [`Error::Os`].
    pub fn from_env() -> Result<Self> {
        let wish = variables::get("UNIPGAS_OPAQUE")?.unwrap_or_default();
        match wish.as_str() {
            "" => Opaque::open(false),
            "tcp" => Opaque::open(true),
            other => Err(variables::wrong(
                "UNIPGAS_OPAQUE",
                other,
                "must be empty or tcp",
            )),
        }
    }

    /// Begins to listen: at a Unix socket, or with TCP. Errors: [`Error::Os`].
    pub fn open(tcp: bool) -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let home = Arc::new(Home {
            registered: Registered::default(),
            heap: Heap::default(),
            listener: Listener::open(tcp)?,
            alarm: above(|| eventfd(0, flags)).map_err(|e| Error::os("eventfd", e))?,
            stop: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            releases: Releases::new(),
            new_links: Mutex::default(),
            links: RwLock::default(),
        });
        Ok(Opaque {
            _agent: Agent::start(&home)?,
            home,
        })
    }
}

impl Transport for Opaque {
    fn name(&self) -> &'static str {
        "opaque"
    }

    fn tag(&self) -> Tag {
        Tag::Opaque
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: true,
            registers_user_memory: true,
            direct: false,
        }
    }

    fn address(&self) -> Vec<u8> {
        self.home.listener.address.clone()
    }

    fn connect(&self, address: &[u8]) -> Result<Arc<dyn Peer>> {
        let link = Arc::new(Link::new(stream::reach(address)?));
        let mut links = self.home.links.write();
        links.push(link.clone());
        self.home.new_links.lock().push(link.clone());
        self.home.wake();
        Ok(Arc::new(Neighbour {
            index: links.len() as u32 - 1,
            link,
            home: self.home.clone(),
        }))
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Registration::allocate(&self.home, len, rights)?))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - the caller's word.
        let registration = unsafe { Registration::of_user(&self.home, base, len, rights) };
        Ok(Box::new(registration))
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(Box::new(Endpoint::new(&self.home)))
    }

    fn bell(&self) -> &Bell {
        self.home.registered.bell()
    }

    fn leave(&self) {
        self.home.leaving.store(true, Ordering::Release);
        self.home.wake();
        // The process may end right after this.
        self.home.releases.wait_until_left();
    }
}

impl Drop for Opaque {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Another process.
struct Neighbour {
    index: u32,
    link: Arc<Link>,
    home: Arc<Home>,
}

impl Peer for Neighbour {
    fn import(&self, key: &[u8]) -> Result<RemoteRegion> {
        if self.link.is_gone() {
            return Err(Error::PeerDead);
        }
        import(key, self.index, &self.link, &self.home)
    }

    fn life(&self) -> Life {
        self.link.life()
    }
}

/// It needs nothing but sockets.
pub fn probe() -> std::result::Result<(), String> {
    Listener::open(false)
        .map(drop)
        .map_err(|error| error.to_string())
}
