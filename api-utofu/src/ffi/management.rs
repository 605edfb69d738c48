//! §3.2 TNI query, §3.3 VCQ management, §3.5 communication paths, §3.9 supplemental features.

use libc::c_ulong;

use super::entry::{array, functions, given, put, put_array};
use super::native;
use crate::caps::{self, CMP_IDS, CQS, TNIS};
use crate::ids::{VcqId, path_coords, path_id};
use crate::process::{current, is_child};
use crate::status::{Result, ReturnCode};
use crate::vcq::{VcqFlags, vcq};
use unipgas_core::calls::Call;
use unipgas_utofu_sys::{utofu_barrier_caps, utofu_onesided_caps};

/// Gives the caller an array, which it frees with free(). An empty array is null.
///
/// # Safety
/// Both places are null or valid.
unsafe fn hand_over(tnis: &[u16], ids: *mut *mut u16, number: *mut usize) -> Result<()> {
    given(ids)?;
    given(number)?;
    let mut array = std::ptr::null_mut::<u16>();
    if !tnis.is_empty() {
        // SAFETY:
        // - malloc has no preconditions. Its result has room for the elements, or is null.
        unsafe {
            array = libc::malloc(size_of_val(tnis)).cast();
            if array.is_null() {
                return Err(ReturnCode::OutOfMemory);
            }
            array.copy_from_nonoverlapping(tnis.as_ptr(), tnis.len());
        }
    }
    // SAFETY:
    // - contract of this call: pointers that are not null are valid.
    unsafe {
        put(ids, array)?;
        put(number, tnis.len())
    }
}

fn check_tni(tni: u16) -> Result<()> {
    if tni < TNIS {
        Ok(())
    } else {
        Err(ReturnCode::InvalidTniId)
    }
}

fn vcq_id(bits: u64) -> Result<VcqId> {
    let id = VcqId::from_bits(bits).ok_or(ReturnCode::InvalidVcqId)?;
    current()?
        .node(&id.coords())
        .map_err(|_| ReturnCode::InvalidVcqId)?;
    Ok(id)
}

/// An id that the program makes for the process that has the place now. In the child of a fork, and in a signal handler that has interrupted a call, locks may be
/// held forever: there the id is not checked.
fn renewed(id: VcqId) -> Result<VcqId> {
    let process = current()?;
    if let Some(place) = process.place_of(id)
        && !is_child()
        && !Call::is_under_way()
    {
        let _call = Call::begin(|| {});
        process.network().renew(place.into());
    }
    Ok(id)
}

/// The path that the program names. Null: the target node's own A, B, C. Errors: [`ReturnCode::InvalidPath`].
///
/// # Safety
/// `coords` is null or has 3 elements.
unsafe fn chosen_path(id: VcqId, coords: *const u8) -> Result<[u8; 3]> {
    if coords.is_null() {
        let [.., a, b, c] = id.coords();
        return Ok([a, b, c]);
    }
    // SAFETY:
    // - contract of this call: a pointer that is not null has 3 elements.
    let path = unsafe { array(coords) }?;
    if current()?.shape().has_path(&path) {
        Ok(path)
    } else {
        Err(ReturnCode::InvalidPath)
    }
}

