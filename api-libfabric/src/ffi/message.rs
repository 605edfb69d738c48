//! Messages, with tags and without.

use std::ffi::c_void;

use super::endpoint::{EndpointPart, Poster, Triggering, flagged, transmits};
use super::posted;
use super::rma::{one, parts};
use super::shared::ReceivesPart;
use crate::atomics::AtomicOperands;
use crate::endpoint::PostOptions;
use crate::messages::MatchTag;
use crate::rma::LocalRange;
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::{Call, Kind};

/// A table of calls on `$poster`. `$flagged` takes the calls with flags.
macro_rules! messages {
    ($poster:ty, $flagged:ty) => {
        fi_ops_msg {
            size: size_of::<fi_ops_msg>(),
            recv: recv::<$poster>,
            recvv: recvv::<$poster>,
            recvmsg: recvmsg::<$flagged>,
            send: send::<$poster>,
            sendv: sendv::<$poster>,
            sendmsg: sendmsg::<$flagged>,
            inject: inject::<$poster>,
            senddata: senddata::<$poster>,
            injectdata: injectdata::<$poster>,
        }
    };
}

/// The same for tagged messages.
macro_rules! tagged_messages {
    ($poster:ty, $flagged:ty) => {
        fi_ops_tagged {
            size: size_of::<fi_ops_tagged>(),
            recv: trecv::<$poster>,
            recvv: trecvv::<$poster>,
            recvmsg: trecvmsg::<$flagged>,
            send: tsend::<$poster>,
            sendv: tsendv::<$poster>,
            sendmsg: tsendmsg::<$flagged>,
            inject: tinject::<$poster>,
            senddata: tsenddata::<$poster>,
            injectdata: tinjectdata::<$poster>,
        }
    };
}

pub(super) static MESSAGES: fi_ops_msg = messages!(EndpointPart, Triggering);
pub(super) static TAGGED: fi_ops_tagged = tagged_messages!(EndpointPart, Triggering);

/// Table of endpoints with FI_TRIGGER in their default flags: plain calls can wait for a counter.
pub(super) static TRIGGERING: fi_ops_msg = messages!(Triggering, Triggering);
pub(super) static TRIGGERING_TAGGED: fi_ops_tagged = tagged_messages!(Triggering, Triggering);

/// Table of shared receive contexts, which refuse to send.
pub(super) static SHARED: fi_ops_msg = messages!(ReceivesPart, ReceivesPart);
pub(super) static SHARED_TAGGED: fi_ops_tagged = tagged_messages!(ReceivesPart, ReceivesPart);

const NONE: MatchTag = MatchTag::NONE;

fn tagged(tag: u64) -> MatchTag {
    masked(tag, 0)
}

fn masked(tag: u64, ignore: u64) -> MatchTag {
    MatchTag {
        tag: Some(tag),
        ignore,
    }
}

/// A message from or to `local`.
#[inline(always)]
fn call(kind: Kind, local: &[LocalRange], peer: u64, posting: PostOptions) -> Call<'_> {
    let memory = AtomicOperands {
        operand: local,
        ..AtomicOperands::default()
    };
    Call {
        kind,
        memory,
        peer,
        posting,
    }
}

/// # Safety
/// The arguments are valid as in fi_recv(3).
#[inline(always)]
unsafe fn receive<P: Poster>(
    object: *mut fid_ep,
    tag: MatchTag,
    local: &[LocalRange],
    from: u64,
    context: *mut c_void,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: the arguments are valid; likewise below.
    unsafe {
        let object = P::at(object)?;
        let posting = object.plain(false, context);
        object.post(&call(Kind::Receive(tag), local, from, posting))
    }
}

/// `context`: `None` for inject calls.
///
/// # Safety
/// The arguments are valid as in fi_send(3).
#[inline(always)]
unsafe fn transmit<P: Poster>(
    object: *mut fid_ep,
    tag: MatchTag,
    local: &[LocalRange],
    to: u64,
    data: Option<u64>,
    context: Option<*mut c_void>,
) -> Result<()> {
    // SAFETY:
    // - as above.
    unsafe {
        let object = P::at(object)?;
        let posting = transmits(object, data, context);
        object.post(&call(Kind::Send(tag), local, to, posting))
    }
}

/// The call that a message describes.
///
/// # Safety
/// `message` is null or valid, with its list.
pub(super) unsafe fn of_message<'a>(
    kind: fn(MatchTag) -> Kind,
    message: *const fi_msg,
    flags: u64,
) -> Result<Call<'a>> {
    // SAFETY:
    // - contract of this call.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let posting = flagged(message.context, flags, message.data);
        let local = parts(message.msg_iov, message.iov_count)?;
        Ok(call(kind(NONE), local, message.addr, posting))
    }
}

