//! Triggered operations and deferred work (fi_trigger(3)).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::counter::CounterObject;
use super::endpoint::{EndpointPart, part};
use super::rma::{NO_COMPARE, NO_RESULT, parts, remote_parts};
use super::{code, given};
use crate::atomics::{AtomicOperands, Family, check};
use crate::counter::Counter;
use crate::domain::Domain;
use crate::endpoint::PostOptions;
use crate::messages::MatchTag;
use crate::rma::{LocalRange, RemotePart, RmaKind, TRANSMIT_FLAGS};
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::{Action, Kind, Request, Work};

/// The memory of an operation.
#[derive(Default)]
pub(super) struct Lists<'a> {
    pub local: &'a [LocalRange],
    pub compare: &'a [LocalRange],
    pub result: &'a [LocalRange],
    pub remote: &'a [RemotePart],
}

/// Copies the arguments of a deferred operation. Errors: [`Errno::NOSYS`] if it cannot be deferred, [`Errno::OPBADSTATE`], [`Errno::INVAL`].
fn request(
    part: &EndpointPart,
    kind: Kind,
    lists: &Lists<'_>,
    peer: u64,
    posting: PostOptions,
) -> Result<Request> {
    if !part.endpoint.is_enabled() {
        return Err(Errno::OPBADSTATE);
    }
    // An injected payload is valid only during the call, so it cannot be deferred.
    let known = match kind {
        Kind::Receive(_) => FI_COMPLETION | FI_MORE,
        Kind::Send(_) => (TRANSMIT_FLAGS | FI_MATCH_COMPLETE) & !FI_INJECT,
        _ => TRANSMIT_FLAGS & !FI_INJECT,
    };
    if posting.flags & !known != 0 {
        return Err(Errno::NOSYS);
    }
    match kind {
        Kind::Atomic(family, what) => {
            let operands = AtomicOperands {
                operand: lists.local,
                compare: lists.compare,
                result: lists.result,
                remote: lists.remote,
            };
            match check(family, what, &operands, &posting) {
                Err(Errno::OPNOTSUPP) => return Err(Errno::NOSYS),
                checked => checked.map(drop)?,
            }
        }
        _ if lists
            .local
            .iter()
            .any(|part| part.ptr.is_null() && part.len > 0) =>
        {
            return Err(Errno::INVAL);
        }
        _ => {}
    }
    Ok(Request {
        endpoint: part.endpoint.clone(),
        kind,
        local: lists.local.to_vec(),
        compare: lists.compare.to_vec(),
        result: lists.result.to_vec(),
        remote: lists.remote.to_vec(),
        peer,
        posting,
    })
}

/// # Safety
/// `counter` is null or a counter of this provider.
unsafe fn counter(domain: &Arc<Domain>, counter: *mut fid_cntr) -> Result<Arc<Counter>> {
    // SAFETY:
    // - contract of this call: null, or a counter of this provider.
    let counter = unsafe { &CounterObject::at(counter)?.inner.counter };
    if !Arc::ptr_eq(counter.domain(), domain) {
        return Err(Errno::DOMAIN);
    }
    Ok(counter.clone())
}

