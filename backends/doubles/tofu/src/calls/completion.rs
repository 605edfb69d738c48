//! Completion confirmation (§3.7.4) and queries (§3.7.5).

use std::ffi::{c_ulong, c_void};

use unipgas_utofu_sys::*;

use crate::library::{Double, UtofuResult, outcome};
use crate::vcqs::VcqCall;

/// Errors: `UTOFU_ERR_INVALID_FLAGS`, `UTOFU_ERR_INVALID_POINTER`.
fn check<T>(flags: c_ulong, place: *mut T) -> UtofuResult {
    if flags != 0 {
        return Err(UTOFU_ERR_INVALID_FLAGS);
    }
    if place.is_null() {
        return Err(UTOFU_ERR_INVALID_POINTER);
    }
    Ok(())
}

pub unsafe fn utofu_poll_tcq(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    flags: c_ulong,
    cbdata: *mut *mut c_void,
) -> UtofuResult {
    let inside = VcqCall::new(double, "utofu_poll_tcq", vcq_hdl);
    check(flags, cbdata)?;
    let taken = inside.queues().poll_tcq(double, inside.vcq())?;
    let (code, told) = taken.ok_or(UTOFU_ERR_NOT_FOUND)?;
    // SAFETY:
    // - the contract of this function: a pointer that is not null is valid for a write.
    unsafe { *cbdata = std::ptr::with_exposed_provenance_mut(told) };
    outcome(code)
}

pub unsafe fn utofu_poll_mrq(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    flags: c_ulong,
    notice: *mut utofu_mrq_notice,
) -> UtofuResult {
    const CALL: &str = "utofu_poll_mrq";
    let inside = VcqCall::new(double, CALL, vcq_hdl);
    check(flags, notice)?;
    let mut queues = inside.queues();
    queues.check_mrq(double, CALL, inside.vcq())?;
    let taken = queues.poll_mrq(double, inside.vcq())?;
    let (code, told) = taken.ok_or(UTOFU_ERR_NOT_FOUND)?;
    // SAFETY:
    // - the contract of this function: a pointer that is not null is valid for a write.
    unsafe { *notice = told };
    outcome(code)
}

pub unsafe fn utofu_query_num_unread_tcq(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    count: *mut usize,
) -> UtofuResult {
    let inside = VcqCall::new(double, "utofu_query_num_unread_tcq", vcq_hdl);
    check(0, count)?;
    let unread = inside.queues().query_unread(double)?;
    // SAFETY:
    // - the contract of this function: a pointer that is not null is valid for a write.
    unsafe { *count = unread };
    Ok(())
}

pub unsafe fn utofu_query_num_unread_mrq(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    count: *mut usize,
) -> UtofuResult {
    const CALL: &str = "utofu_query_num_unread_mrq";
    let inside = VcqCall::new(double, CALL, vcq_hdl);
    check(0, count)?;
    let held = inside.queues().check_mrq(double, CALL, inside.vcq())?;
    // SAFETY:
    // - the contract of this function: a pointer that is not null is valid for a write.
    unsafe { *count = held };
    Ok(())
}
