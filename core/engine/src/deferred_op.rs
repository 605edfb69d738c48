//! A deferred operation: it keeps the arguments of a call of a [`Channel`]. It can be posted on a channel later, whole or in parts.

use std::ops::Range;

use crate::atomic::AtomicForm;
use crate::inbox::Record;
use crate::op::{
    AtomicRequest, Flags, GetRequest, Inbox, Local, Notice, Outcome, PutRequest, Remote,
    ReplyBuffer,
};
use crate::region::RemoteRegion;
use crate::transport::Channel;
use crate::{AtomicOp, AtomicType, Result, copy};

/// A place in a peer's region.
pub struct RegionPlace {
    /// The region.
    pub region: RemoteRegion,
    /// Bytes from its beginning.
    pub offset: usize,
}

impl RegionPlace {
    /// A copy of `remote`.
    pub fn of(remote: Remote<'_>) -> Self {
        RegionPlace {
            region: remote.region.clone(),
            offset: remote.offset,
        }
    }

    /// The place `more` bytes behind it.
    pub fn at(&self, more: usize) -> Remote<'_> {
        self.region.at(self.offset + more)
    }
}

/// Bytes that an operation reads.
pub enum Source {
    /// The user's bytes, valid as the contract of the call requires.
    Users(Local),
    /// A copy.
    Taken(Box<[u8]>),
    /// In memory that the owner of the operation keeps or has registered.
    Given(Local),
}

impl Source {
    fn of(ptr: *const u8) -> Self {
        Source::Users(Local::unregistered(ptr.cast_mut()))
    }

    /// The bytes at `offset`; null if there are none.
    pub(crate) fn at(&self, offset: usize) -> Local {
        let first = match self {
            Source::Users(local) | Source::Given(local) => *local,
            Source::Taken(bytes) => Local::unregistered(bytes.as_ptr().cast_mut()),
        };
        forward(first, offset)
    }

    /// # Safety
    /// The user's bytes are valid: `len` of them.
    unsafe fn take(&mut self, len: usize) {
        if let Source::Users(local) = *self
            && !local.ptr.is_null()
        {
            let mut bytes = vec![0; len].into_boxed_slice();
            // SAFETY:
            // - contract of this call: the user's bytes are valid. The destination is new, and as long.
            unsafe { copy(local.ptr, bytes.as_mut_ptr(), len) };
            *self = Source::Taken(bytes);
        }
    }
}

fn forward(local: Local, offset: usize) -> Local {
    match local.ptr.is_null() {
        true => local,
        false => Local {
            ptr: local.ptr.wrapping_add(offset),
            desc: local.desc,
        },
    }
}

fn notice_of((slot, value): &(RegionPlace, u32)) -> Notice<'_> {
    Notice {
        slot: slot.at(0),
        value: *value,
    }
}

/// A part of an operation, posted at once. Ranges count bytes of a transfer, or elements of an atomic operation. Other operations have one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeferredPart {
    /// Data, without a notice.
    Data(Range<usize>),
    /// Data, then the notice if there is one.
    Last(Range<usize>),
    /// The notice, or a whole operation without data.
    Notice,
}

impl DeferredPart {
    fn range(&self) -> Range<usize> {
        match self {
            DeferredPart::Data(range) | DeferredPart::Last(range) => range.clone(),
            DeferredPart::Notice => 0..0,
        }
    }
}

/// A deferred operation.
pub enum DeferredOp {
    /// [`Channel::put`].
    Put {
        /// The bytes to write.
        src: Source,
        /// The destination.
        dst: RegionPlace,
        /// Length in bytes.
        len: usize,
        /// The notice after it.
        notice: Option<(RegionPlace, u32)>,
    },
    /// [`Channel::get`].
    Get {
        /// The destination in this process.
        dst: Local,
        /// The source.
        src: RegionPlace,
        /// Length in bytes.
        len: usize,
    },
    /// [`Channel::notify`].
    Notify {
        /// The word.
        slot: RegionPlace,
        /// Its new value.
        value: u32,
    },
    /// [`Channel::atomic`].
    Atomic {
        /// The elements.
        dst: RegionPlace,
        /// The operation.
        op: AtomicOp,
        /// The type of the elements.
        ty: AtomicType,
        /// Their number.
        count: usize,
        /// The operands; null if there are none.
        operand: Source,
        /// The comparands; null if there are none.
        compare: Source,
        /// Destination of the previous values, or null.
        result: Local,
    },
    /// [`Channel::deliver`], or [`Channel::put_deliver`].
    Deliver {
        /// Bytes that are written before the record, their destination, and their length.
        put: Option<Box<(Source, RegionPlace, usize)>>,
        /// The inbox's first ring.
        first: RemoteRegion,
        /// Its second one.
        second: Option<RemoteRegion>,
        /// The word that becomes 1 if no ring has room.
        overflow: Option<RegionPlace>,
        /// The record.
        record: Record,
    },
    /// [`Channel::active_message`].
    Message {
        /// The place that its handler gets.
        to: RegionPlace,
        /// The message.
        bytes: Source,
        /// Its length.
        len: usize,
        /// Destination of the reply.
        reply: ReplyBuffer,
    },
}

