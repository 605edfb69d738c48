//! This process's place in the fabric.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::driver::Driver;
use unipgas_core::region::{Memory, Rights};
use unipgas_core::registry::Opening;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{Accepted, After, Begun, Home, Link, Network, News, Streams};
use unipgas_core::transport::{Capabilities, Channel, Limits, Peer, Transport};
use unipgas_core::{Deadline, Error, Result};

use crate::address::Address;
use crate::choice::{Info, Wish, choose};
use crate::endpoint::{Endpoint, INLINE};
use crate::fabric;
use crate::lifeline::Lifeline;
use crate::net::{Net, Told};
use crate::region;

/// Nobody waits longer for peers who take nothing.
const FAREWELL: Duration = Duration::from_secs(1);

/// A turn takes less.
const TURN: Duration = Duration::from_millis(100);

/// The process that is told, once it is there.
struct Mine {
    home: OnceLock<Weak<Home>>,
}

impl Mine {
    fn home(&self) -> Option<Arc<Home>> {
        self.home.get()?.upgrade()
    }
}

impl Told for Mine {
    fn written(&self) {
        if let Some(home) = self.home() {
            home.registered().bell().ring_if_heard();
        }
    }

    fn wake(&self) {
        if let Some(home) = self.home() {
            home.wake();
        }
    }

    fn watch_silence(&self) {
        if let Some(home) = self.home() {
            home.watch_silence();
        }
    }
}

/// What the agent knows of it.
struct Fabric {
    net: Arc<Net>,
}

impl Network for Fabric {
    fn address(&self) -> &[u8] {
        &self.net.address
    }

    fn secret(&self) -> [u8; SECRET] {
        self.net.secret
    }

    fn reach(&self, address: &[u8]) -> Result<Begun> {
        Ok(Begun {
            stream: self.net.reach(address)?,
            secret: None,
        })
    }

    fn accept(&self) -> Result<Option<Accepted>> {
        Ok(self.net.accept())
    }

    fn want_guests(&self, _: bool) {}

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let lifeline = self.net.lifeline().and_then(Lifeline::events);
        self.net
            .fabric
            .events()
            .into_iter()
            .chain(lifeline)
            .collect()
    }

    fn progress(&self, turn: bool, alone: bool) -> News {
        if turn && let Some(lifeline) = self.net.lifeline() {
            lifeline.dismiss();
        }
        self.net.progress(turn, alone)
    }

    fn is_moved_on_by_waiting(&self) -> bool {
        true
    }

    fn needs_beats(&self) -> bool {
        self.net.needs_beats()
    }

    fn may_rest(&self) -> bool {
        self.net.fabric.may_sleep()
    }

    fn limits(&self) -> Limits {
        Limits {
            atomics: false,
            depth: self.net.fabric.traits.depth,
            ..Limits::NONE
        }
    }

    fn requests_wait_for(&self) -> After {
        match self.net.fabric.traits.send_after_write {
            true => After::READS,
            false => After::READS | After::OWN,
        }
    }

    fn imported(&self, link: &Link, told: &[u8]) -> Result<[u64; 3]> {
        let address = Address::decode(link.address()).ok_or(Error::StaleRegion)?;
        // The conversation with the owner is in use.
        let tag = self.net.names.tag(&address.name);
        region::imported(&self.net, told, tag.ok_or(Error::StaleRegion)?)
    }
}

/// This process's place.
pub struct Ofi {
    /// Until this one is dropped.
    streams: Option<Streams>,
    pub(crate) net: Arc<Net>,
    /// Where nothing tells when there is something to do.
    beats: Option<Arc<Driver>>,
}

impl Ofi {
    /// By the provider that fits best, or that UNIPGAS_OFI_PROVIDER and UNIPGAS_OFI_INTERFACE say. Errors: [`Error::Unreachable`]: why there is
    /// none; [`Error::InvalidArgument`], [`Error::Os`].
    pub fn from_env(opening: &Opening) -> Result<Self> {
        let info = choose(&Wish::from_env()?, opening.other_hosts)?;
        Ofi::open(info, opening.beside.clone())
    }

