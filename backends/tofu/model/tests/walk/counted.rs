//! The loopback behind a transport that counts what it is asked for. What it imports is not mapped, so that the engine asks for everything.

use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::inbox::Record;
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::op::{GetRequest, Inbox, PutRequest, ReplyBuffer};
use unipgas_core::region::{Memory, RemoteParts};
use unipgas_core::transport::{Capabilities, Channel, Life, Peer, Transport};
use unipgas_core::{
    AtomicRequest, Deadline, Flags, Notice, Outcome, Remote, RemoteRegion, Result, Rights,
};
use unipgas_tofud::sim::SentCounts;

/// Of one process.
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
        let below = self.below.connect_within(address, deadline)?;
        Ok(Arc::new(Hidden(below)))
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
        // - the caller's word.
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

struct Hidden(Arc<dyn Peer>);

impl Peer for Hidden {
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion> {
        let below = self.0.import(key, deadline)?;
        let parts = RemoteParts {
            base: std::ptr::null_mut(),
            bell: null(),
            locks: null(),
            ..*below.parts()
        };
        // SAFETY:
        // - the generation word is valid as long as the region that is kept; there are no other pointers.
        Ok(unsafe { RemoteRegion::new(parts, Arc::new(below)) })
    }

    fn life(&self) -> Life {
        self.0.life()
    }
}

/// As the loopback has given it.
fn below(seen: Remote<'_>) -> Remote<'_> {
    let region = seen.region.kept().downcast_ref().unwrap_or(seen.region);
    Remote { region, ..seen }
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
        let put = PutRequest {
            dst: below(put.dst),
            notice: put.notice.map(|notice| {
                self.counts.puts.fetch_add(1, Ordering::Relaxed);
                let slot = below(notice.slot);
                Notice { slot, ..notice }
            }),
            ..*put
        };
        // SAFETY:
        // - the caller's word.
        unsafe { self.below.put(&put, flags, context) }
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let src = below(get.src);
        // SAFETY:
        // - the caller's word.
        unsafe { self.below.get(&GetRequest { src, ..*get }, flags, context) }
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        self.counts.notices.fetch_add(1, Ordering::Relaxed);
        let slot = below(notice.slot);
        self.below.notify(Notice { slot, ..notice }, flags, context)
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
        // - the caller's word.
        unsafe { self.below.atomic(below(dst), request, desc, flags, context) }
    }

    fn deliver(&self, _: Inbox<'_>, _: Record, _: Flags, _: u64) -> Result<Outcome> {
        Err(unipgas_core::Error::Unsupported)
    }

    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        self.below
            .active_message(below(to), message, reply, flags, context)
    }
}