// SAFETY:
// - contract of `Channel`: the user's pointers are valid on each thread until the operation is complete.
unsafe impl Send for DeferredOp {}

impl DeferredOp {
    /// Takes the arguments of [`Channel::put`].
    pub fn put(put: &PutRequest<'_>) -> Self {
        let notice_parts = |notice: Notice<'_>| (RegionPlace::of(notice.slot), notice.value);
        DeferredOp::Put {
            src: Source::Users(put.src),
            dst: RegionPlace::of(put.dst),
            len: put.len,
            notice: put.notice.map(notice_parts),
        }
    }

    /// Takes the arguments of [`Channel::get`].
    pub fn get(get: &GetRequest<'_>) -> Self {
        DeferredOp::Get {
            dst: get.dst,
            src: RegionPlace::of(get.src),
            len: get.len,
        }
    }

    /// Takes the arguments of [`Channel::notify`].
    pub fn notify(notice: Notice<'_>) -> Self {
        DeferredOp::Notify {
            slot: RegionPlace::of(notice.slot),
            value: notice.value,
        }
    }

    /// Takes the arguments of [`Channel::atomic`].
    pub fn atomic(dst: Remote<'_>, request: &AtomicRequest, desc: u64) -> Self {
        let read = |used: bool, ptr: *const u8| match used {
            true => Source::of(ptr),
            false => Source::of(std::ptr::null()),
        };
        DeferredOp::Atomic {
            dst: RegionPlace::of(dst),
            op: request.op,
            ty: request.ty,
            count: request.count,
            operand: read(request.op != AtomicOp::Read, request.operand),
            compare: read(request.op.form() == AtomicForm::Compare, request.compare),
            result: Local {
                ptr: request.result,
                desc,
            },
        }
    }

