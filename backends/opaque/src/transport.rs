//! This process's place in the network of streams.

use std::sync::Arc;

use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::region::{Memory, Rights};
use unipgas_core::registry::Opening;
use unipgas_core::streams::{OwnPart, Streams};
use unipgas_core::transport::{Capabilities, Channel, Peer, Transport};
use unipgas_core::{Deadline, Result};

use crate::network::Sockets;
use crate::options::Options;
use crate::stream::Listener;

/// This process's place.
pub struct Opaque(Streams);

impl Opaque {
    /// As UNIPGAS_OPAQUE says; with TCP in any case where other hosts are to be reached. Errors:
    /// [`Error::InvalidArgument`](unipgas_core::Error::InvalidArgument) for what it cannot say, [`Error::Os`](unipgas_core::Error::Os).
    pub fn from_env(opening: &Opening) -> Result<Self> {
        let mut options = Options::from_env()?;
        options.tcp |= opening.other_hosts;
        Opaque::open(options, opening.beside.clone())
    }

    /// Begins to listen. `beside`: the process's first transport, if that is another one. Errors: [`Error::Os`](unipgas_core::Error::Os).
    pub fn open(options: Options, beside: Option<Arc<dyn Transport>>) -> Result<Self> {
        let sockets = Arc::new(Sockets::open(options)?);
        Streams::open(sockets, beside).map(Opaque)
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
            maps: false,
            direct: false,
            alone: false,
            limits: *self.0.home().limits(),
        }
    }

    fn address(&self) -> Vec<u8> {
        self.0.home().network().address().to_vec()
    }

    fn is_common(&self, _address: &[u8]) -> bool {
        true
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.0.connect(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        let registration = self.0.allocate(len, rights, |_| Ok(OwnPart::default()))?;
        Ok(Box::new(registration))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        let own = || Ok(OwnPart::default());
        // SAFETY:
        // - the caller's word.
        let registration = unsafe { self.0.register(base, len, rights, rights, own) }?;
        Ok(Box::new(registration))
    }

    unsafe fn register_local(
        &self,
        base: *mut u8,
        len: usize,
        write: bool,
    ) -> Result<Box<dyn Memory>> {
        let needed = if write { Rights::WRITE } else { Rights::READ };
        let own = || Ok(OwnPart::default());
        // SAFETY:
        // - the caller's word.
        let registration = unsafe { self.0.register(base, len, Rights::empty(), needed, own) }?;
        Ok(Box::new(registration))
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(Box::new(self.0.open_channel()))
    }

    fn bell(&self) -> &Bell {
        self.0.bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.0.locks()
    }

    fn hurry(&self, deadline: Deadline) {
        self.0.hurry(deadline);
    }

    fn leave(&self) {
        self.0.leave();
    }
}

/// It needs nothing but sockets.
pub fn probe() -> std::result::Result<(), String> {
    Listener::open(false)
        .map(drop)
        .map_err(|error| error.to_string())
}
