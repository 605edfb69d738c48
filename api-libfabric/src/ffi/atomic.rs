//! Atomic functions.

use std::ffi::{c_int, c_void};

use super::endpoint::part;
use super::rma::{NO_COMPARE, NO_RESULT, one, parts, remote_parts};
use super::trigger::{Lists, trigger};
use super::{code, posted, put};
use crate::atomics::{AtomicOperands, Family, valid};
use crate::endpoint::PostOptions;
use crate::fast_path::Elements;
use crate::rma::{LocalRange, RemotePart, total};
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::Kind;

macro_rules! table {
    ($triggers:literal) => {
        fi_ops_atomic {
            size: size_of::<fi_ops_atomic>(),
            write: write::<$triggers>,
            writev: writev::<$triggers>,
            writemsg,
            inject: inject::<$triggers>,
            readwrite: readwrite::<$triggers>,
            readwritev: readwritev::<$triggers>,
            readwritemsg,
            compwrite: compwrite::<$triggers>,
            compwritev: compwritev::<$triggers>,
            compwritemsg,
            writevalid,
            readwritevalid,
            compwritevalid,
        }
    };
}

pub(super) static OPS: fi_ops_atomic = table!(false);

/// Table of endpoints with FI_TRIGGER in their default flags: plain calls can wait for a counter.
pub(super) static TRIGGERING: fi_ops_atomic = table!(true);

/// The operation of a call, its local memory, and its peer.
struct Call<'a> {
    family: Family,
    what: (c_int, c_int),
    operand: &'a [LocalRange],
    compare: &'a [LocalRange],
    result: &'a [LocalRange],
    to: u64,
}

fn lists<'a>(operands: &AtomicOperands<'a>) -> Lists<'a> {
    Lists {
        local: operands.operand,
        compare: operands.compare,
        result: operands.result,
        remote: operands.remote,
    }
}

/// Posts an operation on consecutive elements of the peer. With `TRIGGERS`, FI_TRIGGER defers it until its counter reaches the threshold.
///
/// # Safety
/// The arguments are valid as in fi_atomic(3).
#[inline(always)]
unsafe fn plain<const TRIGGERS: bool>(
    endpoint: *mut fid_ep,
    call: &Call<'_>,
    (address, key): (u64, u64),
    posting: &PostOptions,
) -> Result<()> {
    // FI_ATOMIC_READ ignores the operand, so the result gives the length.
    let counted = if call.family == Family::Fetch {
        call.result
    } else {
        call.operand
    };
    // SAFETY:
    // - contract of this call: `endpoint` is null or an endpoint of this provider.
    let part = unsafe { part(endpoint) }?;
    let endpoint = &part.endpoint;
    let first = |list: &[LocalRange]| list.first().map_or(std::ptr::null_mut(), |part| part.ptr);
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
        // - contract of this call: the memory is valid, as `Endpoint::atomic` requires.
        if let Some(done) = unsafe { endpoint.atomic_fast(&elements, call.to, posting) } {
            return done;
        }
    }
    let len = total(counted.iter().map(|part| part.len), usize::MAX)?;
    let remote = [RemotePart { address, len, key }];
    let operands = AtomicOperands {
        operand: call.operand,
        compare: call.compare,
        result: call.result,
        remote: &remote,
    };
    // SAFETY:
    // - contract of this call: the memory is valid, as `Endpoint::atomic` requires.
    unsafe {
        match endpoint.atomic(call.family, call.what, &operands, call.to, posting) {
            Err(Errno::BADFLAGS) if TRIGGERS => {
                let kind = Kind::Atomic(call.family, call.what);
                trigger(part, kind, &lists(&operands), call.to, *posting)
            }
            done => done,
        }
    }
}

/// # Safety
/// The arguments are valid as in fi_atomicmsg(3), fi_fetch_atomicmsg(3) or fi_compare_atomicmsg(3).
unsafe fn message(
    endpoint: *mut fid_ep,
    family: Family,
    message: *const fi_msg_atomic,
    compare: (*const fi_ioc, usize),
    result: (*mut fi_ioc, usize),
    flags: u64,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: the arguments are valid.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVAL)?;
        // Atomics deliver no remote CQ data.
        if flags & FI_REMOTE_CQ_DATA != 0 {
            return Err(Errno::BADFLAGS);
        }
        let part = part(endpoint)?;
        let operands = AtomicOperands {
            operand: parts(message.msg_iov, message.iov_count)?,
            compare: parts(compare.0, compare.1)?,
            result: parts(result.0.cast_const(), result.1)?,
            remote: remote_parts(message.rma_iov, message.rma_iov_count)?,
        };
        let posting = part.flagged(message.context, flags & !FI_TAGGED, 0);
        let (endpoint, to) = (&part.endpoint, message.addr);
        let what = (message.datatype, message.op);
        if flags & FI_TRIGGER != 0 {
            let posting = part.flagged(message.context, flags, 0);
            let kind = Kind::Atomic(family, what);
            return trigger(part, kind, &lists(&operands), to, posting);
        }
        if flags & FI_TAGGED != 0 {
            endpoint.atomic_tagged(family, what, &operands, to, &posting)
        } else {
            endpoint.atomic(family, what, &operands, to, &posting)
        }
    }
}

