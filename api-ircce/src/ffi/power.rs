//! Voltage and frequency, simulated.

use std::ffi::c_int;

use super::{functions, others, put_if_wanted};
use crate::environment::current;
use crate::power::PowerRequest;
use crate::status::ErrorCode;

functions! {
    fn [Rpc] RCCE_iset_power(
        divider: c_int, request: *mut PowerRequest, new_divider: *mut c_int, new_level: *mut c_int,
    ) {
        let ue = current()?;
        if request.is_null() {
            return Err(ErrorCode::RpcNotAllocated.into());
        }
        let now = std::time::Duration::from_secs_f64(super::process::seconds());
        if let Some(made) = ue.iset_power(divider, now.as_nanos() as i64)? {
            // SAFETY:
            // - C contract: each pointer is null or valid; `request` is not null.
            unsafe {
                put_if_wanted(new_divider, made.new_frequency_divider);
                put_if_wanted(new_level, made.new_voltage_level);
                request.write(made);
            }
        }
        Ok(())
    }

    fn [Rpc] RCCE_wait_power(request: *mut PowerRequest) {
        // SAFETY:
        // - C contract: the pointer is null or valid.
        let request = unsafe { request.as_mut() }.ok_or(ErrorCode::RpcNotAllocated)?;
        current()?.wait_power(request)
    }

    fn [Rpc] RCCE_set_frequency_divider(divider: c_int, new_divider: *mut c_int) {
        if let Some(divider) = current()?.set_frequency_divider(divider)? {
            // SAFETY:
            // - C contract: the pointer is null or valid.
            unsafe { put_if_wanted(new_divider, divider) };
        }
        Ok(())
    }
}

others! {
    fn print_dividers() -> (), or (); {
        for (tile, divider) in current()?.dividers().into_iter().enumerate() {
            // SAFETY:
            // - the format and its arguments agree: two ints. `printf` keeps the order with the program's lines.
            unsafe { libc::printf(c"Clock divider for tile %d is %d\n".as_ptr(), tile as c_int, divider) };
        }
        Ok(())
    }

    fn RCCE_power_domain() -> c_int, or -1; {
        Ok(current()?.power_domain())
    }

    fn RCCE_power_domain_master() -> c_int, or -1; {
        Ok(current()?.power_domain_master() as c_int)
    }

    fn RCCE_power_domain_size() -> c_int, or -1; {
        Ok(current()?.power_domain_size() as c_int)
    }
}
