//! This process's part of a network of streams.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::issue::Requests;
use super::link::Link;
use super::network::Network;
use super::registration::{OwnPart, Registration, import};
use super::stream_node::StreamNode;
use unipgas_base::atomic::ElementLocks;
use unipgas_base::bell::Bell;
use unipgas_base::driver::{Driven, Driver, Waits};
use unipgas_base::{Deadline, Result, Rights, user_memory};
use unipgas_engine::region::RemoteRegion;
use unipgas_engine::transport::{Life, Peer, Transport};

/// A [`Transport`] forwards its calls to it. The progress thread takes its turns. Its drop leaves.
pub struct Streams {
    node: Arc<StreamNode>,
    driver: Arc<Driver>,
}

impl Streams {
    /// Opens the streams over `network`. `beside`: the first transport of the process, if it is another one. Errors: [`Error::Os`](unipgas_base::Error::Os).
    pub fn open(network: Arc<dyn Network>, beside: Option<Arc<dyn Transport>>) -> Result<Self> {
        let node = Arc::new(StreamNode::open(network, beside)?);
        let driver = Driver::of_this_process()?;
        let driven: std::sync::Weak<dyn Driven> = Arc::<StreamNode>::downgrade(&node);
        driver.enrol(driven, Waits::Never);
        driver.watch_events(node.as_fd())?;
        Ok(Streams { node, driver })
    }

    /// The state that all streams of the process share.
    pub fn node(&self) -> &Arc<StreamNode> {
        &self.node
    }

    /// See [`Transport::connect_within`].
    pub(crate) fn connect(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        let (index, link) = self.node.connect(address, deadline)?;
        Ok(Arc::new(Neighbour {
            index,
            link,
            node: self.node.clone(),
        }))
    }

    /// See [`Transport::allocate`]. Calls `own` with the memory.
    pub(crate) fn allocate(
        &self,
        len: usize,
        rights: Rights,
        own: impl FnOnce(*mut u8) -> Result<OwnPart>,
    ) -> Result<Registration> {
        if rights.contains(Rights::RECORDS) {
            return Registration::allocate(&self.node, len, rights, |_| Ok(OwnPart::default()));
        }
        Registration::allocate(&self.node, len, rights, own)
    }

    /// See [`Transport::register`]; without rights, [`Transport::register_local`]. `needed`: the access that this process itself must have. Calls `own` after
    /// this check.
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the registration is dropped.
    pub(crate) unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
        needed: Rights,
        own: impl FnOnce() -> Result<OwnPart>,
    ) -> Result<Registration> {
        let by_address = rights.contains(Rights::BY_ADDRESS);
        if !by_address {
            user_memory::check_access(base, len, needed)?;
        }
        let own = match by_address || rights.contains(Rights::RECORDS) {
            true => OwnPart::default(),
            false => own()?,
        };
        // SAFETY:
        // - contract of this call: valid until the registration is dropped.
        Ok(unsafe { Registration::of_user(&self.node, base, len, rights, own) })
    }

    /// A channel of requests.
    pub(crate) fn open_channel(&self) -> Requests {
        Requests::new(&self.node, self.node.limits().depth)
    }

    /// See [`Transport::progress`].
    pub(crate) fn progress(&self) -> bool {
        self.node.take_answers_first();
        self.node.has_served()
    }

    /// See [`Transport::bell`].
    pub fn bell(&self) -> &Bell {
        self.node.registered().bell()
    }

    /// See [`Transport::locks`].
    pub fn locks(&self) -> &ElementLocks {
        self.node.registered().locks()
    }

    /// See [`Transport::hurry`].
    pub(crate) fn hurry(&self, deadline: Deadline) {
        self.node.hurry(deadline);
    }

    /// See [`Transport::leave`].
    pub(crate) fn leave(&self) {
        self.node.leave();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if !self.node.is_here() {
            return;
        }
        self.leave();
        self.node.part();
        self.driver.forget_events(self.node.as_fd());
    }
}

/// A peer.
struct Neighbour {
    index: u32,
    link: Arc<Link>,
    node: Arc<StreamNode>,
}

impl Peer for Neighbour {
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion> {
        import(key, self.index, &self.link, &self.node, deadline)
    }

    fn life(&self) -> Life {
        let life = self.link.life();
        if life == Life::Alive && self.link.stream().watch() {
            self.node.watch_silence();
        }
        life
    }

    fn declare_dead(&self) {
        self.link.declare_dead();
        self.node.wake();
    }
}
