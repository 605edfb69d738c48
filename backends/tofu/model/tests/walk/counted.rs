//! The loopback behind a transport that counts operations. The transport is not direct, so the engine passes all operations to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::op::PutRequest;
use unipgas_core::region::Memory;
use unipgas_core::transport::{Capabilities, Channel, Peer, Transport};
use unipgas_core::{AtomicRequest, Deadline, Flags, Notice, Outcome, Remote, Result, Rights};
use unipgas_tofud::sim::SentCounts;

/// Numbers of operations of one process.
#[derive(Default)]
pub(crate) struct AccessCounts {
    notices: AtomicU32,
    puts: AtomicU32,
    atomics: AtomicU32,
}

impl AccessCounts {
    pub fn sent(&self) -> SentCounts {
        SentCounts {
            signals: self.notices.load(Ordering::Relaxed),
            sends: self.puts.load(Ordering::Relaxed),
            meets: self.atomics.load(Ordering::Relaxed),
        }
    }
}

pub(crate) struct CountingTransport {
    below: Loopback,
    counts: Arc<AccessCounts>,
}

impl CountingTransport {
    pub fn join(net: &Arc<LoopbackNet>, counts: Arc<AccessCounts>) -> Self {
        CountingTransport {
            below: Loopback::join(net),
            counts,
        }
    }
}

impl Transport for CountingTransport {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn tag(&self) -> Tag {
        self.below.tag()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            maps: false,
            direct: false,
            ..self.below.capabilities()
        }
    }

    fn address(&self) -> Vec<u8> {
        self.below.address()
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.below.connect_within(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        self.below.allocate(len, rights)
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - contract of `Transport::register`, which the caller keeps; the arguments are passed on unchanged.
        unsafe { self.below.register(base, len, rights) }
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(Box::new(Counting {
            below: self.below.open_channel()?,
            counts: self.counts.clone(),
        }))
    }

    fn bell(&self) -> &Bell {
        self.below.bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.below.locks()
    }

    fn leave(&self) {
        self.below.leave();
    }
}

struct Counting {
    below: Box<dyn Channel>,
    counts: Arc<AccessCounts>,
}

impl Channel for Counting {
    fn below(&self) -> Result<&dyn Channel> {
        Ok(&*self.below)
    }

    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let notices = u32::from(put.notice.is_some());
        self.counts.puts.fetch_add(notices, Ordering::Relaxed);
        // SAFETY:
        // - contract of `Channel::put`, which the caller keeps; the arguments are passed on unchanged.
        unsafe { self.below.put(put, flags, context) }
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        self.counts.notices.fetch_add(1, Ordering::Relaxed);
        self.below.notify(notice, flags, context)
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        desc: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        self.counts.atomics.fetch_add(1, Ordering::Relaxed);
        // SAFETY:
        // - contract of `Channel::atomic`, which the caller keeps; the arguments are passed on unchanged.
        unsafe { self.below.atomic(dst, request, desc, flags, context) }
    }
}
