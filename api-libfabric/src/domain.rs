//! Domains (fi_domain(3)): what memory regions, queues and endpoints belong to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unipgas_core::Engine;
use unipgas_core::keyring::KeyRing;
use unipgas_core::port::Service;

use crate::process;
use crate::status::Result;
use crate::tally::Tallies;
use crate::trigger::{Deferred, Work};
use crate::watcher::{Watched, Watcher};

/// Bytes of the data that a completion may bring.
pub const CQ_DATA_SIZE: usize = 8;
/// Queues and counters of a domain, of each, which cost nothing that is shared with peers.
pub const MOST: usize = 1 << 16;
/// Endpoints of a domain.
pub const MOST_ENDPOINTS: usize = 256;
/// Memory regions of a domain.
pub const MOST_REGIONS: usize = 8192;

/// How a domain's memory is addressed, and its objects get on.
#[derive(Debug, Clone, Copy, Default)]
pub struct DomainOptions {
    /// FI_MR_VIRT_ADDR: remote addresses are those that the memory has in its owner; else they begin at 0.
    pub virtual_addresses: bool,
    /// FI_MR_PROV_KEY: keys are chosen here; else by whoever registers.
    pub own_keys: bool,
    /// FI_MR_ALLOCATED is not in the mode: memory may come, go and be replaced below a registration, so that peers reach it by copies of the kernel.
    pub by_address: bool,
    /// Memory that exists at its registration stays in place all the same: it is not reached by address.
    pub in_place: bool,
    /// FI_PROGRESS_AUTO: messages get on while the program makes no calls.
    pub automatic: bool,
}

/// A domain.
pub struct Domain {
    engine: Arc<Engine>,
    service: Service,
    keys: KeyRing,
    tallies: Arc<Tallies>,
    deferred: Arc<Deferred>,
    /// The watcher looks after them.
    defers: AtomicBool,
    options: DomainOptions,
    next_key: AtomicU64,
    watcher: Watcher,
}

impl Domain {
    /// On this process's engine.
    pub fn open(options: DomainOptions) -> Result<Arc<Domain>> {
        Self::on(process::engine()?, options)
    }

    /// On any engine.
    pub fn on(engine: Arc<Engine>, options: DomainOptions) -> Result<Arc<Domain>> {
        Ok(Arc::new(Domain {
            service: Service::new(&engine)?,
            keys: KeyRing::new(&engine)?,
            tallies: Tallies::new(&engine)?,
            deferred: Deferred::new(),
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

    /// For look-ups.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// The keys of registered memory.
    pub(crate) fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// What peers count by.
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

    /// As it was opened.
    #[inline(always)]
    pub fn options(&self) -> &DomainOptions {
        &self.options
    }

    /// Looks after what nobody polls.
    pub(crate) fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    pub(crate) fn fresh_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }
}
