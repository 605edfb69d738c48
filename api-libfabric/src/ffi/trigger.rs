//! Triggered operations and deferred work (fi_trigger(3)).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::atomic::{NO_COMPARE, NO_RESULT};
use super::counter::CounterObject;
use super::endpoint::{EndpointPart, part};
use super::message::{of_message, of_tagged_message};
use super::{atomic, given, rma};
use crate::atomics::{Family, check};
use crate::counter::Counter;
use crate::domain::Domain;
use crate::rma::{RmaKind, TRANSMIT_FLAGS, check_parts};
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::{Action, Call, Kind, Request, Work};

/// Copies a call for later. Errors: [`Errno::NOSYS`] if it cannot be deferred, [`Errno::OPBADSTATE`], [`Errno::INVAL`].
fn request(part: &EndpointPart, call: &Call<'_>) -> Result<Request> {
    if !part.endpoint.is_enabled() {
        return Err(Errno::OPBADSTATE);
    }
    // An injected payload is valid only during the call, so it cannot be deferred.
    let known = match call.kind {
        Kind::Receive(_) => FI_COMPLETION | FI_MORE,
        Kind::Send(_) => (TRANSMIT_FLAGS | FI_MATCH_COMPLETE) & !FI_INJECT,
        _ => TRANSMIT_FLAGS & !FI_INJECT,
    };
    if call.posting.flags & !known != 0 {
        return Err(Errno::NOSYS);
    }
    match call.kind {
        Kind::Atomic(family, what) => match check(family, what, &call.memory, &call.posting) {
            Err(Errno::OPNOTSUPP) => return Err(Errno::NOSYS),
            checked => checked.map(drop)?,
        },
        _ => check_parts(call.memory.operand)?,
    }
    Ok(Request::copy(&part.endpoint, call))
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
pub(super) unsafe fn trigger(part: &EndpointPart, call: &Call<'_>) -> Result<()> {
    let mut call = *call;
    let posting = &mut call.posting;
    if posting.flags & part.endpoint.options().caps & FI_TRIGGER == 0 {
        return Err(Errno::BADFLAGS);
    }
    // The caller of an inject call may reuse the payload when the call returns.
    if posting.quiet {
        return Err(Errno::NOSYS);
    }
    posting.flags &= !FI_TRIGGER;
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
    let request = request(part, &call)?;
    domain.defer(Work {
        name: call.posting.context,
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
pub(super) unsafe fn control(domain: &Arc<Domain>, command: c_int, arg: *mut c_void) -> Result<()> {
    match command {
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
    }
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
    /// The endpoint and the call of a structure.
    macro_rules! described {
        ($structure:ty, |$op:ident| $call:expr) => {{
            let $op = &*op.cast::<$structure>();
            ($op.ep, $call)
        }};
    }
    // SAFETY:
    // - contract of this call: `op` points to the structure of `kind`.
    unsafe {
        let (endpoint, call) = match kind {
            FI_OP_SEND => described!(fi_op_msg, |op| of_message(Kind::Send, &op.msg, op.flags)),
            FI_OP_RECV => described!(fi_op_msg, |op| of_message(Kind::Receive, &op.msg, op.flags)),
            FI_OP_TSEND => described!(fi_op_tagged, |op| {
                of_tagged_message(Kind::Send, &op.msg, op.flags)
            }),
            FI_OP_TRECV => described!(fi_op_tagged, |op| {
                of_tagged_message(Kind::Receive, &op.msg, op.flags)
            }),
            FI_OP_READ => described!(fi_op_rma, |op| {
                rma::of_message(RmaKind::Read, &op.msg, op.flags)
            }),
            FI_OP_WRITE => described!(fi_op_rma, |op| {
                rma::of_message(RmaKind::Write, &op.msg, op.flags)
            }),
            FI_OP_ATOMIC => described!(fi_op_atomic, |op| {
                atomic::of_message(Family::Base, &op.msg, NO_COMPARE, NO_RESULT, op.flags)
            }),
            FI_OP_FETCH_ATOMIC => described!(fi_op_fetch_atomic, |op| {
                let result = (op.fetch.msg_iov, op.fetch.iov_count);
                atomic::of_message(Family::Fetch, &op.msg, NO_COMPARE, result, op.flags)
            }),
            FI_OP_COMPARE_ATOMIC => described!(fi_op_compare_atomic, |op| {
                let result = (op.fetch.msg_iov, op.fetch.iov_count);
                let compare = (op.compare.msg_iov, op.compare.iov_count);
                atomic::of_message(Family::Compare, &op.msg, compare, result, op.flags)
            }),
            _ => return Err(Errno::NOSYS),
        };
        request(part(endpoint)?, &call?)
    }
}