    /// Takes the arguments of [`Channel::deliver`], or of [`Channel::put_deliver`].
    pub fn deliver(put: Option<&PutRequest<'_>>, inbox: Inbox<'_>, record: Record) -> Self {
        let kept = |put: &PutRequest<'_>| {
            Box::new((Source::Users(put.src), RegionPlace::of(put.dst), put.len))
        };
        DeferredOp::Deliver {
            put: put.map(kept),
            first: inbox.first.clone(),
            second: inbox.second.cloned(),
            overflow: inbox.overflow.map(RegionPlace::of),
            record,
        }
    }

    /// Takes the arguments of [`Channel::active_message`].
    pub fn message(to: Remote<'_>, message: &[u8], reply: ReplyBuffer) -> Self {
        DeferredOp::Message {
            to: RegionPlace::of(to),
            bytes: Source::of(message.as_ptr()),
            len: message.len(),
            reply,
        }
    }

    /// A region of the operation's peer.
    pub fn region(&self) -> &RemoteRegion {
        match self {
            DeferredOp::Put { dst, .. } | DeferredOp::Atomic { dst, .. } => &dst.region,
            DeferredOp::Get { src, .. } => &src.region,
            DeferredOp::Notify { slot, .. } => &slot.region,
            DeferredOp::Deliver { first, .. } => first,
            DeferredOp::Message { to, .. } => &to.region,
        }
    }

    /// Bytes of a transfer, or elements of an atomic operation; else 0.
    pub fn extent(&self) -> usize {
        match self {
            DeferredOp::Put { len, .. } | DeferredOp::Get { len, .. } => *len,
            DeferredOp::Atomic { count, .. } => *count,
            _ => 0,
        }
    }

    /// The part that covers the operation.
    pub fn whole(&self) -> DeferredPart {
        DeferredPart::Last(0..self.extent())
    }

    /// Copies the bytes that are valid only during the call. Needed before the call returns, unless all parts have been posted.
    ///
    /// # Safety
    /// The call with these arguments has not returned, or this has run before.
    pub unsafe fn take(&mut self, flags: Flags) {
        // SAFETY:
        // - contract of this call: the bytes are valid. The operation reads as many bytes.
        unsafe {
            match self {
                DeferredOp::Put { src, len, .. } if flags.contains(Flags::INLINE) => src.take(*len),
                DeferredOp::Deliver { put: Some(put), .. } => put.0.take(put.2),
                DeferredOp::Atomic {
                    ty,
                    count,
                    operand,
                    compare,
                    ..
                } => {
                    operand.take(*count * ty.size());
                    compare.take(*count * ty.size());
                }
                DeferredOp::Message { bytes, len, .. } => bytes.take(*len),
                _ => {}
            }
        }
    }

    /// Posts `part` on `channel`.
    ///
    /// # Safety
    /// - The user's pointers, and [`Source::Given`] memory, are valid until `context` is reported.
    /// - Bytes that are valid only during the call are still valid, or have been [taken](DeferredOp::take).
    pub unsafe fn post(
        &self,
        part: &DeferredPart,
        channel: &dyn Channel,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let Range { start, end } = part.range();
        let size = end - start;
        // SAFETY:
        // - contract of this call, for a part of the bytes. Copies live as long as the operation.
        unsafe {
            match self {
                DeferredOp::Put {
                    src,
                    dst,
                    notice: told,
                    ..
                } => match (part, told.as_ref().map(notice_of)) {
                    (DeferredPart::Notice, Some(notice)) => channel.notify(notice, flags, context),
                    (part, notice) => {
                        let put = PutRequest {
                            src: src.at(start),
                            dst: dst.at(start),
                            len: size,
                            notice: notice.filter(|_| matches!(part, DeferredPart::Last(_))),
                        };
                        channel.put(&put, flags, context)
                    }
                },
                DeferredOp::Get { dst, src, .. } => {
                    let get = GetRequest {
                        dst: forward(*dst, start),
                        src: src.at(start),
                        len: size,
                    };
                    channel.get(&get, flags, context)
                }
                DeferredOp::Notify { slot, value } => {
                    let notice = Notice {
                        slot: slot.at(0),
                        value: *value,
                    };
                    channel.notify(notice, flags, context)
                }
                DeferredOp::Atomic { result, .. } => {
                    let (dst, request) = self.elements(start..end);
                    channel.atomic(dst, &request, result.desc, flags, context)
                }
                DeferredOp::Deliver {
                    put,
                    first,
                    second,
                    overflow,
                    record,
                } => {
                    let inbox = Inbox {
                        first,
                        second: second.as_ref(),
                        overflow: overflow.as_ref().map(|word| word.at(0)),
                    };
                    match put {
                        None => channel.deliver(inbox, *record, flags, context),
                        Some(put) => {
                            let put = PutRequest::new(put.0.at(0), put.1.at(0), put.2);
                            channel.put_deliver(&put, inbox, *record, flags, context)
                        }
                    }
                }
                DeferredOp::Message { to, reply, .. } => {
                    channel.active_message(to.at(0), self.message_bytes(), *reply, flags, context)
                }
            }
        }
    }

    /// The notice of a put.
    pub(crate) fn notice(&self) -> Option<Notice<'_>> {
        match self {
            DeferredOp::Put { notice, .. } => notice.as_ref().map(notice_of),
            _ => None,
        }
    }

    /// The elements `range` of an atomic operation.
    pub(crate) fn elements(&self, range: Range<usize>) -> (Remote<'_>, AtomicRequest) {
        let DeferredOp::Atomic {
            dst,
            op,
            ty,
            operand,
            compare,
            result,
            ..
        } = self
        else {
            unreachable!("asked of atomic operations only");
        };
        let skip = range.start * ty.size();
        let request = AtomicRequest {
            op: *op,
            ty: *ty,
            count: range.len(),
            operand: operand.at(skip).ptr,
            compare: compare.at(skip).ptr,
            result: forward(*result, skip).ptr,
        };
        (dst.at(skip), request)
    }

    /// The bytes of a message.
    ///
    /// # Safety
    /// The call with these arguments has not returned, or the bytes have been [taken](DeferredOp::take).
    pub(crate) unsafe fn message_bytes(&self) -> &[u8] {
        match self {
            // SAFETY:
            // - contract of this call: `len` bytes are valid, or the copy has them.
            DeferredOp::Message { bytes, len, .. } => unsafe {
                std::slice::from_raw_parts(bytes.at(0).ptr, *len)
            },
            _ => &[],
        }
    }

    /// Leaks the copy of a put, since a channel may still read it.
    pub(crate) fn abandon(self) {
        if let DeferredOp::Put { src, .. } = self {
            std::mem::forget(src);
        }
    }
}