/// Defines table functions that operate on consecutive elements of the peer. An entry gives the first arguments, and the local lists made of
/// them. All functions share the other arguments, except that inject calls have no context.
macro_rules! operations {
    ($($posting:ident fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $family:ident: $operand:expr, $compare:expr, $result:expr;)*) => {
        $(operations!(@$posting $name($($arg: $ty),*) $family, $operand, $compare, $result);)*
    };
    (@plain $name:ident($($arg:ident: $ty:ty),*) $family:ident, $operand:expr, $compare:expr, $result:expr) => {
        unsafe extern "C" fn $name<const TRIGGERS: bool>(
            endpoint: *mut fid_ep, $($arg: $ty,)* to: u64, address: u64, key: u64, datatype: c_int, op: c_int, context: *mut c_void,
        ) -> isize {
            operations!(@body endpoint, to, (address, key), (datatype, op), plain(context), $family, $operand, $compare, $result)
        }
    };
    (@injected $name:ident($($arg:ident: $ty:ty),*) $family:ident, $operand:expr, $compare:expr, $result:expr) => {
        unsafe extern "C" fn $name<const TRIGGERS: bool>(
            endpoint: *mut fid_ep, $($arg: $ty,)* to: u64, address: u64, key: u64, datatype: c_int, op: c_int,
        ) -> isize {
            operations!(@body endpoint, to, (address, key), (datatype, op), inject(), $family, $operand, $compare, $result)
        }
    };
    (@body $endpoint:ident, $to:ident, $place:expr, $what:expr, $posting:ident($($context:ident)?), $family:ident, $operand:expr,
     $compare:expr, $result:expr) => {
        // SAFETY:
        // - libfabric's contract: the arguments are valid.
        posted(|| unsafe {
            let call = Call {
                family: Family::$family,
                what: $what,
                operand: $operand,
                compare: $compare,
                result: $result,
                to: $to,
            };
            let posting = part($endpoint)?.$posting($($context)?);
            plain::<TRIGGERS>($endpoint, &call, $place, &posting)
        })
    };
}

operations! {
    plain fn write(base: *const c_void, count: usize, _desc: *mut c_void) = Base: &one(base, count), &[], &[];
    plain fn writev(operand: *const fi_ioc, _desc: *mut *mut c_void, count: usize) = Base: parts(operand, count)?, &[], &[];
    injected fn inject(base: *const c_void, count: usize) = Base: &one(base, count), &[], &[];
    plain fn readwrite(
        base: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void,
    ) = Fetch: &one(base, count), &[], &one(result, count);
    plain fn readwritev(
        operand: *const fi_ioc, _desc: *mut *mut c_void, count: usize, result: *mut fi_ioc, _result_desc: *mut *mut c_void,
        result_count: usize,
    ) = Fetch: parts(operand, count)?, &[], parts(result.cast_const(), result_count)?;
    plain fn compwrite(
        base: *const c_void, count: usize, _desc: *mut c_void, compare: *const c_void, _compare_desc: *mut c_void,
        result: *mut c_void, _result_desc: *mut c_void,
    ) = Compare: &one(base, count), &one(compare, count), &one(result, count);
    plain fn compwritev(
        operand: *const fi_ioc, _desc: *mut *mut c_void, count: usize, compare: *const fi_ioc, _compare_desc: *mut *mut c_void,
        compare_count: usize, result: *mut fi_ioc, _result_desc: *mut *mut c_void, result_count: usize,
    ) = Compare: parts(operand, count)?, parts(compare, compare_count)?, parts(result.cast_const(), result_count)?;
}

unsafe extern "C" fn writemsg(
    endpoint: *mut fid_ep,
    msg: *const fi_msg_atomic,
    flags: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid; likewise below.
    posted(|| unsafe { message(endpoint, Family::Base, msg, NO_COMPARE, NO_RESULT, flags) })
}

unsafe extern "C" fn readwritemsg(
    endpoint: *mut fid_ep,
    msg: *const fi_msg_atomic,
    result: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let result = (result, result_count);
    // SAFETY:
    // - as above.
    posted(|| unsafe { message(endpoint, Family::Fetch, msg, NO_COMPARE, result, flags) })
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
/// `count` is null or valid for a write.
unsafe fn answer(family: Family, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    code(|| {
        let valid = valid(family, datatype, op)?;
        // SAFETY:
        // - contract of this call: `count` is null or valid for a write.
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
    // - libfabric's contract: `count` is null or valid for a write; likewise below.
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
