//! This process's part of a network of streams.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::home::Home;
use super::issue::Requests;
use super::link::Link;
use super::network::Network;
use super::registration::{OwnPart, Registration, import};
use unipgas_base::atomic::ElementLocks;
use unipgas_base::bell::Bell;
use unipgas_base::driver::{Driven, Driver, Waits};
use unipgas_base::{Deadline, Result, Rights, user_memory};
use unipgas_engine::region::RemoteRegion;
use unipgas_engine::transport::{Life, Peer, Transport};

/// A [`Transport`] forwards its calls to it. The progress thread takes its turns. Its drop leaves.
pub struct Streams {
    home: Arc<Home>,
    driver: Arc<Driver>,
}

impl Streams {
    /// Opens the streams over `network`. `beside`: the first transport of the process, if it is another one. Errors: [`Error::Os`](unipgas_base::Error::Os).
    pub fn open(network: Arc<dyn Network>, beside: Option<Arc<dyn Transport>>) -> Result<Self> {
        let home = Arc::new(Home::open(network, beside)?);
        let driver = Driver::of_this_process()?;
        let driven: std::sync::Weak<dyn Driven> = Arc::<Home>::downgrade(&home);
        driver.enrol(driven, Waits::Never);
        driver.watch_events(home.as_fd())?;
        Ok(Streams { home, driver })
    }

    /// The state that all streams of the process share.
    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// See [`Transport::connect_within`].
    pub(crate) fn connect(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        let (index, link) = self.home.connect(address, deadline)?;
        Ok(Arc::new(Neighbour {
            index,
            link,
            home: self.home.clone(),
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
            return Registration::allocate(&self.home, len, rights, |_| Ok(OwnPart::default()));
        }
        Registration::allocate(&self.home, len, rights, own)
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
        Ok(unsafe { Registration::of_user(&self.home, base, len, rights, own) })
    }

    /// A channel of requests.
    pub(crate) fn open_channel(&self) -> Requests {
        Requests::new(&self.home, self.home.limits().depth)
    }

    /// See [`Transport::progress`].
    pub(crate) fn progress(&self) -> bool {
        self.home.take_answers_first();
        self.home.has_served()
    }

    /// See [`Transport::bell`].
    pub fn bell(&self) -> &Bell {
        self.home.registered().bell()
    }

    /// See [`Transport::locks`].
    pub fn locks(&self) -> &ElementLocks {
        self.home.registered().locks()
    }

    /// See [`Transport::hurry`].
    pub(crate) fn hurry(&self, deadline: Deadline) {
        self.home.hurry(deadline);
    }

    /// See [`Transport::leave`].
    pub(crate) fn leave(&self) {
        self.home.leave();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return;
        }
        self.leave();
        self.home.part();
        self.driver.forget_events(self.home.as_fd());
    }
}

/// A peer.
struct Neighbour {
    index: u32,
    link: Arc<Link>,
    home: Arc<Home>,
}

impl Peer for Neighbour {
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion> {
        import(key, self.index, &self.link, &self.home, deadline)
    }

    fn life(&self) -> Life {
        let life = self.link.life();
        if life == Life::Alive && self.link.stream().watch() {
            self.home.watch_silence();
        }
        life
    }

    fn declare_dead(&self) {
        self.link.declare_dead();
        self.home.wake();
    }
}
