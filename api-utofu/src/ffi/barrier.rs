//! §3.4 VBG management, §3.8 barrier communication execution.

use libc::c_ulong;
use unipgas_core::gate::Payload;
use unipgas_utofu_sys::UTOFU_VBG_FLAG_THREAD_SAFE;

use super::entry::{functions, given, put, put_array};
use crate::caps::{MAX_DOUBLE, MAX_UINT64, VBGS};
use crate::ids::VbgId;
use crate::process::current;
use crate::status::{Result, ReturnCode};
use crate::vbg::{GateKind, VbgSetting, doubles, integers};

/// The caller's array. Errors: [`ReturnCode::InvalidPointer`]; [`ReturnCode::InvalidNumber`] for 0 elements or more than `most`.
///
/// # Safety
/// `first` is null or has `number` elements.
unsafe fn slice<'a, T>(first: *const T, number: usize, most: usize) -> Result<&'a [T]> {
    given(first)?;
    if number == 0 || number > most {
        return Err(ReturnCode::InvalidNumber);
    }
    // SAFETY:
    // - contract of this call: a pointer that is not null has `number` elements. They stay valid until the C call returns.
    Ok(unsafe { std::slice::from_raw_parts(first, number) })
}

fn no_flags(flags: c_ulong) -> Result<()> {
    if flags == 0 {
        Ok(())
    } else {
        Err(ReturnCode::InvalidFlags)
    }
}

functions! {
    fn utofu_alloc_vbg(tni_id: u16, num_vbgs: usize, flags: c_ulong, vbg_ids: *mut u64) {
        given(vbg_ids)?;
        // The only flag has no effect: all VBGs are thread-safe.
        no_flags(flags & !UTOFU_VBG_FLAG_THREAD_SAFE)?;
        let ids = current()?.for_changes()?.alloc_vbg(tni_id, num_vbgs)?;
        // SAFETY:
        // - not null, so room for `num_vbgs` elements by the C contract.
        unsafe { vbg_ids.copy_from_nonoverlapping(ids.as_ptr(), ids.len()) };
        Ok(())
    }

    fn utofu_free_vbg(vbg_ids: *const u64, num_vbgs: usize) {
        // SAFETY:
        // - null or `num_vbgs` elements, by the C contract.
        let ids = unsafe { slice(vbg_ids, num_vbgs, VBGS.into()) }?;
        current()?.for_changes()?.free_vbg(ids)
    }

    fn utofu_set_vbg(vbg_settings: *const VbgSetting, num_vbg_settings: usize) {
        // SAFETY:
        // - null or `num_vbg_settings` elements, by the C contract.
        let settings = unsafe { slice(vbg_settings, num_vbg_settings, VBGS.into()) }?;
        current()?.for_changes()?.set_vbg(settings)
    }

    fn utofu_query_vbg_info(
        vbg_id: u64, coords: *mut u8, tni_id: *mut u16, bg_id: *mut u16, extra_val: *mut u16,
    ) {
        given(coords)?;
        given(tni_id)?;
        given(bg_id)?;
        given(extra_val)?;
        let id = VbgId::from_bits(vbg_id).ok_or(ReturnCode::InvalidVbgId)?;
        current()?.node(&id.coords()).map_err(|_| ReturnCode::InvalidVbgId)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe {
            put_array(coords, id.coords())?;
            put(tni_id, id.tni())?;
            put(bg_id, id.bg())?;
            put(extra_val, 0)
        }
    }

    fn utofu_barrier(vbg_id: u64, flags: c_ulong) {
        no_flags(flags)?;
        current()?.start_barrier(vbg_id, &Payload::barrier(0))
    }

    fn utofu_reduce_uint64(
        vbg_id: u64, op: u32, data: *const u64, num_data: usize, flags: c_ulong,
    ) {
        no_flags(flags)?;
        // SAFETY:
        // - null or `num_data` elements, by the C contract.
        let payload = integers(op, unsafe { slice(data, num_data, MAX_UINT64) }?)?;
        current()?.start_barrier(vbg_id, &payload)
    }

    fn utofu_reduce_double(
        vbg_id: u64, op: u32, data: *const f64, num_data: usize, flags: c_ulong,
    ) {
        no_flags(flags)?;
        // SAFETY:
        // - null or `num_data` elements, by the C contract.
        let payload = doubles(op, unsafe { slice(data, num_data, MAX_DOUBLE) }?)?;
        current()?.start_barrier(vbg_id, &payload)
    }

    fn utofu_poll_barrier(vbg_id: u64, flags: c_ulong) {
        no_flags(flags)?;
        current()?.poll_barrier(vbg_id, GateKind::Barrier, &mut Payload::default())
    }

    fn utofu_poll_reduce_uint64(vbg_id: u64, flags: c_ulong, data: *mut u64) {
        no_flags(flags)?;
        given(data)?;
        let mut result = Payload::default();
        current()?.poll_barrier(vbg_id, GateKind::Uint64, &mut result)?;
        let values = result.as_integers();
        // SAFETY:
        // - not null, so the C contract gives room for the number of elements of the reduction. The result has the same number.
        unsafe { data.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Ok(())
    }

    fn utofu_poll_reduce_double(vbg_id: u64, flags: c_ulong, data: *mut f64) {
        no_flags(flags)?;
        given(data)?;
        let mut result = Payload::default();
        current()?.poll_barrier(vbg_id, GateKind::Double, &mut result)?;
        for index in 0..result.count() {
            // SAFETY:
            // - as above.
            unsafe { data.add(index).write(result.double(index).ok_or(ReturnCode::Fatal)?) };
        }
        Ok(())
    }
}
