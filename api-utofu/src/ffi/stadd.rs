//! §3.6 STADD management.

use libc::{c_uint, c_ulong};
use unipgas_utofu_sys::UTOFU_REG_MEM_FLAG_READ_ONLY;

use super::entry::{functions, given, put};
use crate::VcqId;
use crate::process::current;
use crate::status::{Result, ReturnCode};
use crate::vcq::{query_stadd, vcq};

fn is_read_only(flags: c_ulong) -> Result<bool> {
    if flags & !UTOFU_REG_MEM_FLAG_READ_ONLY == 0 {
        Ok(flags != 0)
    } else {
        Err(ReturnCode::InvalidFlags)
    }
}

functions! {
    fn utofu_reg_mem(
        vcq_hdl: usize, addr: *mut u8, size: usize, flags: c_ulong, stadd: *mut u64,
    ) {
        given(stadd)?;
        let vcq = current()?.for_changes().and_then(|_| vcq(vcq_hdl))?;
        // SAFETY:
        // - the C contract: the memory is valid until its deregistration. `stadd` is not null, so valid.
        unsafe { put(stadd, vcq.reg_mem(addr, size, is_read_only(flags)?)?) }
    }

    fn utofu_reg_mem_with_stag(
        vcq_hdl: usize, addr: *mut u8, size: usize, stag: c_uint, flags: c_ulong, stadd: *mut u64,
    ) {
        given(stadd)?;
        let vcq = current()?.for_changes().and_then(|_| vcq(vcq_hdl))?;
        let read_only = is_read_only(flags)?;
        // SAFETY:
        // - as above.
        unsafe { put(stadd, vcq.reg_mem_with_stag(addr, size, stag, read_only)?) }
    }

    fn utofu_query_stadd(vcq_id: u64, stag: c_uint, stadd: *mut u64) {
        let id = VcqId::from_bits(vcq_id).ok_or(ReturnCode::InvalidVcqId)?;
        current()?.node(&id.coords()).map_err(|_| ReturnCode::InvalidVcqId)?;
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(stadd, query_stadd(id, stag)?) }
    }

    fn utofu_dereg_mem(vcq_hdl: usize, stadd: u64, flags: c_ulong) {
        if flags != 0 {
            return Err(ReturnCode::InvalidFlags);
        }
        current()?.for_changes().and_then(|_| vcq(vcq_hdl))?.dereg_mem(stadd)
    }
}
