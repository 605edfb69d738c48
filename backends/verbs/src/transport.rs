//! The transport over verbs.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use unipgas_core::agent::Registered;
use unipgas_core::bundle::Tag;
use unipgas_core::op::Local;
use unipgas_core::registry::Opening;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{
    Accepted, After, Begun, EventReceiver, Link, Network, OwnPart, ProgressEvents, Requests,
    StreamBackend, StreamTransport,
};
use unipgas_core::transport::{Channel, Limits, Transport};
use unipgas_core::{Deadline, Error, Result, Rights};

use crate::address::VerbsAddress;
use crate::backend::TAG;
use crate::choice::{DevicePort, DeviceSelector, choose};
use crate::device::Context;
use crate::endpoint::Endpoint;
use crate::net::{DEPTH, VerbsNet};
use crate::region;

impl Network for Verbs {
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
        self.net.accept()
    }

    fn want_guests(&self, wanted: bool) {
        self.net.acceptor.want_strangers(wanted);
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        self.net.events()
    }

    fn progress(&self, turn: bool, _: bool) -> ProgressEvents {
        self.net.progress(turn)
    }

    fn may_rest(&self) -> bool {
        self.net.may_sleep()
    }

    fn limits(&self) -> Limits {
        Limits {
            registered: true,
            largest: self.net.port.longest as usize,
            depth: DEPTH as usize,
            ..Limits::NONE
        }
    }

    fn check_local(&self, _: &Registered, local: Local, len: usize) -> Result<()> {
        match len == 0 || self.net.operands.find(local, len).is_some() {
            true => Ok(()),
            false => Err(Error::NotRegistered),
        }
    }

    fn requests_wait_for(&self) -> After {
        // Messages stay behind earlier writes.
        After::READS
    }

    fn imported(&self, link: &Link, told: &[u8]) -> Result<[u64; 3]> {
        region::imported(link, told)
    }
}

/// This process's place in the network.
pub struct Verbs {
    net: Arc<VerbsNet>,
}

impl Verbs {
    /// Opens the best device, or the device of UNIPGAS_VERBS_DEVICE. Errors: [`Error::Unreachable`] with the reason;
    /// [`Error::InvalidArgument`], [`Error::Exhausted`], [`Error::Os`].
    pub fn from_env(opening: &Opening) -> Result<StreamTransport<Self>> {
        let chosen = choose(&DeviceSelector::from_env()?)?;
        Verbs::open(chosen, opening.beside.clone())
    }

    fn open(
        chosen: (Context, DevicePort),
        beside: Option<Arc<dyn Transport>>,
    ) -> Result<StreamTransport<Self>> {
        let owner = Arc::new(EventReceiver::default());
        let net = VerbsNet::open(chosen, owner.clone())?;
        tracing::debug!("verbs: {} {:?}", net.device.context.name, net.port);
        StreamTransport::open(Arc::new(Verbs { net }), &owner, beside)
    }
}

impl StreamBackend for Verbs {
    const NAME: &'static str = "verbs";
    const TAG: Tag = TAG;

    fn channel_limits(&self, requests: &Limits) -> Limits {
        Limits {
            inline: self.net.inline as usize,
            ..*requests
        }
    }

    fn is_alone(&self) -> bool {
        self.net.device.is_alone()
    }

    fn is_common(&self, address: &[u8]) -> bool {
        VerbsAddress::decode(address).is_some()
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
        unsafe {
            region::register(
                &self.net,
                base,
                len,
                peers.unwrap_or(Rights::empty()),
                write,
            )
        }
    }

    fn channel(&self, requests: Requests) -> Box<dyn Channel> {
        Box::new(Endpoint::new(self.net.clone(), requests))
    }

    fn is_under_way(&self) -> bool {
        self.net.is_under_way()
    }

    fn close(&self, deadline: Deadline) {
        self.net.close(deadline);
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.net) > 1 || Arc::strong_count(&self.net.lives) > 1
    }
}

/// Whether a device is usable on this host. Errors: the reason.
pub fn probe() -> std::result::Result<(), String> {
    let chosen = DeviceSelector::from_env().and_then(|wish| choose(&wish));
    chosen.map(drop).map_err(|error| match error {
        Error::Unreachable(why) => why,
        error => error.to_string(),
    })
}
