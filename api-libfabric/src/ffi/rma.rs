//! Remote memory access.

use std::ffi::c_void;

use super::endpoint::{EndpointPart, part};
use super::trigger::{Lists, trigger};
use super::{list, posted};
use crate::endpoint::{IOV_LIMIT, Posting};
use crate::rma::{Direction, Part, RemotePart};
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

/// Of endpoints whose calls wait for counters.
pub(super) static TRIGGERING: fi_ops_rma = table!(true);

const _: () = assert!(
    size_of::<Part>() == size_of::<libc::iovec>()
        && size_of::<Part>() == size_of::<fi_ioc>()
        && size_of::<RemotePart>() == size_of::<fi_rma_iov>()
        && size_of::<RemotePart>() == size_of::<fi_rma_ioc>()
);

/// Vectors of C as they are: `struct iovec`, `struct fi_ioc`.
///
/// # Safety
/// As for [`list`].
#[inline(always)]
pub(super) unsafe fn parts<'a, T>(first: *const T, count: usize) -> Result<&'a [Part]> {
    const { assert!(size_of::<T>() == size_of::<Part>()) };
    // SAFETY:
    // - the caller's word; the structures are a pointer and a length alike.
    unsafe { list(first.cast::<Part>(), count, IOV_LIMIT) }
}

/// Remote parts of C, of bytes or elements.
///
/// # Safety
/// As for `list`.
#[inline(always)]
pub(super) unsafe fn remote_parts<'a, T>(
    first: *const T,
    count: usize,
) -> Result<&'a [RemotePart]> {
    const { assert!(size_of::<T>() == size_of::<RemotePart>()) };
    // SAFETY:
    // - the caller's word; the layouts are the same.
    unsafe { list(first.cast::<RemotePart>(), count, IOV_LIMIT) }
}

/// No comparands, and no results.
pub(super) const NO_COMPARE: (*const fi_ioc, usize) = (std::ptr::null(), 0);
pub(super) const NO_RESULT: (*mut fi_ioc, usize) = (std::ptr::null_mut(), 0);

/// One part; none of its bytes if it is empty, so that its address does not matter.
#[inline(always)]
pub(super) fn one(base: *const c_void, len: usize) -> [Part; 1] {
    [Part {
        ptr: base.cast_mut().cast(),
        len,
    }]
}

/// Posts a transfer; if it may be one that `TRIGGERS`, now or when its counter has come far enough.
///
/// # Safety
/// The arguments of fi_rma(3).
#[inline(always)]
unsafe fn post<const TRIGGERS: bool>(
    part: &EndpointPart,
    direction: Direction,
    local: &[Part],
    remote: &[RemotePart],
    to: u64,
    posting: &Posting,
) -> Result<()> {
    // SAFETY:
    // - the caller's word; likewise below.
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

/// A transfer to or from one place of the peer.
///
/// # Safety
/// The arguments of fi_rma(3).
#[inline(always)]
unsafe fn plain<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    direction: Direction,
    local: &[Part],
    to: u64,
    (address, key): (u64, u64),
    posting: &Posting,
) -> Result<()> {
    let len = crate::rma::total(local.iter().map(|part| part.len), usize::MAX)?;
    let remote = [RemotePart { address, len, key }];
    // SAFETY:
    // - as above.
    unsafe { post::<TRIGGERS>(part(endpoint)?, direction, local, &remote, to, posting) }
}

/// # Safety
/// The arguments of fi_readmsg(3).
unsafe fn message(
    endpoint: *mut fid_ep,
    direction: Direction,
    message: *const fi_msg_rma,
    flags: u64,
) -> Result<()> {
    // SAFETY:
    // - as above.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        let part = part(endpoint)?;
        if direction == Direction::Read && flags & FI_REMOTE_CQ_DATA != 0 {
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
    // - our caller's arguments; likewise below.
    posted(|| unsafe {
        let posting = part(endpoint)?.plain(context);
        plain::<TRIGGERS>(
            endpoint,
            Direction::Read,
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
            Direction::Read,
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
    posted(|| unsafe { message(endpoint, Direction::Read, msg, flags) })
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
            Direction::Write,
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
            Direction::Write,
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
    posted(|| unsafe { message(endpoint, Direction::Write, msg, flags) })
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
            Direction::Write,
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
        let posting = Posting {
            data: Some(data),
            ..part(endpoint)?.plain(context)
        };
        plain::<TRIGGERS>(
            endpoint,
            Direction::Write,
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
        let posting = Posting {
            data: Some(data),
            ..part(endpoint)?.inject()
        };
        plain::<TRIGGERS>(
            endpoint,
            Direction::Write,
            &one(base, len),
            to,
            (address, key),
            &posting,
        )
    })
}
