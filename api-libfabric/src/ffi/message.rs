//! Messages, with tags and without.

use std::ffi::c_void;

use super::endpoint::{EndpointPart, Triggering, part};
use super::posted;
use super::rma::{one, parts};
use super::shared::ReceivesPart;
use super::trigger::{Lists, trigger};
use crate::endpoint::PostOptions;
use crate::messages::MatchTag;
use crate::rma::LocalRange;
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::Kind;

macro_rules! messages {
    ($receiver:ty, $triggers:literal) => {
        fi_ops_msg {
            size: size_of::<fi_ops_msg>(),
            recv: recv::<$receiver>,
            recvv: recvv::<$receiver>,
            recvmsg: recvmsg::<Triggering>,
            send: send::<$triggers>,
            sendv: sendv::<$triggers>,
            sendmsg,
            inject: inject::<$triggers>,
            senddata: senddata::<$triggers>,
            injectdata: injectdata::<$triggers>,
        }
    };
}

macro_rules! tagged_messages {
    ($receiver:ty, $triggers:literal) => {
        fi_ops_tagged {
            size: size_of::<fi_ops_tagged>(),
            recv: trecv::<$receiver>,
            recvv: trecvv::<$receiver>,
            recvmsg: trecvmsg::<Triggering>,
            send: tsend::<$triggers>,
            sendv: tsendv::<$triggers>,
            sendmsg: tsendmsg,
            inject: tinject::<$triggers>,
            senddata: tsenddata::<$triggers>,
            injectdata: tinjectdata::<$triggers>,
        }
    };
}

pub(super) static MESSAGES: fi_ops_msg = messages!(EndpointPart, false);
pub(super) static TAGGED: fi_ops_tagged = tagged_messages!(EndpointPart, false);

/// Table of endpoints with FI_TRIGGER in their default flags: plain calls can wait for a counter.
pub(super) static TRIGGERING: fi_ops_msg = messages!(Triggering, true);
/// The same for tagged messages.
pub(super) static TRIGGERING_TAGGED: fi_ops_tagged = tagged_messages!(Triggering, true);

/// Defines functions that refuse every call.
macro_rules! refusals {
    ($($name:ident($($argument:ty),*);)*) => {
        $(unsafe extern "C" fn $name($(_: $argument),*) -> isize {
            -(Errno::OPNOTSUPP.0 as isize)
        })*
    };
}

refusals! {
    no_send(*mut fid_ep, *const c_void, usize, *mut c_void, u64, *mut c_void);
    no_sendv(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, *mut c_void);
    no_sendmsg(*mut fid_ep, *const fi_msg, u64);
    no_inject(*mut fid_ep, *const c_void, usize, u64);
    no_senddata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void);
    no_injectdata(*mut fid_ep, *const c_void, usize, u64, u64);
    no_tsend(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void);
    no_tsendv(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, u64, *mut c_void);
    no_tsendmsg(*mut fid_ep, *const fi_msg_tagged, u64);
    no_tsenddata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void);
    no_tinjectdata(*mut fid_ep, *const c_void, usize, u64, u64, u64);
}

/// Table of shared receive contexts.
pub(super) static SHARED: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: recv::<ReceivesPart>,
    recvv: recvv::<ReceivesPart>,
    recvmsg: recvmsg::<ReceivesPart>,
    send: no_send,
    sendv: no_sendv,
    sendmsg: no_sendmsg,
    inject: no_inject,
    senddata: no_senddata,
    injectdata: no_injectdata,
};

/// The same for tagged messages.
pub(super) static SHARED_TAGGED: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: trecv::<ReceivesPart>,
    recvv: trecvv::<ReceivesPart>,
    recvmsg: trecvmsg::<ReceivesPart>,
    send: no_tsend,
    sendv: no_tsendv,
    sendmsg: no_tsendmsg,
    inject: no_injectdata,
    senddata: no_tsenddata,
    injectdata: no_tinjectdata,
};

fn tagged(tag: u64) -> MatchTag {
    MatchTag {
        tag: Some(tag),
        ignore: 0,
    }
}

fn masked(tag: u64, ignore: u64) -> MatchTag {
    MatchTag {
        tag: Some(tag),
        ignore,
    }
}

/// An object that takes receives: an endpoint, or a shared receive context.
pub(super) trait Receiver {
    /// The object behind a pointer. Errors: [`Errno::INVAL`] for null.
    ///
    /// # Safety
    /// `object` is null or an object of this kind.
    unsafe fn at<'a>(object: *mut fid_ep) -> Result<&'a Self>;

    /// Posting of a receive call without a flags argument.
    fn plain(&self, context: *mut c_void) -> PostOptions;

    /// Posts a receive.
    ///
    /// # Safety
    /// The memory is valid for writes until the operation is complete.
    unsafe fn receive(
        &self,
        tag: MatchTag,
        local: &[LocalRange],
        from: u64,
        posting: &PostOptions,
    ) -> Result<()>;
}

/// # Safety
/// The arguments are valid as in fi_recv(3).
#[inline(always)]
unsafe fn receive<R: Receiver>(
    object: *mut fid_ep,
    tag: MatchTag,
    local: &[LocalRange],
    from: u64,
    context: *mut c_void,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: the arguments are valid; likewise below.
    unsafe {
        let object = R::at(object)?;
        object.receive(tag, local, from, &object.plain(context))
    }
}

