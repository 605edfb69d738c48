//! Atomic functions.

use std::ffi::{c_int, c_void};

use super::endpoint::{EndpointPart, Poster, Triggering, flagged, part, transmits};
use super::rma::{one, parts, remote_parts};
use super::trigger::trigger;
use super::{code, posted, put};
use crate::atomics::Family::{Base, Compare, Fetch};
use crate::atomics::{AtomicOperands, Family, valid};
use crate::fast_path::Elements;
use crate::rma::{LocalRange, RemotePart, total};
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::{Call, Kind};

macro_rules! table {
    ($poster:ty) => {
        fi_ops_atomic {
            size: size_of::<fi_ops_atomic>(),
            write: write::<$poster>,
            writev: writev::<$poster>,
            writemsg,
            inject: inject::<$poster>,
            readwrite: readwrite::<$poster>,
            readwritev: readwritev::<$poster>,
            readwritemsg,
            compwrite: compwrite::<$poster>,
            compwritev: compwritev::<$poster>,
            compwritemsg,
            writevalid,
            readwritevalid,
            compwritevalid,
        }
    };
}

pub(super) static OPS: fi_ops_atomic = table!(EndpointPart);

/// Table of endpoints with FI_TRIGGER in their default flags: plain calls can wait for a counter.
pub(super) static TRIGGERING: fi_ops_atomic = table!(Triggering);

/// The operation of a call: `enum fi_datatype` and `enum fi_op`.
type What = (c_int, c_int);

/// Posts an operation on consecutive elements of the peer. `local`: operands, comparands and results. `context`: `None` for inject calls.
///
/// # Safety
/// The arguments are valid as in fi_atomic(3).
#[inline(always)]
unsafe fn operate<P: Poster>(
    endpoint: *mut fid_ep,
    (family, what): (Family, What),
    local: [&[LocalRange]; 3],
    (peer, address, key): (u64, u64, u64),
    context: Option<*mut c_void>,
) -> Result<()> {
    let [operand, compare, result] = local;
    // FI_ATOMIC_READ ignores the operand, so the result gives the length.
    let counted = if family == Fetch { result } else { operand };
    // SAFETY:
    // - contract of this call: `endpoint` is null or an endpoint of this provider.
    let (poster, part) = unsafe { (P::at(endpoint)?, part(endpoint)?) };
    let posting = transmits(poster, None, context);
    let first = |list: &[LocalRange]| list.first().map_or(std::ptr::null_mut(), |part| part.ptr);
    let short = local
        .iter()
        .all(|list| list.is_empty() || list.len() == 1 && list[0].len == counted[0].len);
    if short && counted.len() == 1 {
        let len = counted[0].len;
        let elements = Elements {
            family,
            what,
            operand: first(operand),
            compare: first(compare),
            result: first(result),
            remote: RemotePart { address, len, key },
        };
        // SAFETY:
        // - contract of this call: the memory is valid, as `Endpoint::atomic` requires.
        if let Some(done) = unsafe { part.endpoint.atomic_fast(&elements, peer, &posting) } {
            return done;
        }
    }
    let len = total(counted.iter().map(|part| part.len), usize::MAX)?;
    let call = Call {
        kind: Kind::Atomic(family, what),
        memory: AtomicOperands {
            operand,
            compare,
            result,
            remote: &[RemotePart { address, len, key }],
        },
        peer,
        posting,
    };
    // SAFETY:
    // - as above.
    unsafe { poster.post(&call) }
}

/// The call that a message describes. `compare` and `result` are lists, and their lengths.
///
/// # Safety
/// `message` is null or valid, and so are the lists.
pub(super) unsafe fn of_message<'a>(
    family: Family,
    message: *const fi_msg_atomic,
    compare: (*const fi_ioc, usize),
    result: (*mut fi_ioc, usize),
    flags: u64,
) -> Result<Call<'a>> {
    // SAFETY:
    // - contract of this call.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        // Atomics deliver no remote CQ data.
        if flags & FI_REMOTE_CQ_DATA != 0 {
            return Err(Errno::BADFLAGS);
        }
        Ok(Call {
            kind: Kind::Atomic(family, (message.datatype, message.op)),
            memory: AtomicOperands {
                operand: parts(message.msg_iov, message.iov_count)?,
                compare: parts(compare.0, compare.1)?,
                result: parts(result.0.cast_const(), result.1)?,
                remote: remote_parts(message.rma_iov, message.rma_iov_count)?,
            },
            peer: message.addr,
            posting: flagged(message.context, flags, 0),
        })
    }
}

/// Posts the call of a message. With FI_TAGGED it operates on a tagged buffer.
///
/// # Safety
/// The arguments are valid as in fi_atomicmsg(3), fi_fetch_atomicmsg(3) or fi_compare_atomicmsg(3).
unsafe fn post(endpoint: *mut fid_ep, mut call: Call<'_>) -> Result<()> {
    let flags = call.posting.flags;
    // SAFETY:
    // - contract of this call.
    unsafe {
        let part = part(endpoint)?;
        match call.kind {
            _ if flags & FI_TRIGGER != 0 => trigger(part, &call),
            Kind::Atomic(family, what) if flags & FI_TAGGED != 0 => {
                call.posting.flags = flags & !FI_TAGGED;
                let (to, posting) = (call.peer, &call.posting);
                part.endpoint
                    .atomic_tagged(family, what, &call.memory, to, posting)
            }
            _ => part.post(&call),
        }
    }
}