functions! {
    fn utofu_get_onesided_tnis(tni_ids: *mut *mut u16, num_tnis: *mut usize) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { hand_over(&current()?.onesided_tnis(), tni_ids, num_tnis) }
    }

    fn utofu_get_barrier_tnis(tni_ids: *mut *mut u16, num_tnis: *mut usize) {
        let all: Vec<u16> = (0..TNIS).collect();
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { hand_over(&all, tni_ids, num_tnis) }
    }

    fn utofu_query_onesided_caps(tni_id: u16, tni_caps: *mut *const utofu_onesided_caps) {
        if !current()?.onesided_tnis().contains(&tni_id) {
            return Err(ReturnCode::InvalidTniId);
        }
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(tni_caps, &raw const caps::ONESIDED) }
    }

    fn utofu_query_barrier_caps(tni_id: u16, tni_caps: *mut *const utofu_barrier_caps) {
        check_tni(tni_id)?;
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(tni_caps, &raw const caps::BARRIER) }
    }

    fn utofu_create_vcq(tni_id: u16, flags: c_ulong, vcq_hdl: *mut usize) {
        given(vcq_hdl)?;
        let flags = VcqFlags::from_bits(flags)?;
        let handle = current()?.for_changes()?.create_vcq(tni_id, None, flags)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(vcq_hdl, handle) }
    }

    fn utofu_create_vcq_with_cmp_id(
        tni_id: u16, cmp_id: u16, flags: c_ulong, vcq_hdl: *mut usize,
    ) {
        given(vcq_hdl)?;
        let flags = VcqFlags::from_bits(flags)?;
        let handle = current()?.for_changes()?.create_vcq(tni_id, Some(cmp_id), flags)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(vcq_hdl, handle) }
    }

    fn utofu_free_vcq(vcq_hdl: usize) {
        current()?.for_changes()?.free_vcq(vcq_hdl)
    }

    fn utofu_query_vcq_id(vcq_hdl: usize, id: *mut u64) {
        let bits = vcq(vcq_hdl)?.id().bits();
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(id, bits) }
    }

    fn utofu_construct_vcq_id(
        coords: *const u8, tni_id: u16, cq_id: u16, cmp_id: u16, id: *mut u64,
    ) {
        given(id)?;
        // SAFETY:
        // - null or 6 elements, by the C contract.
        let coords = unsafe { array(coords) }?;
        current()?.node(&coords)?;
        check_tni(tni_id)?;
        if cq_id >= CQS {
            return Err(ReturnCode::InvalidCqId);
        }
        if cmp_id >= CMP_IDS {
            return Err(ReturnCode::InvalidCmpId);
        }
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(id, renewed(VcqId::new(&coords, tni_id, cq_id, cmp_id))?.bits()) }
    }

    fn utofu_set_vcq_id_path(id: *mut u64, path_coords: *const u8) {
        // SAFETY:
        // - null or valid; null or 3 elements, by the C contract.
        unsafe {
            let [bits] = array(id)?;
            let remote = renewed(vcq_id(bits)?)?;
            put(id, remote.with_path(chosen_path(remote, path_coords)?).bits())
        }
    }

    fn utofu_query_vcq_info(
        id: u64, coords: *mut u8, tni_id: *mut u16, cq_id: *mut u16, extra_val: *mut u16,
    ) {
        given(coords)?;
        given(tni_id)?;
        given(cq_id)?;
        given(extra_val)?;
        let id = vcq_id(id)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe {
            put_array(coords, id.coords())?;
            put(tni_id, id.tni())?;
            put(cq_id, id.cq())?;
            put(extra_val, id.cmp())
        }
    }

    fn utofu_get_path_id(id: u64, coords: *const u8, path: *mut u8) {
        given(path)?;
        // SAFETY:
        // - null or 3 elements; not null, so valid, by the C contract.
        unsafe { put(path, path_id(chosen_path(vcq_id(id)?, coords)?)) }
    }

    fn utofu_get_path_coords(id: u64, path: u8, coords: *mut u8) {
        vcq_id(id)?;
        let found = path_coords(path).ok_or(ReturnCode::InvalidPathId)?;
        // SAFETY:
        // - null or room for 3 elements, by the C contract.
        unsafe { put_array(coords, found) }
    }

    fn utofu_query_my_coords(coords: *mut u8) {
        // SAFETY:
        // - null or room for 6 elements, by the C contract.
        unsafe { put_array(coords, current()?.coords()) }
    }
}

/// # Safety
/// Both places are null or valid.
unsafe fn put_version((major, minor): (i32, i32), major_ver: *mut i32, minor_ver: *mut i32) {
    // SAFETY:
    // - contract of this call: null or valid. The function has no return code, so it ignores null pointers.
    unsafe {
        let _ = put(major_ver, major);
        let _ = put(minor_ver, minor);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utofu_query_tofu_version(major_ver: *mut i32, minor_ver: *mut i32) {
    if let Some(native) = native::get() {
        // SAFETY:
        // - contract of this call: the C contract of the machine's function.
        return unsafe { (native.utofu_query_tofu_version)(major_ver, minor_ver) };
    }
    // SAFETY:
    // - null or valid, by the C contract.
    unsafe { put_version(caps::TOFU_VERSION, major_ver, minor_ver) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utofu_query_utofu_version(major_ver: *mut i32, minor_ver: *mut i32) {
    if let Some(native) = native::get() {
        // SAFETY:
        // - contract of this call: the C contract of the machine's function.
        return unsafe { (native.utofu_query_utofu_version)(major_ver, minor_ver) };
    }
    // SAFETY:
    // - null or valid, by the C contract.
    unsafe { put_version(caps::UTOFU_VERSION, major_ver, minor_ver) }
}
