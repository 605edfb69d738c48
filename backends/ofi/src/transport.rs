//! The transport over libfabric.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use unipgas_core::bundle::Tag;
use unipgas_core::registry::Opening;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{
    Accepted, After, Begun, EventReceiver, Link, Network, OwnPart, ProgressEvents, Requests,
    StreamBackend, StreamTransport,
};
use unipgas_core::transport::{Channel, Limits, Transport};
use unipgas_core::{Deadline, Error, Result, Rights};

use crate::address::OfiAddress;
use crate::backend::TAG;
use crate::choice::{ProviderInfo, ProviderSelector, choose};
use crate::endpoint::{Endpoint, INLINE};
use crate::fabric;
use crate::liveness_listener::LivenessListener;
use crate::net::OfiNet;
use crate::region;

impl Network for Ofi {
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
        Ok(self.net.owner.accept())
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let lifeline = self.net.lifeline().and_then(LivenessListener::events);
        self.net
            .fabric
            .events()
            .into_iter()
            .chain(lifeline)
            .collect()
    }

    fn progress(&self, turn: bool, alone: bool) -> ProgressEvents {
        let news = self.net.progress(turn, alone);
        if turn && let Some(lifeline) = self.net.lifeline() {
            lifeline.dismiss();
        }
        news
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
            largest: self.net.fabric.traits.longest,
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
        let address = OfiAddress::decode(link.address()).ok_or(Error::StaleRegion)?;
        // The conversation with the owner keeps its endpoint in use.
        let tag = self.net.names.tag(&address.name);
        region::imported(&self.net, told, tag.ok_or(Error::StaleRegion)?)
    }
}

/// A transport over libfabric.
pub struct Ofi {
    pub(crate) net: Arc<OfiNet>,
}

impl Ofi {
    /// Opens the best provider, or the choice of UNIPGAS_OFI_PROVIDER and UNIPGAS_OFI_INTERFACE. Errors: [`Error::Unreachable`] with the reason;
    /// [`Error::InvalidArgument`], [`Error::Os`].
    pub fn from_env(opening: &Opening) -> Result<StreamTransport<Self>> {
        let info = choose(&ProviderSelector::from_env()?, opening.other_hosts)?;
        Ofi::open(info, opening.beside.clone())
    }

    pub(crate) fn open(
        info: ProviderInfo,
        beside: Option<Arc<dyn Transport>>,
    ) -> Result<StreamTransport<Self>> {
        let owner = Arc::new(EventReceiver::default());
        let net = OfiNet::open(info, owner.clone())?;
        tracing::debug!("ofi: {:?} at {}", net.fabric.traits, net.fabric.interface());
        StreamTransport::open(Arc::new(Ofi { net }), &owner, beside)
    }
}

impl StreamBackend for Ofi {
    const NAME: &'static str = "ofi";
    const TAG: Tag = TAG;

    fn channel_limits(&self, requests: &Limits) -> Limits {
        let traits = &self.net.fabric.traits;
        Limits {
            registered: traits.local,
            inline: traits.inject.min(INLINE),
            ..*requests
        }
    }

    fn is_common(&self, address: &[u8]) -> bool {
        // A process with another protocol version gets an error text later.
        OfiAddress::decode(address).is_none_or(|to| to.provider == self.net.provider)
    }

    unsafe fn register_own(
        &self,
        base: *mut u8,
        len: usize,
        peers: Option<Rights>,
        _: bool,
    ) -> Result<OwnPart> {
        // SAFETY:
        // - contract of this function.
        unsafe { region::register(&self.net, base, len, peers.unwrap_or(Rights::empty())) }
    }

    fn channel(&self, requests: Requests) -> Box<dyn Channel> {
        Box::new(Endpoint::new(self.net.clone(), requests))
    }

    fn close(&self, deadline: Deadline) {
        // Conversations carry the farewell, so they close last.
        self.net.close(deadline);
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.net) > 1
    }
}

/// Whether libfabric is installed, with a usable provider that opens. Errors: the reason.
pub fn probe(other_hosts: bool) -> std::result::Result<(), String> {
    let open = || fabric::Fabric::open(choose(&ProviderSelector::from_env()?, other_hosts)?);
    open().map(drop).map_err(|error: Error| error.to_string())
}
