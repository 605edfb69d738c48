//! This process's place in the network.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use unipgas_core::agent::Registered;
use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::circuit::Gates;
use unipgas_core::op::Local;
use unipgas_core::region::{Memory, Rights};
use unipgas_core::registry::Opening;
use unipgas_core::schedule::Shapes;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{Accepted, After, Begun, Home, Link, Network, News, Streams};
use unipgas_core::transport::{Capabilities, Channel, Limits, Peer, Transport};
use unipgas_core::{Deadline, Error, Result};
use unipgas_utofu_sys::Functions;

use crate::address::Address;
use crate::conversation::Conversation;
use crate::endpoint::{Endpoint, PIGGYBACK};
use crate::library::Library;
use crate::net::{DEPTH, Net, Told};
use crate::region;
use crate::vcq;

/// Nobody waits longer for peers who take nothing.
const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes of the values for which the shapes of groups are chosen.
const SMALL: u64 = 64;

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
}

/// What the agent knows of it.
struct Fabric {
    net: Arc<Net>,
}

impl Network for Fabric {
    fn address(&self) -> &[u8] {
        bytemuck::bytes_of(&self.net.address)
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
        self.net.events()
    }

    fn progress(&self, turn: bool, _: bool) -> News {
        self.net.progress(turn)
    }

    fn is_moved_on_by_waiting(&self) -> bool {
        true
    }

    fn needs_beats(&self) -> bool {
        false
    }

    fn limits(&self) -> Limits {
        Limits {
            registered: true,
            depth: DEPTH,
            ..Limits::NONE
        }
    }

    fn check_local(&self, _: &Registered, local: Local, len: usize) -> Result<()> {
        match len == 0 || self.net.memories.has(local, len) {
            true => Ok(()),
            false => Err(Error::NotRegistered),
        }
    }

    fn requests_wait_for(&self) -> After {
        // They go by another VCQ.
        After::READS | After::OWN
    }

    fn has_settled(&self, link: &Link) -> bool {
        self.net.has_settled(Conversation::of(link))
    }

    fn imported(&self, link: &Link, told: &[u8]) -> Result<[u64; 3]> {
        region::imported(link, told)
    }
}

/// This process's place.
pub struct Tofu {
    /// Until this one is dropped.
    streams: Option<Streams>,
    net: Arc<Net>,
}

impl Tofu {
    /// By the machine's library, or that which UNIPGAS_TOFU_LIBRARY names. Errors: [`Error::Unreachable`]: why there is none; [`Error::Exhausted`], [`Error::Os`].
    pub fn from_env(opening: &Opening) -> Result<Self> {
        let mine = Arc::new(Mine {
            home: OnceLock::new(),
        });
        let net = Net::open(mine.clone())?;
        let first = &net.lanes.first().vcq;
        tracing::debug!("tofu: {}, on TNI {}", first.place(first.id), first.tni);
        let network = Arc::new(Fabric { net: net.clone() });
        let streams = Streams::open(network, opening.beside.clone())?;
        let _ = mine.home.set(Arc::downgrade(streams.home()));
        // What has come before.
        streams.home().wake();
        Ok(Tofu {
            streams: Some(streams),
            net,
        })
    }

    fn streams(&self) -> &Streams {
        self.streams.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Tofu {
    fn drop(&mut self) {
        let here = self.streams().home().is_here();
        if !here {
            // Nothing of it is the child's of a fork, whose locks others may have held; what the machine has is the parent's.
            std::mem::forget(self.net.clone());
        }
        self.streams = None;
        if here {
            self.net.close(Deadline::after(FAREWELL));
            // Whoever takes a turn just now lets go of it; what the machine has is given back by this thread.
            let soon = Deadline::after(TURN);
            while Arc::strong_count(&self.net) > 1 && !soon.expired() {
                std::thread::yield_now();
            }
        }
    }
}

impl Transport for Tofu {
    fn name(&self) -> &'static str {
        "tofu"
    }

    fn tag(&self) -> Tag {
        Tag::Tofu
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: true,
            registers_user_memory: true,
            maps: false,
            direct: false,
            alone: false,
            limits: Limits {
                lines: true,
                atomics: true,
                registered: true,
                inline: PIGGYBACK.min(self.net.caps.max_piggyback_size),
                largest: (self.net.caps.max_putget_size)
                    .min(self.streams().home().limits().largest),
                depth: DEPTH,
            },
        }
    }

    fn address(&self) -> Vec<u8> {
        bytemuck::bytes_of(&self.net.address).to_vec()
    }

    fn is_common(&self, address: &[u8]) -> bool {
        Address::decode(address).is_some()
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.streams().connect(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - stays mapped longer than the registration.
        let own = |base| unsafe { region::register(&self.net, base, len, true, true) };
        Ok(Box::new(self.streams().allocate(len, rights, own)?))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        let write = rights.intersects(Rights::WRITE | Rights::ATOMIC);
        // SAFETY:
        // - the caller's word.
        unsafe {
            let own = || region::register(&self.net, base, len, true, write);
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
            let own = || region::register(&self.net, base, len, false, write);
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

    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        Some(unipgas_tofud::table::shapes(members, each, SMALL))
    }

    fn gates(&self) -> Option<&dyn Gates> {
        Some(&self.net.gates)
    }

    fn hurry(&self, deadline: Deadline) {
        self.streams().hurry(deadline);
    }

    fn leave(&self) {
        self.streams().leave();
        // The process may end right after this, and what has not left by then never does.
        let soon = Deadline::after(FAREWELL);
        while self.streams().home().is_here() && self.net.is_under_way() && !soon.expired() {
            self.streams().progress();
            std::thread::yield_now();
        }
    }
}

/// Whether there is a library that can be used.
pub fn probe() -> std::result::Result<(), String> {
    let tnis = Library::get().and_then(|library| {
        vcq::tnis(library).map_err(|error| match error {
            Error::Unreachable(why) => why,
            error => error.to_string(),
        })
    });
    tnis.map(drop)
}

/// Those of the library, where it can be used.
pub fn functions() -> Option<&'static Functions> {
    probe().ok()?;
    Library::get().ok().map(|library| &library.functions)
}
