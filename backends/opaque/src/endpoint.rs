//! The issue of operations: each becomes a request, and ends with its answer.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::agent::{Elements, Place, Request};
use unipgas_core::atomic::AtomicForm;
use unipgas_core::inbox::Record;
use unipgas_core::op::{
    AtomicRequest, Completion, Flags, Inbox, Local, Notice, Outcome, Remote, Reply,
};
use unipgas_core::region::{RemoteRegion, Rights};
use unipgas_core::transport::{Channel, check_message};
use unipgas_core::{AtomicOp, Error, Result, atomic};

use crate::completion::Completions;
use crate::link::{Landing, Link, Waiting};
use crate::region::place;
use crate::transport::Home;

/// An issue context. A stream keeps its order, so every operation is ordered at the target, unless it is told to draw another order. What
/// is ordered after a read waits here until what was read has come, and whatever is posted to that peer meanwhile behind it.
pub struct Endpoint(Arc<Issue>);

/// Of one endpoint, shared with the agent.
pub struct Issue {
    home: Arc<Home>,
    /// By which targets know it.
    id: u32,
    completions: Arc<Completions>,
    /// By peers; of those that have some.
    late: Mutex<BTreeMap<u32, VecDeque<Late>>>,
}

/// An operation that waits for earlier reads of the same peer.
struct Late {
    /// Nobody else gets the peer's number meanwhile.
    link: Arc<Link>,
    what: What,
    landing: Option<Landing>,
    flags: Flags,
    context: u64,
}

enum What {
    /// A request's frame.
    Frame(Vec<u8>),
    /// A put, whose source may be what is read.
    Put(Put),
}

#[derive(Clone, Copy)]
struct Put {
    src: Local,
    len: usize,
    to: Place,
    notice: Option<(Place, u32)>,
    flags: Flags,
}

// SAFETY:
// - source and landing are valid until the operation is complete, on any thread: the contract of the operation.
unsafe impl Send for Late {}

impl Put {
    fn request(&self) -> Request<'_> {
        Request::Put {
            to: self.to,
            // SAFETY:
            // - valid until the operation is complete (contract of the operation).
            bytes: unsafe { bytes(self.src.ptr, self.len) },
            flags: self.flags,
            notice: self.notice,
        }
    }
}

impl Endpoint {
    pub fn new(home: &Arc<Home>) -> Self {
        let issue = Arc::new(Issue {
            home: home.clone(),
            id: home.next_channel(),
            completions: Arc::new(Completions::new(home.options.limits.depth)),
            late: Mutex::default(),
        });
        home.serve_late(&issue);
        Endpoint(issue)
    }
}

impl Deref for Endpoint {
    type Target = Issue;

    fn deref(&self) -> &Issue {
        &self.0
    }
}

impl Issue {
    fn post(
        &self,
        region: &RemoteRegion,
        request: &Request<'_>,
        landing: Option<Landing>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let peer = region.parts().peer;
        let encode = |into: &mut Vec<u8>| request.encode(into);
        let late = || {
            let mut frame = Vec::new();
            request.encode(&mut frame)?;
            Ok(What::Frame(frame))
        };
        self.post_or_keep(peer, encode, late, landing, flags, context)
    }

    fn post_put(&self, region: &RemoteRegion, put: Put, context: u64) -> Result<Outcome> {
        let flags = put.flags;
        if flags.contains(Flags::INLINE) {
            return self.post(region, &put.request(), None, flags, context);
        }
        let peer = region.parts().peer;
        let encode = |into: &mut Vec<u8>| put.request().encode(into);
        let late = move || Ok(What::Put(put));
        self.post_or_keep(peer, encode, late, None, flags, context)
    }

    /// Asks at once by `encode`, or keeps what `late` gives, where it has to wait for reads.
    fn post_or_keep(
        &self,
        peer: u32,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        late: impl FnOnce() -> Result<What>,
        landing: Option<Landing>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let link = self.home.link(peer)?;
        let mut kept = self.late.lock();
        let ordered = flags.contains(Flags::ORDERED);
        let waits = kept.contains_key(&peer) || (ordered && self.completions.is_reading(peer));
        self.completions.begin(peer)?;
        let posted = match waits {
            false => self.ask(&link, peer, encode, landing, flags, context),
            true => late().map(|what| {
                kept.entry(peer).or_default().push_back(Late {
                    link,
                    what,
                    landing,
                    flags,
                    context,
                });
            }),
        };
        match posted {
            Ok(()) => Ok(Outcome::Pending),
            Err(error) => {
                // What has not been asked is not pending.
                self.completions.take_back(peer);
                Err(error)
            }
        }
    }

    /// Sends what has waited for reads that have ended; whoever sees that first does it.
    pub fn send_late(&self) {
        self.late.lock().retain(|peer, late| {
            while !self.completions.is_reading(*peer)
                && let Some(next) = late.pop_front()
            {
                self.send(*peer, next);
            }
            !late.is_empty()
        });
    }

    fn send(&self, peer: u32, late: Late) {
        let Late {
            link,
            what,
            landing,
            flags,
            context,
        } = late;
        let source = match &what {
            What::Frame(_) => Ok(()),
            What::Put(put) => self.check_source(put.src, put.len, flags),
        };
        let encode = |into: &mut Vec<u8>| match &what {
            What::Frame(frame) => {
                into.extend_from_slice(frame);
                Ok(())
            }
            What::Put(put) => put.request().encode(into),
        };
        let asked = source.and_then(|()| self.ask(&link, peer, encode, landing, flags, context));
        if let Err(error) = asked {
            self.completions.end(peer, context, Err(error));
        }
    }

