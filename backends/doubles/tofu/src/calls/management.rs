//! TNI query (§3.2), VCQ management (§3.3), paths (§3.5), supplemental features (§3.9).

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulong};

use parking_lot::Mutex;
use unipgas_utofu_sys::*;

use super::forwarded;
use crate::library::{Double, UtofuResult, outcome};
use crate::vcqs;

/// Component ids of a CQ.
const CMP_IDS: utofu_cmp_id_t = 8;
const VCQ_FLAGS: c_ulong =
    UTOFU_VCQ_FLAG_THREAD_SAFE | UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE;

forwarded! { double:
    fn utofu_set_vcq_id_path(vcq_id: *mut utofu_vcq_id_t, path_coords: *mut u8);
    fn utofu_query_vcq_info(
        vcq_id: utofu_vcq_id_t, coords: *mut u8, tni_id: *mut utofu_tni_id_t, cq_id: *mut utofu_cq_id_t, extra_val: *mut u16,
    );
    fn utofu_get_path_id(vcq_id: utofu_vcq_id_t, path_coords: *mut u8, path_id: *mut utofu_path_id_t);
    fn utofu_get_path_coords(vcq_id: utofu_vcq_id_t, path_id: utofu_path_id_t, path_coords: *mut u8);
    fn utofu_query_my_coords(coords: *mut u8);
    fn utofu_query_barrier_caps(tni_id: utofu_tni_id_t, tni_caps: *mut *mut utofu_barrier_caps) if check_tni(double, tni_id);
    // The other nodes have the same number of TNIs as this one.
    fn utofu_construct_vcq_id(
        coords: *mut u8, tni_id: utofu_tni_id_t, cq_id: utofu_cq_id_t, cmp_id: utofu_cmp_id_t, vcq_id: *mut utofu_vcq_id_t,
    ) if check_tni(double, tni_id).and_then(|()| check_cmp(cmp_id));
    fn utofu_query_vcq_id(vcq_hdl: utofu_vcq_hdl_t, vcq_id: *mut utofu_vcq_id_t) if check_handle("utofu_query_vcq_id", vcq_hdl);
}

/// Lists of TNIs.
macro_rules! lists {
    ($($name:ident)*) => {$(
        pub unsafe fn $name(
            double: &'static Double, tni_ids: *mut *mut utofu_tni_id_t, num_tnis: *mut usize,
        ) -> UtofuResult {
            // SAFETY:
            // - the arguments of the caller, by the contract of this function.
            unsafe {
                outcome((double.real.$name)(tni_ids, num_tnis))?;
                cut(double, tni_ids, num_tnis);
            }
            Ok(())
        }
    )*};
}

lists! { utofu_get_onesided_tnis utofu_get_barrier_tnis }

/// Ends the program if no VCQ has this handle.
fn check_handle(call: &str, handle: utofu_vcq_hdl_t) -> UtofuResult {
    vcqs::find(call, handle);
    Ok(())
}

/// Shortens a list of TNIs to the TNIs of the node. If none are left, the list becomes null.
///
/// # Safety
/// The library has written both results.
unsafe fn cut(double: &Double, tni_ids: *mut *mut utofu_tni_id_t, num_tnis: *mut usize) {
    // SAFETY:
    // - the library has written an array of `num_tnis` elements from malloc, or null.
    unsafe {
        let all = std::slice::from_raw_parts_mut(
            *tni_ids,
            if (*tni_ids).is_null() { 0 } else { *num_tnis },
        );
        let mut kept = 0;
        for at in 0..all.len() {
            if usize::from(all[at]) < double.config.tnis {
                all[kept] = all[at];
                kept += 1;
            }
        }
        if kept == 0 {
            libc::free((*tni_ids).cast());
            *tni_ids = std::ptr::null_mut();
        }
        *num_tnis = kept;
    }
}

/// Errors: `UTOFU_ERR_INVALID_CMP_ID`.
fn check_cmp(cmp_id: utofu_cmp_id_t) -> UtofuResult {
    if cmp_id < CMP_IDS {
        Ok(())
    } else {
        Err(UTOFU_ERR_INVALID_CMP_ID)
    }
}

/// Errors: `UTOFU_ERR_INVALID_TNI_ID`.
pub fn check_tni(double: &Double, tni_id: utofu_tni_id_t) -> UtofuResult {
    if usize::from(tni_id) < double.config.tnis {
        Ok(())
    } else {
        Err(UTOFU_ERR_INVALID_TNI_ID)
    }
}