    pub(crate) fn open(info: Info, beside: Option<Arc<dyn Transport>>) -> Result<Self> {
        let mine = Arc::new(Mine {
            home: OnceLock::new(),
        });
        let net = Net::open(info, mine.clone())?;
        tracing::debug!("ofi: {:?} at {}", net.fabric.traits, net.fabric.interface());
        let network = Arc::new(Fabric { net: net.clone() });
        let streams = Streams::open(network, beside)?;
        let _ = mine.home.set(Arc::downgrade(streams.home()));
        // What has come before.
        streams.home().wake();
        let driver = Driver::of_this_process()?;
        let beats = net.fabric.events().is_none().then_some(driver);
        beats.iter().for_each(|driver| driver.more());
        Ok(Ofi {
            streams: Some(streams),
            net,
            beats,
        })
    }
}

impl Ofi {
    fn streams(&self) -> &Streams {
        self.streams.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        let here = self.streams().home().is_here();
        // It says farewell by the conversations.
        self.streams = None;
        if here {
            self.net.close(Deadline::after(FAREWELL));
            // Whoever takes a turn just now lets go of it; what the provider has is given back by this thread.
            let soon = Deadline::after(TURN);
            while Arc::strong_count(&self.net) > 1 && !soon.expired() {
                std::thread::yield_now();
            }
        }
        self.beats.iter().for_each(|driver| driver.fewer(1));
    }
}

impl Transport for Ofi {
    fn name(&self) -> &'static str {
        "ofi"
    }

    fn tag(&self) -> Tag {
        Tag::Ofi
    }

    fn capabilities(&self) -> Capabilities {
        let traits = &self.net.fabric.traits;
        Capabilities {
            asynchronous: true,
            registers_user_memory: true,
            maps: false,
            direct: false,
            alone: false,
            limits: Limits {
                lines: true,
                atomics: false,
                registered: traits.local,
                inline: traits.inject.min(INLINE),
                largest: traits.longest.min(self.streams().home().limits().largest),
                depth: traits.depth,
            },
        }
    }

    fn address(&self) -> Vec<u8> {
        self.net.address.clone()
    }

    fn is_common(&self, address: &[u8]) -> bool {
        // Who speaks another version is told so.
        Address::decode(address).is_none_or(|to| to.provider == self.net.provider)
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.streams().connect(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - stays mapped longer than the registration.
        let own = |base| unsafe { region::register(&self.net, base, len, rights) };
        Ok(Box::new(self.streams().allocate(len, rights, own)?))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - the caller's word.
        unsafe {
            let own = || region::register(&self.net, base, len, rights);
            let registration = self.streams().register(base, len, rights, rights, own)?;
            Ok(Box::new(registration))
        }
    }

    unsafe fn register_local(
        &self,
        base: *mut u8,
        len: usize,
        write: bool,
    ) -> Result<Box<dyn Memory>> {
        let needed = if write { Rights::WRITE } else { Rights::READ };
        // SAFETY:
        // - the caller's word.
        unsafe {
            let own = || region::register(&self.net, base, len, Rights::empty());
            let registration = self
                .streams()
                .register(base, len, Rights::empty(), needed, own)?;
            Ok(Box::new(registration))
        }
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(Box::new(Endpoint::new(
            self.net.clone(),
            self.streams().open_channel(),
        )))
    }

    fn progress(&self) -> bool {
        self.streams().progress()
    }

    fn bell(&self) -> &Bell {
        self.streams().bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.streams().locks()
    }

    fn hurry(&self, deadline: Deadline) {
        self.streams().hurry(deadline);
    }

    fn leave(&self) {
        self.streams().leave();
    }
}

/// Whether there is a libfabric here, and a provider that fits, and opens.
pub fn probe(other_hosts: bool) -> std::result::Result<(), String> {
    let open = || fabric::Fabric::open(choose(&Wish::from_env()?, other_hosts)?);
    open().map(drop).map_err(|error: Error| error.to_string())
}