    /// Asks the peer for an operation that is pending already.
    fn ask(
        &self,
        link: &Link,
        peer: u32,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        landing: Option<Landing>,
        flags: Flags,
        context: u64,
    ) -> Result<()> {
        self.home.count(link);
        let reads = landing.is_some_and(|landing| landing.reads());
        if reads {
            self.completions.reads(peer);
        }
        let waiting = Waiting {
            completions: self.completions.clone(),
            peer,
            context,
            landing,
        };
        let ordered = flags.contains(Flags::ORDERED);
        let asked = self.home.ask(link, (self.id, ordered), encode, waiting);
        if asked.is_err() && reads {
            self.completions.landed(peer);
        }
        asked
    }

    fn check_source(&self, src: Local, len: usize, flags: Flags) -> Result<()> {
        match flags.contains(Flags::INLINE) {
            true => Ok(()),
            false => self.home.check_local(src, len),
        }
    }

    /// Whether this network moves so many bytes like that.
    fn check_limits(&self, len: usize, flags: Flags) -> Result<()> {
        let limits = &self.home.options.limits;
        let inline = flags.contains(Flags::INLINE) && len > limits.inline;
        let lines = flags.contains(Flags::LINES) && !limits.lines;
        match inline || lines || len > limits.largest {
            true => Err(Error::Unsupported),
            false => Ok(()),
        }
    }
}

/// # Safety
/// Null with no bytes, or `len` bytes at `ptr` are valid and stay as they are for `'a`.
unsafe fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY:
    // - the caller's word.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

fn check_notice(notice: &Notice<'_>) -> Result<()> {
    let Remote { region, offset } = notice.slot;
    region.check(offset, 4, Rights::WRITE)?;
    if offset.is_multiple_of(4) {
        Ok(())
    } else {
        Err(Error::Misaligned(4))
    }
}

impl Channel for Endpoint {
    unsafe fn put(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        self.check_limits(len, flags)?;
        self.check_source(src, len, flags)?;
        let put = Put {
            src,
            len,
            to: place(dst.region, dst.offset),
            notice: None,
            flags,
        };
        self.post_put(dst.region, put, context)
    }

    unsafe fn get(
        &self,
        dst: Local,
        src: Remote<'_>,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        src.region.check(src.offset, len, Rights::READ)?;
        self.check_limits(len, flags & Flags::LINES)?;
        self.home.check_local(dst, len)?;
        let request = Request::Get {
            from: place(src.region, src.offset),
            len: len as u64,
            flags,
        };
        let landing = Landing::Read {
            into: dst,
            len,
            flags,
        };
        self.post(src.region, &request, Some(landing), flags, context)
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        check_notice(&notice)?;
        let request = Request::Notify {
            slot: place(notice.slot.region, notice.slot.offset),
            value: notice.value,
        };
        self.post(notice.slot.region, &request, None, flags, context)
    }

    unsafe fn put_notify(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        notice: Notice<'_>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        self.check_limits(len, flags)?;
        self.check_source(src, len, flags)?;
        check_notice(&notice)?;
        let slot = place(notice.slot.region, notice.slot.offset);
        let put = Put {
            src,
            len,
            to: place(dst.region, dst.offset),
            notice: Some((slot, notice.value)),
            flags,
        };
        self.post_put(dst.region, put, context)
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        desc: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let AtomicRequest { op, ty, count, .. } = *request;
        let whole = u32::try_from(count).ok().zip(ty.size().checked_mul(count));
        let (elements, len) = whole.ok_or(Error::OutOfBounds {
            offset: dst.offset,
            len: usize::MAX,
            region_len: dst.region.len(),
        })?;
        dst.region.check(dst.offset, len, Rights::ATOMIC)?;
        let fetch = !request.result.is_null();
        let knows = self.home.options.limits.atomics && atomic::supported(op, ty);
        if !knows || (op == AtomicOp::Read && !fetch) {
            return Err(Error::Unsupported);
        }
        self.check_limits(len, Flags::empty())?;
        let result = Local {
            ptr: request.result,
            desc,
        };
        self.home.check_local(result, if fetch { len } else { 0 })?;
        let used = |wanted: bool| if wanted { len } else { 0 };
        // SAFETY:
        // - where the operation reads them there are `count` elements (the caller's word); they are copied before this returns.
        let (operand, compare) = unsafe {
            (
                bytes(request.operand, used(op != AtomicOp::Read)),
                bytes(request.compare, used(op.form() == AtomicForm::Compare)),
            )
        };
        let asked = Request::Atomic {
            to: place(dst.region, dst.offset),
            elements: Elements {
                op,
                ty,
                count: elements,
                operand,
                compare,
                fetch,
            },
            flags,
        };
        let landing = fetch.then_some(Landing::Read {
            into: result,
            len,
            flags: Flags::empty(),
        });
        self.post(dst.region, &asked, landing, flags, context)
    }

    fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let first = inbox.first;
        first.check(0, first.len(), Rights::WRITE)?;
        let request = Request::Deliver {
            first: place(first, 0),
            second: inbox.second.map(|second| place(second, 0)),
            overflow: inbox.overflow.map(|word| place(word.region, word.offset)),
            record,
        };
        self.post(first, &request, None, flags, context)
    }

    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: Reply,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        check_message(to, message)?;
        let request = Request::Message {
            to: place(to.region, to.offset),
            bytes: message,
        };
        let landing = Landing::Reply(reply);
        self.post(to.region, &request, Some(landing), flags, context)
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        if self.completions.pending() > 0 {
            self.home.take_answers();
        }
        self.send_late();
        self.completions.report(sink);
    }

    fn pending(&self) -> usize {
        self.completions.pending()
    }
}
