//! The issue of operations: each becomes a request, and ends with its answer.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::agent::{Elements, Request};
use unipgas_core::atomic::AtomicForm;
use unipgas_core::inbox::Record;
use unipgas_core::op::{AtomicRequest, Completion, Flags, Local, Notice, Outcome, Remote};
use unipgas_core::region::{RemoteRegion, Rights};
use unipgas_core::transport::Channel;
use unipgas_core::{AtomicOp, Error, Result, atomic};

use crate::completion::Completions;
use crate::link::{Landing, Waiting};
use crate::region::place;
use crate::transport::Home;

/// An issue context. A stream keeps its order, so every operation is ordered at the target; a put that is ordered after a read, and may
/// send what is read, waits here until that has come.
pub struct Endpoint {
    home: Arc<Home>,
    completions: Arc<Completions>,
    late: Mutex<VecDeque<Put>>,
}

/// A put that may have to wait for earlier reads.
struct Put {
    src: Local,
    len: usize,
    to: RemoteRegion,
    offset: usize,
    notice: Option<(RemoteRegion, usize, u32)>,
    flags: Flags,
    context: u64,
}

// SAFETY:
// - the source is valid until the operation is complete, on any thread: the contract of the operation.
unsafe impl Send for Put {}

impl Put {
    fn request(&self) -> Request<'_> {
        let slot =
            |(region, offset, value): &(RemoteRegion, usize, u32)| (place(region, *offset), *value);
        Request::Put {
            to: place(&self.to, self.offset),
            // SAFETY:
            // - valid until the operation is complete (contract of the operation).
            bytes: unsafe { bytes(self.src.ptr, self.len) },
            flags: self.flags,
            notice: self.notice.as_ref().map(slot),
        }
    }
}

impl Endpoint {
    pub fn new(home: &Arc<Home>) -> Self {
        Endpoint {
            home: home.clone(),
            completions: Arc::default(),
            late: Mutex::default(),
        }
    }

    fn put_in_order(&self, put: Put) -> Result<Outcome> {
        let mut late = self.late.lock();
        let after_reads = put.flags.contains(Flags::ORDERED) && !put.flags.contains(Flags::INLINE);
        if late.is_empty() && !(after_reads && self.completions.is_reading()) {
            return self.ask(&put.to, &put.request(), None, put.context);
        }
        self.completions.begin();
        late.push_back(put);
        Ok(Outcome::Pending)
    }

    fn send_late(&self) {
        let mut late = self.late.lock();
        while !self.completions.is_reading()
            && let Some(put) = late.pop_front()
        {
            match self.ask(&put.to, &put.request(), None, put.context) {
                // Counted since it was posted.
                Ok(_) => self.completions.take_back(),
                Err(error) => self.completions.end(put.context, Err(error)),
            }
        }
    }

    /// Nothing overtakes the puts that wait; the agent brings what they wait for.
    fn after_late_puts(&self) {
        loop {
            self.send_late();
            if self.late.lock().is_empty() {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn ask(
        &self,
        region: &RemoteRegion,
        request: &Request<'_>,
        landing: Option<Landing>,
        context: u64,
    ) -> Result<Outcome> {
        let link = self.home.link(region.parts().peer)?;
        self.completions.begin();
        let reads = landing.is_some();
        if reads {
            self.completions.reads();
        }
        let waiting = Waiting {
            completions: self.completions.clone(),
            context,
            landing,
        };
        match link.ask(request, waiting) {
            Ok(more) => {
                if more {
                    self.home.wake();
                }
                Ok(Outcome::Pending)
            }
            Err(error) => {
                if reads {
                    self.completions.landed();
                }
                self.completions.take_back();
                Err(error)
            }
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
        self.put_in_order(Put {
            src,
            len,
            to: dst.region.clone(),
            offset: dst.offset,
            notice: None,
            flags,
            context,
        })
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
        self.after_late_puts();
        let request = Request::Get {
            from: place(src.region, src.offset),
            len: len as u64,
            flags,
        };
        let landing = Landing {
            into: dst.ptr,
            len,
            flags,
        };
        self.ask(src.region, &request, Some(landing), context)
    }

    fn notify(&self, notice: Notice<'_>, _flags: Flags, context: u64) -> Result<Outcome> {
        check_notice(&notice)?;
        self.after_late_puts();
        let request = Request::Notify {
            slot: place(notice.slot.region, notice.slot.offset),
            value: notice.value,
        };
        self.ask(notice.slot.region, &request, None, context)
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
        check_notice(&notice)?;
        let slot = notice.slot;
        self.put_in_order(Put {
            src,
            len,
            to: dst.region.clone(),
            offset: dst.offset,
            notice: Some((slot.region.clone(), slot.offset, notice.value)),
            flags,
            context,
        })
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
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
        if !atomic::supported(op, ty) || (op == AtomicOp::Read && !fetch) {
            return Err(Error::Unsupported);
        }
        self.after_late_puts();
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
        let landing = fetch.then_some(Landing {
            into: request.result,
            len,
            flags: Flags::empty(),
        });
        self.ask(dst.region, &asked, landing, context)
    }

    fn deliver(
        &self,
        inbox: &RemoteRegion,
        record: Record,
        _flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        inbox.check(0, inbox.len(), Rights::WRITE)?;
        self.after_late_puts();
        let request = Request::Deliver {
            inbox: place(inbox, 0),
            record,
        };
        self.ask(inbox, &request, None, context)
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        self.send_late();
        self.completions.report(sink);
    }

    fn pending(&self) -> usize {
        self.completions.pending()
    }
}