/// As [`of_message`], with a tag.
///
/// # Safety
/// As for [`of_message`].
pub(super) unsafe fn of_tagged_message<'a>(
    kind: fn(MatchTag) -> Kind,
    message: *const fi_msg_tagged,
    flags: u64,
) -> Result<Call<'a>> {
    // SAFETY:
    // - contract of this call.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let posting = flagged(message.context, flags, message.data);
        let local = parts(message.msg_iov, message.iov_count)?;
        let tag = masked(message.tag, message.ignore);
        Ok(call(kind(tag), local, message.addr, posting))
    }
}

entries! { posted -> isize;
    fn recv[P: Poster](object: *mut fid_ep, base: *mut c_void, len: usize, _desc: *mut c_void, from: u64, context: *mut c_void)
        = receive::<P>(object, NONE, &one(base, len), from, context);
    fn recvv[P: Poster](
        object: *mut fid_ep, local: *const libc::iovec, _desc: *mut *mut c_void, count: usize, from: u64, context: *mut c_void,
    ) = receive::<P>(object, NONE, parts(local, count)?, from, context);
    fn recvmsg[P: Poster](object: *mut fid_ep, message: *const fi_msg, flags: u64)
        = P::at(object)?.post(&of_message(Kind::Receive, message, flags)?);
    fn send[P: Poster](object: *mut fid_ep, base: *const c_void, len: usize, _desc: *mut c_void, to: u64, context: *mut c_void)
        = transmit::<P>(object, NONE, &one(base, len), to, None, Some(context));
    fn sendv[P: Poster](
        object: *mut fid_ep, local: *const libc::iovec, _desc: *mut *mut c_void, count: usize, to: u64, context: *mut c_void,
    ) = transmit::<P>(object, NONE, parts(local, count)?, to, None, Some(context));
    fn sendmsg[P: Poster](object: *mut fid_ep, message: *const fi_msg, flags: u64)
        = P::at(object)?.post(&of_message(Kind::Send, message, flags)?);
    fn inject[P: Poster](object: *mut fid_ep, base: *const c_void, len: usize, to: u64)
        = transmit::<P>(object, NONE, &one(base, len), to, None, None);
    fn senddata[P: Poster](
        object: *mut fid_ep, base: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64, context: *mut c_void,
    ) = transmit::<P>(object, NONE, &one(base, len), to, Some(data), Some(context));
    fn injectdata[P: Poster](object: *mut fid_ep, base: *const c_void, len: usize, data: u64, to: u64)
        = transmit::<P>(object, NONE, &one(base, len), to, Some(data), None);

    fn trecv[P: Poster](
        object: *mut fid_ep, base: *mut c_void, len: usize, _desc: *mut c_void, from: u64, tag: u64, ignore: u64,
        context: *mut c_void,
    ) = receive::<P>(object, masked(tag, ignore), &one(base, len), from, context);
    fn trecvv[P: Poster](
        object: *mut fid_ep, local: *const libc::iovec, _desc: *mut *mut c_void, count: usize, from: u64, tag: u64,
        ignore: u64, context: *mut c_void,
    ) = receive::<P>(object, masked(tag, ignore), parts(local, count)?, from, context);
    fn trecvmsg[P: Poster](object: *mut fid_ep, message: *const fi_msg_tagged, flags: u64)
        = P::at(object)?.post(&of_tagged_message(Kind::Receive, message, flags)?);
    fn tsend[P: Poster](
        object: *mut fid_ep, base: *const c_void, len: usize, _desc: *mut c_void, to: u64, tag: u64, context: *mut c_void,
    ) = transmit::<P>(object, tagged(tag), &one(base, len), to, None, Some(context));
    fn tsendv[P: Poster](
        object: *mut fid_ep, local: *const libc::iovec, _desc: *mut *mut c_void, count: usize, to: u64, tag: u64,
        context: *mut c_void,
    ) = transmit::<P>(object, tagged(tag), parts(local, count)?, to, None, Some(context));
    fn tsendmsg[P: Poster](object: *mut fid_ep, message: *const fi_msg_tagged, flags: u64)
        = P::at(object)?.post(&of_tagged_message(Kind::Send, message, flags)?);
    fn tinject[P: Poster](object: *mut fid_ep, base: *const c_void, len: usize, to: u64, tag: u64)
        = transmit::<P>(object, tagged(tag), &one(base, len), to, None, None);
    fn tsenddata[P: Poster](
        object: *mut fid_ep, base: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64, tag: u64,
        context: *mut c_void,
    ) = transmit::<P>(object, tagged(tag), &one(base, len), to, Some(data), Some(context));
    fn tinjectdata[P: Poster](object: *mut fid_ep, base: *const c_void, len: usize, data: u64, to: u64, tag: u64)
        = transmit::<P>(object, tagged(tag), &one(base, len), to, Some(data), None);
}
