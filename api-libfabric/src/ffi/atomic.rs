//! Atomic functions.

use std::ffi::{c_int, c_void};

use super::endpoint::part;
use super::rma::{one, parts};
use super::{code, list, posted, put};
use crate::atomics::{Family, Operands, valid};
use crate::endpoint::{IOV_LIMIT, Posting};
use crate::quick::Elements;
use crate::rma::{Part, RemotePart, total};
use crate::status::{Errno, Result};
use crate::sys::*;

pub(super) static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// What the lists of a call are, and the operation.
struct Call<'a> {
    family: Family,
    what: (c_int, c_int),
    operand: &'a [Part],
    compare: &'a [Part],
    result: &'a [Part],
    to: u64,
}

/// An operation on consecutive elements of the peer.
///
/// # Safety
/// The arguments of fi_atomic(3).
#[inline(always)]
unsafe fn plain(
    endpoint: *mut fid_ep,
    call: &Call<'_>,
    (address, key): (u64, u64),
    posting: &Posting,
) -> Result<()> {
    // Of reads, the operand may be anything.
    let counted = if call.family == Family::Fetch {
        call.result
    } else {
        call.operand
    };
    // SAFETY:
    // - the caller's word.
    let endpoint = &unsafe { part(endpoint) }?.endpoint;
    let first = |list: &[Part]| list.first().map_or(std::ptr::null_mut(), |part| part.ptr);
    let short = [call.operand, call.compare, call.result]
        .iter()
        .all(|list| list.is_empty() || list.len() == 1 && list[0].len == counted[0].len);
    if short && counted.len() == 1 {
        let len = counted[0].len;
        let elements = Elements {
            family: call.family,
            what: call.what,
            operand: first(call.operand),
            compare: first(call.compare),
            result: first(call.result),
            remote: RemotePart { address, len, key },
        };
        // SAFETY:
        // - the caller's word.
        if let Some(done) = unsafe { endpoint.atomic_now(&elements, call.to, posting) } {
            return done;
        }
    }
    let len = total(counted.iter().map(|part| part.len), usize::MAX)?;
    let remote = [RemotePart { address, len, key }];
    let operands = Operands {
        operand: call.operand,
        compare: call.compare,
        result: call.result,
        remote: &remote,
    };
    // SAFETY:
    // - the caller's word.
    unsafe { endpoint.atomic(call.family, call.what, &operands, call.to, posting) }
}

/// # Safety
/// The arguments of fi_atomicmsg(3) and its relatives.
unsafe fn message(
    endpoint: *mut fid_ep,
    family: Family,
    message: *const fi_msg_atomic,
    compare: (*const fi_ioc, usize),
    result: (*mut fi_ioc, usize),
    flags: u64,
) -> Result<()> {
    // SAFETY:
    // - the caller's word.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        // The data of an atomic goes nowhere.
        if flags & FI_REMOTE_CQ_DATA != 0 {
            return Err(Errno::BADFLAGS);
        }
        let part = part(endpoint)?;
        let operands = Operands {
            operand: parts(message.msg_iov, message.iov_count)?,
            compare: parts(compare.0, compare.1)?,
            result: parts(result.0.cast_const(), result.1)?,
            remote: list(
                message.rma_iov.cast::<RemotePart>(),
                message.rma_iov_count,
                IOV_LIMIT,
            )?,
        };
        let posting = part.flagged(message.context, flags & !FI_TAGGED, 0);
        let (endpoint, to) = (&part.endpoint, message.addr);
        let what = (message.datatype, message.op);
        if flags & FI_TAGGED != 0 {
            endpoint.atomic_tagged(family, what, &operands, to, &posting)
        } else {
            endpoint.atomic(family, what, &operands, to, &posting)
        }
    }
}

unsafe extern "C" fn write(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: usize,
    _desc: *mut c_void,
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - our caller's arguments; likewise below.
    posted(|| unsafe {
        let call = Call {
            family: Family::Base,
            what: (datatype, op),
            operand: &one(base, count),
            compare: &[],
            result: &[],
            to,
        };
        let posting = part(endpoint)?.plain(context);
        plain(endpoint, &call, (address, key), &posting)
    })
}

