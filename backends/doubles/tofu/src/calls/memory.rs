//! STADD management (§3.6).

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use unipgas_utofu_sys::*;

use super::forwarded;
use crate::library::{Double, UtofuResult, outcome};
use crate::rules::broken;
use crate::vcqs::{StaddEntry, VcqCall};

/// Alignment of memory under a STag that the program chooses, and the number of such STags.
const ALIGNMENT: usize = 256;
const STAGS: c_uint = 256;

forwarded! { double:
    fn utofu_query_stadd(vcq_id: utofu_vcq_id_t, stag: c_uint, stadd: *mut utofu_stadd_t) if check_stag(stag);
}

/// Errors: `UTOFU_ERR_INVALID_STAG`.
fn check_stag(stag: c_uint) -> UtofuResult {
    if stag < STAGS {
        Ok(())
    } else {
        Err(UTOFU_ERR_INVALID_STAG)
    }
}

/// Registers `size` bytes at `addr` by `make`, if that is allowed. `tagged`: the program chooses the STag.
fn register(
    double: &'static Double,
    inside: &VcqCall,
    (addr, size): (*mut c_void, usize),
    (flags, tagged): (c_ulong, bool),
    stadd: *mut utofu_stadd_t,
    make: impl FnOnce() -> c_int,
) -> UtofuResult {
    if flags & !UTOFU_REG_MEM_FLAG_READ_ONLY != 0 {
        return Err(UTOFU_ERR_INVALID_FLAGS);
    }
    if addr.is_null() {
        return Err(UTOFU_ERR_INVALID_ADDRESS);
    }
    if size == 0 {
        return Err(UTOFU_ERR_INVALID_SIZE);
    }
    let mut queues = inside.queues();
    let registered = &mut queues.of(inside.vcq()).registered;
    // A repeated registration gets the same STADD.
    let is_same = |memory: &StaddEntry| (memory.address, memory.length) == (addr.addr(), size);
    let is_new = tagged || !registered.values().any(is_same);
    if is_new && registered.len() >= double.config.regs {
        return Err(UTOFU_ERR_FULL);
    }
    outcome(make())?;
    // SAFETY:
    // - the library has written the STADD.
    let memory = registered.entry(unsafe { *stadd }).or_insert(StaddEntry {
        address: addr.addr(),
        length: size,
        times: 0,
    });
    memory.length = memory.length.max(size);
    memory.times += 1;
    Ok(())
}

pub unsafe fn utofu_reg_mem(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    addr: *mut c_void,
    size: usize,
    flags: c_ulong,
    stadd: *mut utofu_stadd_t,
) -> UtofuResult {
    let inside = VcqCall::new(double, "utofu_reg_mem", vcq_hdl);
    // SAFETY:
    // - the arguments of the caller, by the contract of this function.
    let make = || unsafe { (double.real.utofu_reg_mem)(vcq_hdl, addr, size, flags, stadd) };
    register(double, &inside, (addr, size), (flags, false), stadd, make)
}

pub unsafe fn utofu_reg_mem_with_stag(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    addr: *mut c_void,
    size: usize,
    stag: c_uint,
    flags: c_ulong,
    stadd: *mut utofu_stadd_t,
) -> UtofuResult {
    let inside = VcqCall::new(double, "utofu_reg_mem_with_stag", vcq_hdl);
    if !addr.addr().is_multiple_of(ALIGNMENT) {
        return Err(UTOFU_ERR_INVALID_ADDRESS);
    }
    if !size.is_multiple_of(ALIGNMENT) {
        return Err(UTOFU_ERR_INVALID_SIZE);
    }
    check_stag(stag)?;
    let make = || {
        // SAFETY:
        // - the arguments of the caller, by the contract of this function.
        unsafe { (double.real.utofu_reg_mem_with_stag)(vcq_hdl, addr, size, stag, flags, stadd) }
    };
    register(double, &inside, (addr, size), (flags, true), stadd, make)
}

pub unsafe fn utofu_dereg_mem(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    stadd: utofu_stadd_t,
    flags: c_ulong,
) -> UtofuResult {
    const CALL: &str = "utofu_dereg_mem";
    let inside = VcqCall::new(double, CALL, vcq_hdl);
    if flags != 0 {
        return Err(UTOFU_ERR_INVALID_FLAGS);
    }
    let mut queues = inside.queues();
    queues.look(double)?;
    let queue = queues.of(inside.vcq());
    let Some(memory) = queue.registered.get_mut(&stadd) else {
        broken(
            CALL,
            format_args!(
                "no memory of this VCQ is registered at STADD {stadd:#x}: it was deregistered, or this is not its beginning"
            ),
        );
    };
    let is_last = memory.times == 1;
    if is_last && let Some(user) = queue.flights.user_of(stadd, memory.length) {
        broken(
            CALL,
            format_args!(
                "a {:?} of {} bytes at local STADD {:#x} may not be over",
                user.kind, user.length, user.local
            ),
        );
    }
    // SAFETY:
    // - the memory is registered.
    outcome(unsafe { (double.real.utofu_dereg_mem)(vcq_hdl, stadd, flags) })?;
    memory.times -= 1;
    if is_last {
        queue.registered.remove(&stadd);
    }
    Ok(())
}
