//! The route to a device that alone carries out the atomic operations on a region. The owner needs it too, and so do peers on its host, which map the region
//! and reach it by another transport.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::bundle::Tag;
use crate::region::RemoteRegion;
use crate::transport::{Capabilities, Peer, Transport};
use crate::{Deadline, Error, Result};

/// A second route to a process, over the network of the device. The first use connects.
pub(crate) struct AtomicsRoute {
    transport: Arc<dyn Transport>,
    route: u8,
    address: Vec<u8>,
    peer: Mutex<Option<Arc<dyn Peer>>>,
}

impl AtomicsRoute {
    pub(crate) fn new(transport: Arc<dyn Transport>, route: u8, address: &[u8]) -> Self {
        AtomicsRoute {
            transport,
            route,
            address: address.to_vec(),
            peer: Mutex::new(None),
        }
    }

    pub(crate) fn tag(&self) -> Tag {
        self.transport.tag()
    }

    /// Its network's name, for people.
    pub(crate) fn by(&self) -> &'static str {
        self.transport.name()
    }

    fn peer(&self, deadline: Deadline) -> Result<Arc<dyn Peer>> {
        let known = self.peer.lock().clone();
        match known {
            Some(peer) => Ok(peer),
            None => {
                let found = self.transport.connect_within(&self.address, deadline)?;
                Ok(self.peer.lock().get_or_insert(found).clone())
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.transport.capabilities()
    }
}

/// A region on the route to the device.
pub(crate) struct Executor {
    route: Arc<AtomicsRoute>,
    key: Vec<u8>,
    reached: OnceLock<RemoteRegion>,
}

impl Executor {
    pub(crate) fn new(detour: Arc<AtomicsRoute>, key: &[u8]) -> Self {
        Executor {
            route: detour,
            key: key.to_vec(),
            reached: OnceLock::new(),
        }
    }

    /// The region on this route. Errors: as [`Transport::connect_within`] and [`Peer::import`].
    pub(crate) fn reach(&self, deadline: Deadline) -> Result<&RemoteRegion> {
        if let Some(region) = self.reached.get() {
            return Ok(region);
        }
        let peer = self.route.peer(deadline)?;
        let region = peer.import(&self.key, deadline)?;
        let region = region.by(self.route.route, self.route.capabilities());
        Ok(self.reached.get_or_init(|| region))
    }
}

#[cold]
pub(crate) fn not_reached() -> Error {
    Error::Unreachable(
        "a device carries out the atomic operations of this region, and this process has no network in which it is".into(),
    )
}
