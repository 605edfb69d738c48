//! Domains (fi_domain(3)): owners of memory regions, queues and endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unipgas_core::Engine;
use unipgas_core::Service;
use unipgas_core::keyring::KeyRing;
use unipgas_core::tally::Tallies;
use unipgas_core::watcher::{Watched, Watcher};

use crate::process;
use crate::status::Result;
use crate::trigger::{Deferred, Work};

/// Bytes of the data in a completion.
pub const CQ_DATA_SIZE: usize = 8;
/// Maximum queues, and maximum counters, of a domain. They use no resource that peers share.
pub const MOST: usize = 1 << 16;
/// Maximum endpoints of a domain.
pub const MOST_ENDPOINTS: usize = 256;
/// Maximum memory regions of a domain.
pub const MOST_REGIONS: usize = 8192;

/// Addressing of a domain's memory, and progress of its objects.
#[derive(Debug, Clone, Copy, Default)]
pub struct DomainOptions {
    /// FI_MR_VIRT_ADDR: remote addresses are the owner's virtual addresses. Otherwise they begin at 0.
    pub virtual_addresses: bool,
    /// FI_MR_PROV_KEY: the domain chooses keys. Otherwise the caller that registers memory does.
    pub own_keys: bool,
    /// The mode lacks FI_MR_ALLOCATED: memory below a registration may come, go and be replaced. So peers access it by copies of the kernel.
    pub by_address: bool,
    /// Memory that exists at its registration stays in place nevertheless. Peers do not access it by address.
    pub in_place: bool,
    /// FI_PROGRESS_AUTO: messages make progress while the program makes no calls.
    pub automatic: bool,
}

/// A domain.
pub struct Domain {
    engine: Arc<Engine>,
    service: Service,
    keys: KeyRing,
    tallies: Arc<Tallies>,
    deferred: Arc<Deferred>,
    /// The watcher drives `deferred`.
    defers: AtomicBool,
    options: DomainOptions,
    next_key: AtomicU64,
    watcher: Watcher,
}

impl Domain {
    /// A domain on this process's engine.
    pub fn open(options: DomainOptions) -> Result<Arc<Domain>> {
        Self::on(process::engine()?, options)
    }

    /// A domain on any engine.
    pub fn on(engine: Arc<Engine>, options: DomainOptions) -> Result<Arc<Domain>> {
        Ok(Arc::new(Domain {
            service: Service::new(&engine)?,
            keys: KeyRing::new(&engine)?,
            tallies: Tallies::new(&engine)?,
            deferred: Arc::default(),
            defers: AtomicBool::new(false),
            watcher: Watcher::new(&engine),
            engine,
            options,
            next_key: AtomicU64::new(1),
        }))
    }

    /// The engine.
    #[inline(always)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Reads and writes peers' memory for look-ups.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// The keys of registered memory.
    pub(crate) fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// The words that peers increment.
    pub(crate) fn tallies(&self) -> &Arc<Tallies> {
        &self.tallies
    }

    /// Queues an operation that waits for a counter.
    pub(crate) fn defer(&self, work: Work) -> Result<()> {
        if self.options.automatic && !self.defers.swap(true, Ordering::AcqRel) {
            let watched: Arc<dyn Watched> = self.deferred.clone();
            self.watcher.watch(Arc::downgrade(&watched))?;
        }
        self.deferred.queue(work);
        Ok(())
    }

    /// Operations that wait for counters.
    #[inline(always)]
    pub(crate) fn deferred(&self) -> &Arc<Deferred> {
        &self.deferred
    }

    /// The options of [`Domain::open`].
    #[inline(always)]
    pub fn options(&self) -> &DomainOptions {
        &self.options
    }

    /// Drives objects that the program does not poll.
    pub(crate) fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    pub(crate) fn fresh_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }
}