/// Posts a send. With `TRIGGERS`, FI_TRIGGER defers it until its counter reaches the threshold.
///
/// # Safety
/// The arguments are valid as in fi_send(3).
#[inline(always)]
unsafe fn post<const TRIGGERS: bool>(
    part: &EndpointPart,
    tag: MatchTag,
    local: &[LocalRange],
    to: u64,
    posting: &PostOptions,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: the arguments are valid; likewise below.
    unsafe {
        match part.endpoint.send(tag, local, to, posting) {
            Err(Errno::BADFLAGS) if TRIGGERS => {
                let lists = Lists {
                    local,
                    ..Lists::default()
                };
                trigger(part, Kind::Send(tag), &lists, to, *posting)
            }
            done => done,
        }
    }
}

/// # Safety
/// The arguments are valid as in fi_send(3).
#[inline(always)]
unsafe fn transmit<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    tag: MatchTag,
    local: &[LocalRange],
    to: u64,
    data: Option<u64>,
    context: *mut c_void,
) -> Result<()> {
    // SAFETY:
    // - as above.
    unsafe {
        let part = part(endpoint)?;
        let posting = PostOptions {
            data,
            ..part.plain(context)
        };
        post::<TRIGGERS>(part, tag, local, to, &posting)
    }
}

/// # Safety
/// The arguments are valid as in fi_inject(3).
#[inline(always)]
unsafe fn quietly<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    tag: MatchTag,
    local: &[LocalRange],
    to: u64,
    data: Option<u64>,
) -> Result<()> {
    // SAFETY:
    // - as above.
    unsafe {
        let part = part(endpoint)?;
        let posting = PostOptions {
            data,
            ..part.inject()
        };
        post::<TRIGGERS>(part, tag, local, to, &posting)
    }
}

unsafe extern "C" fn recv<R: Receiver>(
    endpoint: *mut fid_ep,
    base: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe { receive::<R>(endpoint, MatchTag::NONE, &one(base, len), from, context) })
}

unsafe extern "C" fn recvv<R: Receiver>(
    endpoint: *mut fid_ep,
    local: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        receive::<R>(
            endpoint,
            MatchTag::NONE,
            parts(local, count)?,
            from,
            context,
        )
    })
}

unsafe extern "C" fn recvmsg<R: Receiver>(
    endpoint: *mut fid_ep,
    message: *const fi_msg,
    flags: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let posting = PostOptions {
            context: message.context.addr(),
            flags,
            ..PostOptions::default()
        };
        let local = parts(message.msg_iov, message.iov_count)?;
        R::at(endpoint)?.receive(MatchTag::NONE, local, message.addr, &posting)
    })
}

unsafe extern "C" fn send<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        transmit::<TRIGGERS>(endpoint, MatchTag::NONE, &one(base, len), to, None, context)
    })
}

unsafe extern "C" fn sendv<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    local: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        transmit::<TRIGGERS>(
            endpoint,
            MatchTag::NONE,
            parts(local, count)?,
            to,
            None,
            context,
        )
    })
}

unsafe extern "C" fn sendmsg(endpoint: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let part = part(endpoint)?;
        let posting = part.flagged(message.context, flags, message.data);
        let local = parts(message.msg_iov, message.iov_count)?;
        post::<true>(part, MatchTag::NONE, local, message.addr, &posting)
    })
}

unsafe extern "C" fn inject<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    to: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe { quietly::<TRIGGERS>(endpoint, MatchTag::NONE, &one(base, len), to, None) })
}

unsafe extern "C" fn senddata<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        transmit::<TRIGGERS>(
            endpoint,
            MatchTag::NONE,
            &one(base, len),
            to,
            Some(data),
            context,
        )
    })
}

unsafe extern "C" fn injectdata<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        quietly::<TRIGGERS>(endpoint, MatchTag::NONE, &one(base, len), to, Some(data))
    })
}

unsafe extern "C" fn trecv<R: Receiver>(
    endpoint: *mut fid_ep,
    base: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        receive::<R>(
            endpoint,
            masked(tag, ignore),
            &one(base, len),
            from,
            context,
        )
    })
}

unsafe extern "C" fn trecvv<R: Receiver>(
    endpoint: *mut fid_ep,
    local: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        receive::<R>(
            endpoint,
            masked(tag, ignore),
            parts(local, count)?,
            from,
            context,
        )
    })
}

unsafe extern "C" fn trecvmsg<R: Receiver>(
    endpoint: *mut fid_ep,
    message: *const fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let posting = PostOptions {
            context: message.context.addr(),
            flags,
            ..PostOptions::default()
        };
        let local = parts(message.msg_iov, message.iov_count)?;
        let tag = masked(message.tag, message.ignore);
        R::at(endpoint)?.receive(tag, local, message.addr, &posting)
    })
}

unsafe extern "C" fn tsend<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        transmit::<TRIGGERS>(endpoint, tagged(tag), &one(base, len), to, None, context)
    })
}

unsafe extern "C" fn tsendv<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    local: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        transmit::<TRIGGERS>(
            endpoint,
            tagged(tag),
            parts(local, count)?,
            to,
            None,
            context,
        )
    })
}

unsafe extern "C" fn tsendmsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let part = part(endpoint)?;
        let posting = part.flagged(message.context, flags, message.data);
        let local = parts(message.msg_iov, message.iov_count)?;
        post::<true>(part, tagged(message.tag), local, message.addr, &posting)
    })
}

unsafe extern "C" fn tinject<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe { quietly::<TRIGGERS>(endpoint, tagged(tag), &one(base, len), to, None) })
}

unsafe extern "C" fn tsenddata<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        transmit::<TRIGGERS>(
            endpoint,
            tagged(tag),
            &one(base, len),
            to,
            Some(data),
            context,
        )
    })
}

unsafe extern "C" fn tinjectdata<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    posted(|| unsafe {
        quietly::<TRIGGERS>(endpoint, tagged(tag), &one(base, len), to, Some(data))
    })
}
