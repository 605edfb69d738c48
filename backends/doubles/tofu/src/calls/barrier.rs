//! VBG management (§3.4) and barrier communication (§3.8).

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulong};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use parking_lot::Mutex;
use unipgas_utofu_sys::*;

use super::forwarded;
use super::management::check_tni;
use crate::library::{Double, UtofuResult, outcome};
use crate::rules::broken;

/// Elements of a reduction.
const MAX_UINT64: usize = 6;
const MAX_DOUBLE: usize = 3;

forwarded! { double:
    fn utofu_set_vbg(vbg_settings: *mut utofu_vbg_setting, num_vbg_settings: usize);
    fn utofu_query_vbg_info(
        vbg_id: utofu_vbg_id_t, coords: *mut u8, tni_id: *mut utofu_tni_id_t, bg_id: *mut utofu_bg_id_t, extra_val: *mut u16,
    );
}

/// A VBG that is not thread-safe has a mark: whether a thread is in a call on it.
type Mark = Option<Arc<AtomicBool>>;

static VBGS: Mutex<BTreeMap<utofu_vbg_id_t, Mark>> = Mutex::new(BTreeMap::new());

/// A thread in a call of §3.8 on a VBG.
struct Inside(Mark);

impl Inside {
    fn new(double: &Double, call: &str, vbg_id: utofu_vbg_id_t) -> Self {
        let mark = VBGS.lock().get(&vbg_id).cloned().flatten();
        if let Some(busy) = &mark
            && busy.swap(true, Acquire)
        {
            broken(
                call,
                format_args!(
                    "two threads use VBG {vbg_id:#x} at the same time, which is not thread-safe"
                ),
            );
        }
        if double.config.yields {
            std::thread::yield_now();
        }
        Inside(mark)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(busy) = &self.0 {
            busy.store(false, Release);
        }
    }
}

pub unsafe fn utofu_alloc_vbg(
    double: &'static Double,
    tni_id: utofu_tni_id_t,
    num_vbgs: usize,
    flags: c_ulong,
    vbg_ids: *mut utofu_vbg_id_t,
) -> UtofuResult {
    if flags & !UTOFU_VBG_FLAG_THREAD_SAFE != 0 {
        return Err(UTOFU_ERR_INVALID_FLAGS);
    }
    check_tni(double, tni_id)?;
    // SAFETY:
    // - the arguments of the caller, by the contract of this function.
    outcome(unsafe { (double.real.utofu_alloc_vbg)(tni_id, num_vbgs, flags, vbg_ids) })?;
    // SAFETY:
    // - the library has written `num_vbgs` ids.
    let ids = unsafe { std::slice::from_raw_parts(vbg_ids, num_vbgs) };
    let is_safe = flags & UTOFU_VBG_FLAG_THREAD_SAFE != 0;
    let mut all = VBGS.lock();
    for id in ids {
        all.insert(*id, (!is_safe).then(Arc::default));
    }
    Ok(())
}

pub unsafe fn utofu_free_vbg(
    double: &'static Double,
    vbg_ids: *mut utofu_vbg_id_t,
    num_vbgs: usize,
) -> UtofuResult {
    let ids: &[utofu_vbg_id_t] = if vbg_ids.is_null() {
        &[]
    } else {
        // SAFETY:
        // - contract of `utofu_free_vbg`: an array that is not null has `num_vbgs` ids.
        unsafe { std::slice::from_raw_parts(vbg_ids, num_vbgs) }
    };
    let mut all = VBGS.lock();
    if let Some(unknown) = ids.iter().find(|id| !all.contains_key(id)) {
        broken(
            "utofu_free_vbg",
            format_args!("VBG {unknown:#x} was freed, or never allocated"),
        );
    }
    // SAFETY:
    // - the arguments of the caller, by the contract of this function.
    outcome(unsafe { (double.real.utofu_free_vbg)(vbg_ids, num_vbgs) })?;
    all.retain(|id, _| !ids.contains(id));
    Ok(())
}

/// Functions on a VBG, after the check `$check`.
macro_rules! on_vbg {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) if $check:expr;)*) => {$(
        pub unsafe fn $name(double: &'static Double, vbg_id: utofu_vbg_id_t, $($parameter: $ty),*) -> UtofuResult {
            let _inside = Inside::new(double, stringify!($name), vbg_id);
            $check?;
            // SAFETY:
            // - the arguments of the caller, by the contract of this function.
            outcome(unsafe { (double.real.$name)(vbg_id, $($parameter),*) })
        }
    )*};
}

on_vbg! {
    fn utofu_barrier(flags: c_ulong) if no(flags);
    fn utofu_reduce_uint64(op: utofu_reduce_op, data: *mut u64, num_data: usize, flags: c_ulong)
        if no(flags).and(check_number(num_data, MAX_UINT64));
    fn utofu_reduce_double(op: utofu_reduce_op, data: *mut f64, num_data: usize, flags: c_ulong)
        if no(flags).and(check_number(num_data, MAX_DOUBLE));
    fn utofu_poll_barrier(flags: c_ulong) if no(flags);
    fn utofu_poll_reduce_uint64(flags: c_ulong, data: *mut u64) if no(flags);
    fn utofu_poll_reduce_double(flags: c_ulong, data: *mut f64) if no(flags);
}

fn refuse(is_wrong: bool, code: c_int) -> UtofuResult {
    if is_wrong { Err(code) } else { Ok(()) }
}

fn no(flags: c_ulong) -> UtofuResult {
    refuse(flags != 0, UTOFU_ERR_INVALID_FLAGS)
}

fn check_number(number: usize, most: usize) -> UtofuResult {
    refuse(number == 0 || number > most, UTOFU_ERR_INVALID_NUMBER)
}
