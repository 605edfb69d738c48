//! Remote memory access.

use std::ffi::c_void;

use super::endpoint::{EndpointPart, Poster, Triggering, flagged, transmits};
use super::{list, posted};
use crate::atomics::AtomicOperands;
use crate::endpoint::IOV_LIMIT;
use crate::rma::RmaKind::{Read, Write};
use crate::rma::{LocalRange, RemotePart, RmaKind, total};
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::{Call, Kind};

macro_rules! table {
    ($poster:ty) => {
        fi_ops_rma {
            size: size_of::<fi_ops_rma>(),
            read: read::<$poster>,
            readv: readv::<$poster>,
            readmsg,
            write: write::<$poster>,
            writev: writev::<$poster>,
            writemsg,
            inject: inject::<$poster>,
            writedata: writedata::<$poster>,
            injectdata: injectdata::<$poster>,
        }
    };
}

pub(super) static OPS: fi_ops_rma = table!(EndpointPart);

/// Table of endpoints with FI_TRIGGER in their default flags: plain calls can wait for a counter.
pub(super) static TRIGGERING: fi_ops_rma = table!(Triggering);

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

/// One part. Its address does not matter if it is empty.
#[inline(always)]
pub(super) fn one(base: *const c_void, len: usize) -> [LocalRange; 1] {
    [LocalRange {
        ptr: base.cast_mut().cast(),
        len,
    }]
}

/// Posts a transfer of one range of the peer's memory. `context`: `None` for inject calls.
///
/// # Safety
/// The arguments are valid as in fi_rma(3).
#[inline(always)]
unsafe fn transfer<P: Poster>(
    endpoint: *mut fid_ep,
    direction: RmaKind,
    local: &[LocalRange],
    (peer, address, key): (u64, u64, u64),
    data: Option<u64>,
    context: Option<*mut c_void>,
) -> Result<()> {
    let len = total(local.iter().map(|part| part.len), usize::MAX)?;
    // SAFETY:
    // - contract of this call: the arguments are valid; likewise below.
    unsafe {
        let endpoint = P::at(endpoint)?;
        endpoint.post(&Call {
            kind: Kind::Transfer(direction),
            memory: AtomicOperands {
                operand: local,
                remote: &[RemotePart { address, len, key }],
                ..AtomicOperands::default()
            },
            peer,
            posting: transmits(endpoint, data, context),
        })
    }
}

/// The call that a message describes.
///
/// # Safety
/// `message` is null or valid, with its lists.
pub(super) unsafe fn of_message<'a>(
    direction: RmaKind,
    message: *const fi_msg_rma,
    flags: u64,
) -> Result<Call<'a>> {
    // SAFETY:
    // - as above.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        if direction == Read && flags & FI_REMOTE_CQ_DATA != 0 {
            return Err(Errno::BADFLAGS);
        }
        Ok(Call {
            kind: Kind::Transfer(direction),
            memory: AtomicOperands {
                operand: parts(message.msg_iov, message.iov_count)?,
                remote: remote_parts(message.rma_iov, message.rma_iov_count)?,
                ..AtomicOperands::default()
            },
            peer: message.addr,
            posting: flagged(message.context, flags, message.data),
        })
    }
}

entries! { posted -> isize;
    fn read[P: Poster](
        endpoint: *mut fid_ep, base: *mut c_void, len: usize, _desc: *mut c_void, from: u64, address: u64, key: u64,
        context: *mut c_void,
    ) = transfer::<P>(endpoint, Read, &one(base, len), (from, address, key), None, Some(context));
    fn readv[P: Poster](
        endpoint: *mut fid_ep, local: *const libc::iovec, _desc: *mut *mut c_void, count: usize, from: u64, address: u64,
        key: u64, context: *mut c_void,
    ) = transfer::<P>(endpoint, Read, parts(local, count)?, (from, address, key), None, Some(context));
    fn readmsg(endpoint: *mut fid_ep, message: *const fi_msg_rma, flags: u64)
        = Triggering::at(endpoint)?.post(&of_message(Read, message, flags)?);
    fn write[P: Poster](
        endpoint: *mut fid_ep, base: *const c_void, len: usize, _desc: *mut c_void, to: u64, address: u64, key: u64,
        context: *mut c_void,
    ) = transfer::<P>(endpoint, Write, &one(base, len), (to, address, key), None, Some(context));
    fn writev[P: Poster](
        endpoint: *mut fid_ep, local: *const libc::iovec, _desc: *mut *mut c_void, count: usize, to: u64, address: u64,
        key: u64, context: *mut c_void,
    ) = transfer::<P>(endpoint, Write, parts(local, count)?, (to, address, key), None, Some(context));
    fn writemsg(endpoint: *mut fid_ep, message: *const fi_msg_rma, flags: u64)
        = Triggering::at(endpoint)?.post(&of_message(Write, message, flags)?);
    fn inject[P: Poster](endpoint: *mut fid_ep, base: *const c_void, len: usize, to: u64, address: u64, key: u64)
        = transfer::<P>(endpoint, Write, &one(base, len), (to, address, key), None, None);
    fn writedata[P: Poster](
        endpoint: *mut fid_ep, base: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64, address: u64, key: u64,
        context: *mut c_void,
    ) = transfer::<P>(endpoint, Write, &one(base, len), (to, address, key), Some(data), Some(context));
    fn injectdata[P: Poster](
        endpoint: *mut fid_ep, base: *const c_void, len: usize, data: u64, to: u64, address: u64, key: u64,
    ) = transfer::<P>(endpoint, Write, &one(base, len), (to, address, key), Some(data), None);
}