/// Defers a call with FI_TRIGGER, after the endpoint has refused the flags. The context gives the counter and the threshold. Errors:
/// [`Errno::BADFLAGS`] without FI_TRIGGER, or if the endpoint lacks the capability; [`Errno::NOSYS`] if the call cannot be deferred.
///
/// # Safety
/// The context is null or a `struct fi_triggered_context` with a counter of this provider. The memory stays valid until the operation has ended.
#[cold]
pub(super) unsafe fn trigger(
    part: &EndpointPart,
    kind: Kind,
    lists: &Lists<'_>,
    peer: u64,
    posting: PostOptions,
) -> Result<()> {
    if posting.flags & part.endpoint.options().caps & FI_TRIGGER == 0 {
        return Err(Errno::BADFLAGS);
    }
    // The caller of an inject call may reuse the payload when the call returns.
    if posting.quiet {
        return Err(Errno::NOSYS);
    }
    let posting = PostOptions {
        flags: posting.flags & !FI_TRIGGER,
        ..posting
    };
    let domain = part.endpoint.domain();
    // SAFETY:
    // - contract of this call: the context is null or valid.
    let (trigger, threshold) = unsafe {
        let context = (posting.context as *const fi_triggered_context).as_ref();
        let context = context.ok_or(Errno::INVAL)?;
        if context.event_type != FI_TRIGGER_THRESHOLD {
            return Err(Errno::NOSYS);
        }
        let [trigger, threshold, _] = context.trigger;
        (counter(domain, trigger as *mut fid_cntr)?, threshold as u64)
    };
    let request = request(part, kind, lists, peer, posting)?;
    domain.defer(Work {
        name: posting.context,
        deferred: false,
        trigger,
        threshold,
        completion: None,
        action: Action::Request(request),
    })
}

/// fi_control(3) of a domain.
///
/// # Safety
/// The argument fits the command.
pub(super) unsafe fn control(domain: &Arc<Domain>, command: c_int, arg: *mut c_void) -> c_int {
    code(|| match command {
        // SAFETY:
        // - contract of this call: the argument of FI_QUEUE_WORK is null or a `struct fi_deferred_work`.
        FI_QUEUE_WORK => unsafe { queue(domain, arg.cast()) },
        FI_CANCEL_WORK => {
            given(arg)?;
            domain.deferred().cancel(arg.addr())
        }
        FI_FLUSH_WORK if arg.is_null() => {
            domain.deferred().flush(None);
            Ok(())
        }
        FI_FLUSH_WORK => {
            // SAFETY:
            // - contract of this call: FI_FLUSH_WORK takes null or an object of this provider.
            let waited_for = unsafe {
                if (*arg.cast::<fid>()).fclass != FI_CLASS_CNTR {
                    return Err(Errno::INVAL);
                }
                counter(domain, arg.cast())?
            };
            domain.deferred().flush(Some(&waited_for));
            Ok(())
        }
        _ => Err(Errno::NOSYS),
    })
}

/// # Safety
/// `work` is null or valid, with all structures that it points to.
unsafe fn queue(domain: &Arc<Domain>, work: *const fi_deferred_work) -> Result<()> {
    // SAFETY:
    // - contract of this call: the structures are valid. `op_type` gives the type of `op`.
    unsafe {
        let work_given = work.as_ref().ok_or(Errno::INVAL)?;
        let (kind, op) = (work_given.op_type, work_given.op);
        given(op)?;
        let trigger = counter(domain, work_given.triggering_cntr)?;
        let completion = match work_given.completion_cntr.is_null() {
            true => None,
            false => Some(counter(domain, work_given.completion_cntr)?),
        };
        let action = match kind {
            FI_OP_CNTR_SET | FI_OP_CNTR_ADD => {
                if completion.is_some() {
                    return Err(Errno::INVAL);
                }
                let op = &*op.cast::<fi_op_cntr>();
                let changed = counter(domain, op.cntr)?;
                match kind {
                    FI_OP_CNTR_SET => Action::Set(changed, op.value),
                    _ => Action::Add(changed, op.value),
                }
            }
            _ => {
                let request = operation(kind, op)?;
                if !Arc::ptr_eq(request.endpoint.domain(), domain) {
                    return Err(Errno::DOMAIN);
                }
                Action::Request(request)
            }
        };
        domain.defer(Work {
            name: work.addr(),
            deferred: true,
            trigger,
            threshold: work_given.threshold,
            completion,
            action,
        })
    }
}

