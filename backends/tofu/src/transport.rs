//! The transport over Tofu.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use unipgas_core::agent::Registered;
use unipgas_core::bundle::Tag;
use unipgas_core::circuit::GateNetwork;
use unipgas_core::op::Local;
use unipgas_core::registry::Opening;
use unipgas_core::schedule::Shapes;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{
    Accepted, After, Begun, EventReceiver, Link, Network, OwnPart, ProgressEvents, Requests,
    StreamBackend, StreamTransport,
};
use unipgas_core::transport::{Channel, Limits};
use unipgas_core::{Deadline, Error, Result, Rights};
use unipgas_utofu_sys::UtofuFunctions;

use crate::address::TofuAddress;
use crate::backend::TAG;
use crate::conversation::TofuStream;
use crate::endpoint::{Endpoint, PIGGYBACK};
use crate::library::UtofuLibrary;
use crate::net::{DEPTH, TofuNet};
use crate::region;
use crate::vcq;

/// Bytes of a value, for the choice of group shapes.
const SMALL: u64 = 64;

impl Network for Tofu {
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
        Ok(self.net.owner.accept())
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        self.net.events()
    }

    fn progress(&self, turn: bool, _: bool) -> ProgressEvents {
        self.net.progress(turn)
    }

    fn limits(&self) -> Limits {
        Limits {
            registered: true,
            largest: self.net.caps.max_putget_size,
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
        // Requests use another VCQ.
        After::READS | After::OWN
    }

    fn has_settled(&self, link: &Link) -> bool {
        self.net.has_settled(TofuStream::of(link))
    }

    fn imported(&self, link: &Link, told: &[u8]) -> Result<[u64; 3]> {
        region::imported(link, told)
    }
}

/// This process's place in the network.
pub struct Tofu {
    net: Arc<TofuNet>,
}

impl Tofu {
    /// Opens the machine's library, or the library that UNIPGAS_TOFU_LIBRARY names. Errors: [`Error::Unreachable`] with the reason;
    /// [`Error::Exhausted`], [`Error::Os`].
    pub fn from_env(opening: &Opening) -> Result<StreamTransport<Self>> {
        let owner = Arc::new(EventReceiver::default());
        let net = TofuNet::open(owner.clone(), opening.incarnation)?;
        let first = &net.lanes.first().vcq;
        tracing::debug!("tofu: {}, on TNI {}", first.place(first.id), first.tni);
        StreamTransport::open(Arc::new(Tofu { net }), &owner, opening.beside.clone())
    }
}

impl StreamBackend for Tofu {
    const NAME: &'static str = "tofu";
    const TAG: Tag = TAG;

    fn channel_limits(&self, requests: &Limits) -> Limits {
        Limits {
            inline: PIGGYBACK.min(self.net.caps.max_piggyback_size),
            ..*requests
        }
    }

    fn is_common(&self, address: &[u8]) -> bool {
        TofuAddress::decode(address).is_some()
    }

    unsafe fn register_own(
        &self,
        base: *mut u8,
        len: usize,
        peers: Option<Rights>,
        write: bool,
    ) -> Result<OwnPart> {
        // SAFETY:
        // - contract of this call: the bytes are valid until the result is dropped.
        unsafe { region::register(&self.net, base, len, peers.is_some(), write) }
    }

    fn channel(&self, requests: Requests) -> Box<dyn Channel> {
        Box::new(Endpoint::new(self.net.clone(), requests))
    }

    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        Some(unipgas_tofud::table::shapes(members, each, SMALL))
    }

    fn gates(&self) -> Option<&dyn GateNetwork> {
        Some(&self.net.gates)
    }

    fn is_under_way(&self) -> bool {
        self.net.is_under_way()
    }

    fn close(&self, deadline: Deadline) {
        self.net.close(deadline);
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.net) > 1
    }
}

/// Whether the library is usable on this host. Errors: the reason.
pub fn probe() -> std::result::Result<(), String> {
    let tnis = UtofuLibrary::get().and_then(|library| {
        vcq::tnis(library).map_err(|error| match error {
            Error::Unreachable(why) => why,
            error => error.to_string(),
        })
    });
    tnis.map(drop)
}

/// Functions of the library. `None`: it is not usable.
pub fn functions() -> Option<&'static UtofuFunctions> {
    probe().ok()?;
    UtofuLibrary::get().ok().map(|library| &library.functions)
}
