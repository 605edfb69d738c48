//! Remote memory access.

use std::ffi::c_void;

use super::endpoint::{EndpointPart, part};
use super::trigger::{Lists, trigger};
use super::{list, posted};
use crate::endpoint::{IOV_LIMIT, PostOptions};
use crate::rma::{LocalRange, RemotePart, RmaKind};
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::Kind;

macro_rules! table {
    ($triggers:literal) => {
        fi_ops_rma {
            size: size_of::<fi_ops_rma>(),
            read: read::<$triggers>,
            readv: readv::<$triggers>,
            readmsg,
            write: write::<$triggers>,
            writev: writev::<$triggers>,
            writemsg,
            inject: inject::<$triggers>,
            writedata: writedata::<$triggers>,
            injectdata: injectdata::<$triggers>,
        }
    };
}

pub(super) static OPS: fi_ops_rma = table!(false);

/// Table of endpoints with FI_TRIGGER in their default flags: plain calls can wait for a counter.
pub(super) static TRIGGERING: fi_ops_rma = table!(true);

const _: () = assert!(
    size_of::<LocalRange>() == size_of::<libc::iovec>()
        && size_of::<LocalRange>() == size_of::<fi_ioc>()
        && size_of::<RemotePart>() == size_of::<fi_rma_iov>()
        && size_of::<RemotePart>() == size_of::<fi_rma_ioc>()
);

/// An array of `struct iovec` or `struct fi_ioc` as parts.
///
/// # Safety
/// As for [`list`].
#[inline(always)]
pub(super) unsafe fn parts<'a, T>(first: *const T, count: usize) -> Result<&'a [LocalRange]> {
    const { assert!(size_of::<T>() == size_of::<LocalRange>()) };
    // SAFETY:
    // - contract of this call. Each of the structures is a pointer and a length.
    unsafe { list(first.cast::<LocalRange>(), count, IOV_LIMIT) }
}

/// An array of `struct fi_rma_iov` or `struct fi_rma_ioc` as remote parts.
///
/// # Safety
/// As for [`list`].
#[inline(always)]
pub(super) unsafe fn remote_parts<'a, T>(
    first: *const T,
    count: usize,
) -> Result<&'a [RemotePart]> {
    const { assert!(size_of::<T>() == size_of::<RemotePart>()) };
    // SAFETY:
    // - contract of this call. The layouts are the same.
    unsafe { list(first.cast::<RemotePart>(), count, IOV_LIMIT) }
}

/// Empty lists of comparands and results.
pub(super) const NO_COMPARE: (*const fi_ioc, usize) = (std::ptr::null(), 0);
pub(super) const NO_RESULT: (*mut fi_ioc, usize) = (std::ptr::null_mut(), 0);

/// One part. Its address does not matter if it is empty.
#[inline(always)]
pub(super) fn one(base: *const c_void, len: usize) -> [LocalRange; 1] {
    [LocalRange {
        ptr: base.cast_mut().cast(),
        len,
    }]
}

/// Posts a transfer. With `TRIGGERS`, FI_TRIGGER defers it until its counter reaches the threshold.
///
/// # Safety
/// The arguments are valid as in fi_rma(3).
#[inline(always)]
unsafe fn post<const TRIGGERS: bool>(
    part: &EndpointPart,
    direction: RmaKind,
    local: &[LocalRange],
    remote: &[RemotePart],
    to: u64,
    posting: &PostOptions,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: the arguments are valid; likewise below.
    unsafe {
        match part
            .endpoint
            .transfer(direction, local, remote, to, posting)
        {
            Err(Errno::BADFLAGS) if TRIGGERS => {
                let lists = Lists {
                    local,
                    remote,
                    ..Lists::default()
                };
                trigger(part, Kind::Transfer(direction), &lists, to, *posting)
            }
            done => done,
        }
    }
}

/// Posts a transfer of one range of the peer's memory.
///
/// # Safety
/// The arguments are valid as in fi_rma(3).
#[inline(always)]
unsafe fn plain<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    direction: RmaKind,
    local: &[LocalRange],
    to: u64,
    (address, key): (u64, u64),
    posting: &PostOptions,
) -> Result<()> {
    let len = crate::rma::total(local.iter().map(|part| part.len), usize::MAX)?;
    let remote = [RemotePart { address, len, key }];
    // SAFETY:
    // - as above.
    unsafe { post::<TRIGGERS>(part(endpoint)?, direction, local, &remote, to, posting) }
}

/// # Safety
/// The arguments are valid as in fi_readmsg(3) or fi_writemsg(3).
unsafe fn message(
    endpoint: *mut fid_ep,
    direction: RmaKind,
    message: *const fi_msg_rma,
    flags: u64,
) -> Result<()> {
    // SAFETY:
    // - as above.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let part = part(endpoint)?;
        if direction == RmaKind::Read && flags & FI_REMOTE_CQ_DATA != 0 {
            return Err(Errno::BADFLAGS);
        }
        let posting = part.flagged(message.context, flags, message.data);
        let remote = remote_parts(message.rma_iov, message.rma_iov_count)?;
        let local = parts(message.msg_iov, message.iov_count)?;
        post::<true>(part, direction, local, remote, message.addr, &posting)
    }
}

unsafe extern "C" fn read<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid; likewise below.
    posted(|| unsafe {
        let posting = part(endpoint)?.plain(context);
        plain::<TRIGGERS>(
            endpoint,
            RmaKind::Read,
            &one(base, len),
            from,
            (address, key),
            &posting,
        )
    })
}

unsafe extern "C" fn readv<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    local: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let posting = part(endpoint)?.plain(context);
        let local = parts(local, count)?;
        plain::<TRIGGERS>(
            endpoint,
            RmaKind::Read,
            local,
            from,
            (address, key),
            &posting,
        )
    })
}

unsafe extern "C" fn readmsg(endpoint: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe { message(endpoint, RmaKind::Read, msg, flags) })
}

unsafe extern "C" fn write<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let posting = part(endpoint)?.plain(context);
        plain::<TRIGGERS>(
            endpoint,
            RmaKind::Write,
            &one(base, len),
            to,
            (address, key),
            &posting,
        )
    })
}

unsafe extern "C" fn writev<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    local: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let posting = part(endpoint)?.plain(context);
        let local = parts(local, count)?;
        plain::<TRIGGERS>(
            endpoint,
            RmaKind::Write,
            local,
            to,
            (address, key),
            &posting,
        )
    })
}

unsafe extern "C" fn writemsg(endpoint: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe { message(endpoint, RmaKind::Write, msg, flags) })
}

unsafe extern "C" fn inject<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    to: u64,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let posting = part(endpoint)?.inject();
        plain::<TRIGGERS>(
            endpoint,
            RmaKind::Write,
            &one(base, len),
            to,
            (address, key),
            &posting,
        )
    })
}

unsafe extern "C" fn writedata<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let posting = PostOptions {
            data: Some(data),
            ..part(endpoint)?.plain(context)
        };
        plain::<TRIGGERS>(
            endpoint,
            RmaKind::Write,
            &one(base, len),
            to,
            (address, key),
            &posting,
        )
    })
}

unsafe extern "C" fn injectdata<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let posting = PostOptions {
            data: Some(data),
            ..part(endpoint)?.inject()
        };
        plain::<TRIGGERS>(
            endpoint,
            RmaKind::Write,
            &one(base, len),
            to,
            (address, key),
            &posting,
        )
    })
}