/// The library's structure with the changes of this machine. Each TNI has one, which is never freed.
pub unsafe fn utofu_query_onesided_caps(
    double: &'static Double,
    tni_id: utofu_tni_id_t,
    tni_caps: *mut *mut utofu_onesided_caps,
) -> UtofuResult {
    static CAPS: Mutex<BTreeMap<utofu_tni_id_t, &'static utofu_onesided_caps>> =
        Mutex::new(BTreeMap::new());
    check_tni(double, tni_id)?;
    // SAFETY:
    // - the arguments of the caller, by the contract of this function; the library has written the address of a structure.
    let mut caps = unsafe {
        outcome((double.real.utofu_query_onesided_caps)(tni_id, tni_caps))?;
        **tni_caps
    };
    caps.max_putget_size = double.config.putget;
    if !double.config.armw {
        caps.flags &= !UTOFU_ONESIDED_CAP_FLAG_ARMW;
        caps.armw_ops = 0;
    }
    if !double.config.session {
        caps.flags &= !UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE;
    }
    let mut all = CAPS.lock();
    let kept: &'static utofu_onesided_caps = all
        .entry(tni_id)
        .or_insert_with(|| Box::leak(Box::new(caps)));
    // SAFETY:
    // - the library has written to the same pointer; callers must not write to the structure.
    unsafe { *tni_caps = std::ptr::from_ref(kept).cast_mut() };
    Ok(())
}

/// Creates a VCQ by `make`, if its flags and the TNI allow it.
fn create(
    double: &'static Double,
    tni_id: utofu_tni_id_t,
    flags: c_ulong,
    has_cmp: bool,
    vcq_hdl: *mut utofu_vcq_hdl_t,
    make: impl FnOnce() -> c_int,
) -> UtofuResult {
    let exclusive = flags & UTOFU_VCQ_FLAG_EXCLUSIVE != 0;
    let session = flags & UTOFU_VCQ_FLAG_SESSION_MODE != 0;
    if flags & !VCQ_FLAGS != 0 || exclusive && session || has_cmp && (exclusive || session) {
        return Err(UTOFU_ERR_INVALID_FLAGS);
    }
    check_tni(double, tni_id)?;
    if session && !double.config.session {
        return Err(UTOFU_ERR_NOT_SUPPORTED);
    }
    if vcqs::count_on(tni_id) >= double.config.vcqs {
        return Err(UTOFU_ERR_FULL);
    }
    outcome(make())?;
    // SAFETY:
    // - the library has written the handle.
    vcqs::created(double, unsafe { *vcq_hdl }, flags)
}

pub unsafe fn utofu_create_vcq(
    double: &'static Double,
    tni_id: utofu_tni_id_t,
    flags: c_ulong,
    vcq_hdl: *mut utofu_vcq_hdl_t,
) -> UtofuResult {
    // SAFETY:
    // - the arguments of the caller, by the contract of this function.
    let make = || unsafe { (double.real.utofu_create_vcq)(tni_id, flags, vcq_hdl) };
    create(double, tni_id, flags, false, vcq_hdl, make)
}

pub unsafe fn utofu_create_vcq_with_cmp_id(
    double: &'static Double,
    tni_id: utofu_tni_id_t,
    cmp_id: utofu_cmp_id_t,
    flags: c_ulong,
    vcq_hdl: *mut utofu_vcq_hdl_t,
) -> UtofuResult {
    check_cmp(cmp_id)?;
    let make = || {
        // SAFETY:
        // - the arguments of the caller, by the contract of this function.
        unsafe { (double.real.utofu_create_vcq_with_cmp_id)(tni_id, cmp_id, flags, vcq_hdl) }
    };
    create(double, tni_id, flags, true, vcq_hdl, make)
}

pub unsafe fn utofu_free_vcq(double: &'static Double, vcq_hdl: utofu_vcq_hdl_t) -> UtofuResult {
    let vcq = vcqs::find("utofu_free_vcq", vcq_hdl);
    // SAFETY:
    // - the VCQ exists.
    vcqs::freed(&vcq, || unsafe { (double.real.utofu_free_vcq)(vcq_hdl) })
}

pub unsafe fn utofu_query_tofu_version(
    double: &'static Double,
    major_ver: *mut c_int,
    minor_ver: *mut c_int,
) -> UtofuResult {
    // SAFETY:
    // - the arguments of the caller, by the contract of this function.
    unsafe { (double.real.utofu_query_tofu_version)(major_ver, minor_ver) };
    Ok(())
}

pub unsafe fn utofu_query_utofu_version(
    double: &'static Double,
    major_ver: *mut c_int,
    minor_ver: *mut c_int,
) -> UtofuResult {
    // SAFETY:
    // - the arguments of the caller, by the contract of this function.
    unsafe { (double.real.utofu_query_utofu_version)(major_ver, minor_ver) };
    Ok(())
}