/// # Safety
/// `op` points to the structure of this kind of operation.
unsafe fn operation(kind: c_int, op: *const c_void) -> Result<Request> {
    // SAFETY:
    // - contract of this call: `op` points to the structure of `kind`.
    unsafe {
        match kind {
            FI_OP_SEND | FI_OP_RECV => {
                let op = &*op.cast::<fi_op_msg>();
                let (part, message) = (part(op.ep)?, &op.msg);
                let lists = Lists {
                    local: parts(message.msg_iov, message.iov_count)?,
                    ..Lists::default()
                };
                let (kind, data) = match kind {
                    FI_OP_SEND => (Kind::Send(MatchTag::NONE), message.data),
                    _ => (Kind::Receive(MatchTag::NONE), 0),
                };
                let posting = part.flagged(message.context, op.flags, data);
                request(part, kind, &lists, message.addr, posting)
            }
            FI_OP_TSEND | FI_OP_TRECV => {
                let op = &*op.cast::<fi_op_tagged>();
                let (part, message) = (part(op.ep)?, &op.msg);
                let lists = Lists {
                    local: parts(message.msg_iov, message.iov_count)?,
                    ..Lists::default()
                };
                let tag = |ignore| MatchTag {
                    tag: Some(message.tag),
                    ignore,
                };
                let (kind, data) = match kind {
                    FI_OP_TSEND => (Kind::Send(tag(0)), message.data),
                    _ => (Kind::Receive(tag(message.ignore)), 0),
                };
                let posting = part.flagged(message.context, op.flags, data);
                request(part, kind, &lists, message.addr, posting)
            }
            FI_OP_READ | FI_OP_WRITE => {
                let op = &*op.cast::<fi_op_rma>();
                let (part, message) = (part(op.ep)?, &op.msg);
                let lists = Lists {
                    local: parts(message.msg_iov, message.iov_count)?,
                    remote: remote_parts(message.rma_iov, message.rma_iov_count)?,
                    ..Lists::default()
                };
                let direction = match kind {
                    FI_OP_READ if op.flags & FI_REMOTE_CQ_DATA != 0 => return Err(Errno::BADFLAGS),
                    FI_OP_READ => RmaKind::Read,
                    _ => RmaKind::Write,
                };
                let posting = part.flagged(message.context, op.flags, message.data);
                request(
                    part,
                    Kind::Transfer(direction),
                    &lists,
                    message.addr,
                    posting,
                )
            }
            FI_OP_ATOMIC => {
                let op = &*op.cast::<fi_op_atomic>();
                atomic(
                    op.ep,
                    Family::Base,
                    &op.msg,
                    NO_COMPARE,
                    NO_RESULT,
                    op.flags,
                )
            }
            FI_OP_FETCH_ATOMIC => {
                let op = &*op.cast::<fi_op_fetch_atomic>();
                let result = (op.fetch.msg_iov, op.fetch.iov_count);
                atomic(op.ep, Family::Fetch, &op.msg, NO_COMPARE, result, op.flags)
            }
            FI_OP_COMPARE_ATOMIC => {
                let op = &*op.cast::<fi_op_compare_atomic>();
                let result = (op.fetch.msg_iov, op.fetch.iov_count);
                let compare = (op.compare.msg_iov, op.compare.iov_count);
                atomic(op.ep, Family::Compare, &op.msg, compare, result, op.flags)
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// # Safety
/// The structures and lists are valid, as for [`operation`].
unsafe fn atomic(
    ep: *mut fid_ep,
    family: Family,
    message: &fi_msg_atomic,
    compare: (*const fi_ioc, usize),
    result: (*mut fi_ioc, usize),
    flags: u64,
) -> Result<Request> {
    // SAFETY:
    // - contract of this call: the structures and lists are valid.
    unsafe {
        let part = part(ep)?;
        let lists = Lists {
            local: parts(message.msg_iov, message.iov_count)?,
            compare: parts(compare.0, compare.1)?,
            result: parts(result.0.cast_const(), result.1)?,
            remote: remote_parts(message.rma_iov, message.rma_iov_count)?,
        };
        let posting = part.flagged(message.context, flags, 0);
        let kind = Kind::Atomic(family, (message.datatype, message.op));
        request(part, kind, &lists, message.addr, posting)
    }
}
