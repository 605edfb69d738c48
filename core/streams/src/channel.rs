//! Operations of a channel as requests. Checks that need no peer happen here.

use super::issue::{Put, Requests, bytes};
use super::landing::Landing;
use super::registration::place;
use unipgas_base::atomic::AtomicForm;
use unipgas_base::{AtomicOp, Error, Result, Rights, atomic};
use unipgas_engine::agent::{Carried, Elements, Request};
use unipgas_engine::inbox::Record;
use unipgas_engine::op::{
    AtomicRequest, Completion, Flags, GetRequest, Inbox, Local, Notice, Outcome, PutRequest,
    Remote, ReplyBuffer,
};
use unipgas_engine::transport::{
    Channel, LONGEST_MESSAGE, check_inbox, check_message, check_notice,
};

impl Channel for Requests {
    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let PutRequest { src, dst, len, .. } = *put;
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        self.check_limits(len, flags)?;
        self.check_source(src, len, flags)?;
        put.notice.as_ref().map_or(Ok(()), check_notice)?;
        let told =
            |notice: Notice<'_>| (place(notice.slot.region, notice.slot.offset), notice.value);
        let kept = Put {
            src,
            len,
            to: place(dst.region, dst.offset),
            notice: put.notice.map(told),
            flags,
        };
        self.post_put(dst.region, kept, context)
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let GetRequest { dst, src, len } = *get;
        src.region.check(src.offset, len, Rights::READ)?;
        self.check_limits(len, flags & Flags::LINES)?;
        self.node.check_local(dst, len)?;
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
        let knows = self.node.limits().atomics && atomic::supported(op, ty);
        if !knows || (op == AtomicOp::Read && !fetch) {
            return Err(Error::Unsupported);
        }
        self.check_limits(len, Flags::empty())?;
        let result = Local {
            ptr: request.result,
            desc,
        };
        self.node.check_local(result, if fetch { len } else { 0 })?;
        let used = |wanted: bool| if wanted { len } else { 0 };
        // SAFETY:
        // - contract of `Channel::atomic`: `count` elements are valid at each pointer that the operation reads. They are copied before this call returns.
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
        self.post_record(None, inbox, record, flags, context)
    }

    fn chains(&self) -> bool {
        true
    }

    fn carries(&self) -> bool {
        true
    }

    unsafe fn put_deliver(
        &self,
        put: &PutRequest<'_>,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let PutRequest { src, dst, len, .. } = *put;
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        self.check_limits(len, flags & Flags::LINES)?;
        if len > LONGEST_MESSAGE {
            return Err(Error::Unsupported);
        }
        let put = Carried {
            to: place(dst.region, dst.offset),
            // SAFETY:
            // - contract of `Channel::put_deliver`: valid in this call. The request is written or copied before it returns.
            bytes: unsafe { bytes(src.ptr, len) },
            flags,
        };
        self.post_record(Some(put), inbox, record, flags, context)
    }

    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
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
        if self.completions().pending() > 0 {
            self.node.take_answers_then();
        }
        self.send_late();
        self.completions().report(sink);
    }

    fn pending(&self) -> usize {
        self.completions().pending()
    }
}

impl Requests {
    fn post_record(
        &self,
        put: Option<Carried<'_>>,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let first = inbox.first;
        check_inbox(first)?;
        let request = Request::Deliver {
            put,
            first: place(first, 0),
            second: inbox.second.map(|second| place(second, 0)),
            overflow: inbox.overflow.map(|word| place(word.region, word.offset)),
            record,
            chained: flags.contains(Flags::CHAINED),
        };
        self.post(first, &request, None, flags, context)
    }
}
