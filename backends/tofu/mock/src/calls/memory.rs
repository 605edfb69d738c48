//! STADD management (§3.6).

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use unipgas_utofu_sys::*;

use crate::library::{Mock, Outcome, outcome};
use crate::rules::broken;
use crate::vcqs::Inside;

/// Alignment of what has a STag of the program's choice, and the number of those.
const ALIGNMENT: usize = 256;
const STAGS: c_uint = 256;

/// Errors: `UTOFU_ERR_INVALID_STAG`.
fn check_stag(stag: c_uint) -> Outcome {
    if stag < STAGS {
        Ok(())
    } else {
        Err(UTOFU_ERR_INVALID_STAG)
    }
}

/// Registers `size` bytes at `addr` by `make`, if that is allowed.
fn register(
    mock: &'static Mock,
    inside: &Inside,
    (addr, size): (*mut c_void, usize),
    flags: c_ulong,
    stadd: *mut utofu_stadd_t,
    make: impl FnOnce() -> c_int,
) -> Outcome {
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
    if registered.len() >= mock.config.regs {
        return Err(UTOFU_ERR_FULL);
    }
    outcome(make())?;
    // SAFETY:
    // - the library has stored the STADD there.
    registered.insert(unsafe { *stadd }, (addr.addr(), size));
    Ok(())
}

pub unsafe fn utofu_reg_mem(
    mock: &'static Mock,
    vcq_hdl: utofu_vcq_hdl_t,
    addr: *mut c_void,
    size: usize,
    flags: c_ulong,
    stadd: *mut utofu_stadd_t,
) -> Outcome {
    let inside = Inside::new(mock, "utofu_reg_mem", vcq_hdl);
    // SAFETY:
    // - the caller's arguments.
    let make = || unsafe { (mock.real.utofu_reg_mem)(vcq_hdl, addr, size, flags, stadd) };
    register(mock, &inside, (addr, size), flags, stadd, make)
}

pub unsafe fn utofu_reg_mem_with_stag(
    mock: &'static Mock,
    vcq_hdl: utofu_vcq_hdl_t,
    addr: *mut c_void,
    size: usize,
    stag: c_uint,
    flags: c_ulong,
    stadd: *mut utofu_stadd_t,
) -> Outcome {
    let inside = Inside::new(mock, "utofu_reg_mem_with_stag", vcq_hdl);
    if !addr.addr().is_multiple_of(ALIGNMENT) {
        return Err(UTOFU_ERR_INVALID_ADDRESS);
    }
    if !size.is_multiple_of(ALIGNMENT) {
        return Err(UTOFU_ERR_INVALID_SIZE);
    }
    check_stag(stag)?;
    let make = || {
        // SAFETY:
        // - the caller's arguments.
        unsafe { (mock.real.utofu_reg_mem_with_stag)(vcq_hdl, addr, size, stag, flags, stadd) }
    };
    register(mock, &inside, (addr, size), flags, stadd, make)
}

pub unsafe fn utofu_query_stadd(
    mock: &'static Mock,
    vcq_id: utofu_vcq_id_t,
    stag: c_uint,
    stadd: *mut utofu_stadd_t,
) -> Outcome {
    check_stag(stag)?;
    // SAFETY:
    // - the caller's arguments.
    outcome(unsafe { (mock.real.utofu_query_stadd)(vcq_id, stag, stadd) })
}

pub unsafe fn utofu_dereg_mem(
    mock: &'static Mock,
    vcq_hdl: utofu_vcq_hdl_t,
    stadd: utofu_stadd_t,
    flags: c_ulong,
) -> Outcome {
    const CALL: &str = "utofu_dereg_mem";
    let inside = Inside::new(mock, CALL, vcq_hdl);
    if flags != 0 {
        return Err(UTOFU_ERR_INVALID_FLAGS);
    }
    let mut queues = inside.queues();
    queues.look(mock)?;
    let queue = queues.of(inside.vcq());
    let Some((_, size)) = queue.registered.get(&stadd).copied() else {
        broken(
            CALL,
            format_args!(
                "no memory of this VCQ is registered at STADD {stadd:#x}: it was deregistered, or this is not its beginning"
            ),
        );
    };
    if let Some(user) = queue.flights.user_of(stadd, size) {
        broken(
            CALL,
            format_args!(
                "a {:?} of {} bytes at local STADD {:#x} may not be over",
                user.kind, user.length, user.local
            ),
        );
    }
    // SAFETY:
    // - memory that is registered.
    outcome(unsafe { (mock.real.utofu_dereg_mem)(vcq_hdl, stadd, flags) })?;
    queue.registered.remove(&stadd);
    Ok(())
}
