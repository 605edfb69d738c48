//! MPBs: allocation, put and get. The headers map the plain names to the `_gory` functions for GORY programs.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{functions, others, put_if_wanted};
use crate::environment::current;
use crate::mpb::{LINE, MpbOffset, request};
use crate::process::Ue;
use crate::status::{ErrorCode, Result};

/// `t_vcharp`.
type Bytes = *mut u8;

fn number(id: c_int) -> Result<u32> {
    u32::try_from(id).map_err(|_| ErrorCode::Id.into())
}

fn length(size: c_int) -> Result<usize> {
    usize::try_from(size).map_err(|_| ErrorCode::MessageLength.into())
}

fn address(ue: &Ue, place: Option<MpbOffset>) -> Bytes {
    place.map_or(null_mut(), |place| ue.address(place))
}

/// Non-GORY programs allocate exactly one line.
fn line(ue: &Ue, size: usize) -> Option<MpbOffset> {
    (size == LINE).then(|| ue.malloc(LINE)).flatten()
}

/// # Safety
/// `chunk` is null or valid for a write.
unsafe fn requested(
    size: usize,
    chunk: *mut usize,
    take: impl Fn(&Ue, usize) -> Option<MpbOffset>,
) -> Result<Bytes> {
    let ue = current()?;
    let found = request(size, |size| take(ue, size));
    let (place, size) = found.map_or((None, 0), |(place, size)| (Some(place), size));
    // SAFETY:
    // - contract of this call: `chunk` is null or valid for a write.
    unsafe { put_if_wanted(chunk, size) };
    Ok(address(ue, place))
}

/// # Safety
/// `source` is null or has `size` bytes.
unsafe fn put(target: Bytes, source: Bytes, size: c_int, id: c_int, gory: bool) -> Result<()> {
    let ue = current()?;
    let (id, size, place) = (number(id)?, length(size)?, ue.place(target));
    if gory {
        ue.check_gory(place, source, size, id, ErrorCode::Target)?;
    }
    ue.peer(id)?;
    let place = place.ok_or(ErrorCode::Target)?;
    if source.is_null() && size > 0 {
        return Err(ErrorCode::Source.into());
    }
    // SAFETY:
    // - contract of this call: `source` has `size` bytes, since it is not null.
    unsafe { ue.put_from(place, source, size, id) }
}

/// # Safety
/// `target` is null or has room for `size` bytes.
unsafe fn get(target: Bytes, source: Bytes, size: c_int, id: c_int, gory: bool) -> Result<()> {
    let ue = current()?;
    let (id, size, place) = (number(id)?, length(size)?, ue.place(source));
    if gory {
        ue.check_gory(place, target, size, id, ErrorCode::Source)?;
    }
    ue.peer(id)?;
    let place = place.ok_or(ErrorCode::Source)?;
    if target.is_null() && size > 0 {
        return Err(ErrorCode::Target.into());
    }
    // SAFETY:
    // - contract of this call: `target` has room for `size` bytes, since it is not null.
    unsafe { ue.get_into(target, place, size, id) }
}

others! {
    fn RCCE_malloc_init(memory: Bytes, size: usize) -> (), or (); {
        let ue = current()?;
        ue.malloc_from(ue.place(memory), size);
        Ok(())
    }

    fn RC_COMM_BUFFER_START(id: c_int) -> Bytes, or null_mut(); {
        Ok(current()?.window(number(id)?))
    }

    fn RCCE_malloc(size: usize) -> Bytes, or null_mut(); {
        let ue = current()?;
        Ok(address(ue, line(ue, size)))
    }

    fn RCCE_malloc_gory(size: usize) -> Bytes, or null_mut(); {
        let ue = current()?;
        Ok(address(ue, ue.malloc(size)))
    }

    fn iRCCE_malloc(size: usize) -> Bytes, or null_mut(); {
        let ue = current()?;
        Ok(address(ue, ue.malloc(size)))
    }

    fn RCCE_malloc_request(size: usize, chunk: *mut usize) -> Bytes, or null_mut(); {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { requested(size, chunk, line) }
    }

    fn RCCE_malloc_request_gory(size: usize, chunk: *mut usize) -> Bytes, or null_mut(); {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { requested(size, chunk, Ue::malloc) }
    }

    fn RCCE_free(address: Bytes) -> (), or (); {
        let ue = current()?;
        if let Some(place) = ue.place(address) {
            ue.free(place);
        }
        Ok(())
    }

    fn RCCE_fence() -> (), or (); {
        current()?.fence();
        Ok(())
    }

    fn iRCCE_memcpy_put(dest: *mut c_void, src: *const c_void, num: usize) -> *mut c_void, or dest; {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { memcpy(dest, src, num) };
        Ok(dest)
    }

    fn iRCCE_memcpy_get(dest: *mut c_void, src: *const c_void, num: usize) -> *mut c_void, or dest; {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { memcpy(dest, src, num) };
        Ok(dest)
    }
}

/// # Safety
/// Each pointer is null or has `num` bytes.
unsafe fn memcpy(dest: *mut c_void, src: *const c_void, num: usize) {
    if !dest.is_null() && !src.is_null() {
        // SAFETY:
        // - contract of this call: each pointer has `num` bytes, since neither is null.
        unsafe { unipgas_core::copy(src.cast(), dest.cast(), num) };
    }
}

functions! {
    fn [Comm] RCCE_put(target: Bytes, source: Bytes, size: c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { put(target, source, size, id, false) }
    }

    fn [Comm] RCCE_get(target: Bytes, source: Bytes, size: c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { get(target, source, size, id, false) }
    }

    fn [Comm] RCCE_put_gory(target: Bytes, source: Bytes, size: c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { put(target, source, size, id, true) }
    }

    fn [Comm] RCCE_get_gory(target: Bytes, source: Bytes, size: c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { get(target, source, size, id, true) }
    }

    fn [Comm] iRCCE_put(target: Bytes, source: Bytes, size: c_int, rank: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { put(target, source, size, rank, false) }
    }

    fn [Comm] iRCCE_get(target: Bytes, source: Bytes, size: c_int, rank: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { get(target, source, size, rank, false) }
    }
}