/// Empty lists of comparands and results.
pub(super) const NO_COMPARE: (*const fi_ioc, usize) = (std::ptr::null(), 0);
pub(super) const NO_RESULT: (*mut fi_ioc, usize) = (std::ptr::null_mut(), 0);

entries! { posted -> isize;
    fn write[P: Poster](
        endpoint: *mut fid_ep, base: *const c_void, count: usize, _desc: *mut c_void, to: u64, address: u64, key: u64,
        datatype: c_int, op: c_int, context: *mut c_void,
    ) = operate::<P>(endpoint, (Base, (datatype, op)), [&one(base, count), &[], &[]], (to, address, key), Some(context));
    fn writev[P: Poster](
        endpoint: *mut fid_ep, operand: *const fi_ioc, _desc: *mut *mut c_void, count: usize, to: u64, address: u64, key: u64,
        datatype: c_int, op: c_int, context: *mut c_void,
    ) = operate::<P>(endpoint, (Base, (datatype, op)), [parts(operand, count)?, &[], &[]], (to, address, key), Some(context));
    fn writemsg(endpoint: *mut fid_ep, message: *const fi_msg_atomic, flags: u64)
        = post(endpoint, of_message(Base, message, NO_COMPARE, NO_RESULT, flags)?);
    fn inject[P: Poster](
        endpoint: *mut fid_ep, base: *const c_void, count: usize, to: u64, address: u64, key: u64, datatype: c_int, op: c_int,
    ) = operate::<P>(endpoint, (Base, (datatype, op)), [&one(base, count), &[], &[]], (to, address, key), None);
    fn readwrite[P: Poster](
        endpoint: *mut fid_ep, base: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void,
        _result_desc: *mut c_void, to: u64, address: u64, key: u64, datatype: c_int, op: c_int, context: *mut c_void,
    ) = {
        let local: [&[_]; 3] = [&one(base, count), &[], &one(result, count)];
        operate::<P>(endpoint, (Fetch, (datatype, op)), local, (to, address, key), Some(context))
    };
    fn readwritev[P: Poster](
        endpoint: *mut fid_ep, operand: *const fi_ioc, _desc: *mut *mut c_void, count: usize, result: *mut fi_ioc,
        _result_desc: *mut *mut c_void, result_count: usize, to: u64, address: u64, key: u64, datatype: c_int, op: c_int,
        context: *mut c_void,
    ) = {
        let local = [parts(operand, count)?, &[], parts(result.cast_const(), result_count)?];
        operate::<P>(endpoint, (Fetch, (datatype, op)), local, (to, address, key), Some(context))
    };
    fn readwritemsg(
        endpoint: *mut fid_ep, message: *const fi_msg_atomic, result: *mut fi_ioc, _result_desc: *mut *mut c_void,
        result_count: usize, flags: u64,
    ) = post(endpoint, of_message(Fetch, message, NO_COMPARE, (result, result_count), flags)?);
    fn compwrite[P: Poster](
        endpoint: *mut fid_ep, base: *const c_void, count: usize, _desc: *mut c_void, compare: *const c_void,
        _compare_desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, to: u64, address: u64, key: u64,
        datatype: c_int, op: c_int, context: *mut c_void,
    ) = {
        let local: [&[_]; 3] = [&one(base, count), &one(compare, count), &one(result, count)];
        operate::<P>(endpoint, (Compare, (datatype, op)), local, (to, address, key), Some(context))
    };
    fn compwritev[P: Poster](
        endpoint: *mut fid_ep, operand: *const fi_ioc, _desc: *mut *mut c_void, count: usize, compare: *const fi_ioc,
        _compare_desc: *mut *mut c_void, compare_count: usize, result: *mut fi_ioc, _result_desc: *mut *mut c_void,
        result_count: usize, to: u64, address: u64, key: u64, datatype: c_int, op: c_int, context: *mut c_void,
    ) = {
        let (compare, result) = (parts(compare, compare_count)?, parts(result.cast_const(), result_count)?);
        let local = [parts(operand, count)?, compare, result];
        operate::<P>(endpoint, (Compare, (datatype, op)), local, (to, address, key), Some(context))
    };
    fn compwritemsg(
        endpoint: *mut fid_ep, message: *const fi_msg_atomic, compare: *const fi_ioc, _compare_desc: *mut *mut c_void,
        compare_count: usize, result: *mut fi_ioc, _result_desc: *mut *mut c_void, result_count: usize, flags: u64,
    ) = post(endpoint, of_message(Compare, message, (compare, compare_count), (result, result_count), flags)?);
}

entries! { code -> c_int;
    fn writevalid(_endpoint: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize)
        = put(count, valid(Base, datatype, op)?.count);
    fn readwritevalid(_endpoint: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize)
        = put(count, valid(Fetch, datatype, op)?.count);
    fn compwritevalid(_endpoint: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize)
        = put(count, valid(Compare, datatype, op)?.count);
}