unsafe extern "C" fn writev(
    endpoint: *mut fid_ep,
    operand: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let call = Call {
            family: Family::Base,
            what: (datatype, op),
            operand: parts(operand, count)?,
            compare: &[],
            result: &[],
            to,
        };
        let posting = part(endpoint)?.plain(context);
        plain(endpoint, &call, (address, key), &posting)
    })
}

unsafe extern "C" fn writemsg(
    endpoint: *mut fid_ep,
    msg: *const fi_msg_atomic,
    flags: u64,
) -> isize {
    let none = (std::ptr::null(), 0);
    let nowhere = (std::ptr::null_mut(), 0);
    // SAFETY:
    // - as above.
    posted(|| unsafe { message(endpoint, Family::Base, msg, none, nowhere, flags) })
}

unsafe extern "C" fn inject(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: usize,
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let call = Call {
            family: Family::Base,
            what: (datatype, op),
            operand: &one(base, count),
            compare: &[],
            result: &[],
            to,
        };
        let posting = part(endpoint)?.inject();
        plain(endpoint, &call, (address, key), &posting)
    })
}

unsafe extern "C" fn readwrite(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let call = Call {
            family: Family::Fetch,
            what: (datatype, op),
            operand: &one(base, count),
            compare: &[],
            result: &one(result, count),
            to,
        };
        let posting = part(endpoint)?.plain(context);
        plain(endpoint, &call, (address, key), &posting)
    })
}

unsafe extern "C" fn readwritev(
    endpoint: *mut fid_ep,
    operand: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    result: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let call = Call {
            family: Family::Fetch,
            what: (datatype, op),
            operand: parts(operand, count)?,
            compare: &[],
            result: parts(result.cast_const(), result_count)?,
            to,
        };
        let posting = part(endpoint)?.plain(context);
        plain(endpoint, &call, (address, key), &posting)
    })
}

unsafe extern "C" fn readwritemsg(
    endpoint: *mut fid_ep,
    msg: *const fi_msg_atomic,
    result: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let none = (std::ptr::null(), 0);
    let result = (result, result_count);
    // SAFETY:
    // - as above.
    posted(|| unsafe { message(endpoint, Family::Fetch, msg, none, result, flags) })
}

unsafe extern "C" fn compwrite(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let call = Call {
            family: Family::Compare,
            what: (datatype, op),
            operand: &one(base, count),
            compare: &one(compare, count),
            result: &one(result, count),
            to,
        };
        let posting = part(endpoint)?.plain(context);
        plain(endpoint, &call, (address, key), &posting)
    })
}

unsafe extern "C" fn compwritev(
    endpoint: *mut fid_ep,
    operand: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    compare: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    result: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY:
    // - as above.
    posted(|| unsafe {
        let call = Call {
            family: Family::Compare,
            what: (datatype, op),
            operand: parts(operand, count)?,
            compare: parts(compare, compare_count)?,
            result: parts(result.cast_const(), result_count)?,
            to,
        };
        let posting = part(endpoint)?.plain(context);
        plain(endpoint, &call, (address, key), &posting)
    })
}

unsafe extern "C" fn compwritemsg(
    endpoint: *mut fid_ep,
    msg: *const fi_msg_atomic,
    compare: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    result: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let compare = (compare, compare_count);
    let result = (result, result_count);
    // SAFETY:
    // - as above.
    posted(|| unsafe { message(endpoint, Family::Compare, msg, compare, result, flags) })
}

/// # Safety
/// `count` is null or a place for a number.
unsafe fn answer(family: Family, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    code(|| {
        let valid = valid(family, datatype, op)?;
        // SAFETY:
        // - the caller's word.
        unsafe { put(count, valid.count) }
    })
}

unsafe extern "C" fn writevalid(
    _endpoint: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY:
    // - as above.
    unsafe { answer(Family::Base, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(
    _endpoint: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY:
    // - as above.
    unsafe { answer(Family::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(
    _endpoint: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY:
    // - as above.
    unsafe { answer(Family::Compare, datatype, op, count) }
}
