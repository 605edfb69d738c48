//! The decorated transport.

use std::os::fd::RawFd;
use std::sync::Arc;

use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::driver::Driver;
use unipgas_core::region::Memory;
use unipgas_core::registry::Opening;
use unipgas_core::transport::{Capabilities, Channel, Limits, Peer, Transport};
use unipgas_core::{Deadline, Result, Rights};

use crate::backend::below;
use crate::channel::ChaosChannel;
use crate::config::ChaosConfig;
use crate::hidden::HiddenPeer;
use crate::shared::Shared;

/// A backend that wraps another one, and carries out operations later and in another order.
///
/// Addresses, keys and the bell belong to the backend below, so processes with and without chaos can communicate. Imported regions are never mapped,
/// even if the backend below maps them: accesses through a mapping would bypass the chaos.
pub struct Chaos {
    shared: Arc<Shared>,
}

impl Chaos {
    /// Opens the backend that UNIPGAS_CHAOS names, and wraps it. Errors: [`Error::InvalidArgument`](unipgas_core::Error::InvalidArgument) for a wrong variable;
    /// errors of the backend.
    pub fn from_env(opening: &Opening) -> Result<Chaos> {
        let config = ChaosConfig::from_env()?;
        let below = below(&config, opening.other_hosts)?;
        Ok(Chaos::wrap((below.open)(opening)?, config))
    }

    /// Wraps `inner`.
    pub fn wrap(inner: Arc<dyn Transport>, config: ChaosConfig) -> Chaos {
        tracing::debug!(?config, inner = inner.name(), "chaos");
        Chaos {
            shared: Arc::new(Shared::new(inner, config)),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &ChaosConfig {
        &self.shared.config
    }

    fn flush(&self) {
        self.shared.each(|channel| channel.flush());
    }
}

impl Transport for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }

    fn tag(&self) -> Tag {
        self.shared.inner.tag()
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.shared.inner.capabilities();
        Capabilities {
            asynchronous: true,
            // Otherwise the engine would bypass the channel.
            maps: false,
            direct: false,
            limits: Limits {
                // The queue here holds operations that the backend below cannot take.
                depth: usize::MAX,
                ..inner.limits
            },
            ..inner
        }
    }

    fn address(&self) -> Vec<u8> {
        self.shared.inner.address()
    }

    fn is_common(&self, address: &[u8]) -> bool {
        self.shared.inner.is_common(address)
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        let peer = self.shared.inner.connect_within(address, deadline)?;
        Ok(Arc::new(HiddenPeer(peer)))
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        self.shared.inner.allocate(len, rights)
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - contract of `Transport::register`: the memory is valid until the registration is dropped.
        unsafe { self.shared.inner.register(base, len, rights) }
    }

    unsafe fn register_local(
        &self,
        base: *mut u8,
        len: usize,
        write: bool,
    ) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - contract of `Transport::register_local`: the memory is valid until the registration is dropped.
        unsafe { self.shared.inner.register_local(base, len, write) }
    }

    unsafe fn expose(&self, base: *mut u8, len: usize) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - contract of `Transport::expose`: the memory is valid until the registration is dropped.
        unsafe { self.shared.inner.expose(base, len) }
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        let inner = self.shared.inner.open_channel()?;
        let channel = ChaosChannel::new(inner, self.shared.clone(), Driver::of_this_process()?);
        Ok(Box::new(channel))
    }

    fn progress(&self) -> bool {
        self.shared.inner.progress()
    }

    fn bell(&self) -> &Bell {
        self.shared.inner.bell()
    }

    fn show_alarm(&self, alarm: RawFd) -> Result<()> {
        self.shared.inner.show_alarm(alarm)
    }

    fn locks(&self) -> &ElementLocks {
        self.shared.inner.locks()
    }

    fn hurry(&self, deadline: Deadline) {
        self.shared.inner.hurry(deadline);
    }

    fn leave(&self) {
        self.flush();
        self.shared.inner.leave();
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        self.flush();
    }
}
