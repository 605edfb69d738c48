//! Flags, plain and tagged.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{functions, others, put};
use crate::environment::current;
use crate::flag::{Flag, MAX_TAGGED_LEN};
use crate::process::Ue;
use crate::status::{ErrorCode, Result};

/// `RCCE_FLAG`: the address of the flag in this UE's MPB.
type CFlag = *mut i32;

fn number(id: c_int) -> Result<u32> {
    u32::try_from(id).map_err(|_| ErrorCode::Id.into())
}

#[inline(always)]
fn flag(ue: &Ue, address: CFlag, none: ErrorCode) -> Result<Flag> {
    if address.is_null() {
        return Err(none.into());
    }
    let place = ue
        .place(address.cast())
        .ok_or(ErrorCode::FlagNotInCommBuffer)?;
    Ok(Flag(place))
}

/// # Safety
/// `place` is null or valid.
#[inline(always)]
pub(super) unsafe fn pointed(ue: &Ue, place: *const CFlag) -> Result<Flag> {
    if place.is_null() {
        return Err(ErrorCode::FlagUndefined.into());
    }
    // SAFETY:
    // - contract of this call: `place` is valid, since it is not null.
    flag(ue, unsafe { place.read() }, ErrorCode::FlagUndefined)
}

/// GORY programs may only set or unset flags. Errors: [`ErrorCode::FlagStatusUndefined`] for other values.
fn check_status(value: c_int) -> Result<()> {
    match value {
        0 | 1 => Ok(()),
        _ => Err(ErrorCode::FlagStatusUndefined.into()),
    }
}

/// # Safety
/// `place` is null or valid for a write.
unsafe fn alloc(place: *mut CFlag) -> Result<()> {
    let ue = current()?;
    if place.is_null() {
        return Err(ErrorCode::FlagUndefined.into());
    }
    let made = ue.flag_alloc();
    let address = made.as_ref().map_or(null_mut(), |flag| ue.address(flag.0));
    // SAFETY:
    // - contract of this call: `place` is valid for a write, since it is not null.
    unsafe { place.write(address.cast()) };
    made.map(|_| ())
}

/// # Safety
/// `place` is null or valid.
#[inline(always)]
unsafe fn write(place: *const CFlag, value: c_int, id: c_int) -> Result<()> {
    let ue = current()?;
    // SAFETY:
    // - contract of this call: `place` is null or valid.
    let flag = unsafe { pointed(ue, place) }?;
    ue.flag_write(flag, value, number(id)?)
}

/// # Safety
/// `value` is null or valid for a write.
unsafe fn read(address: CFlag, value: *mut c_int, id: c_int) -> Result<()> {
    let ue = current()?;
    let flag = flag(ue, address, ErrorCode::FlagUndefined)?;
    if value.is_null() {
        return Err(ErrorCode::ValUndefined.into());
    }
    let found = ue.flag_read(flag, number(id)?)?;
    // SAFETY:
    // - contract of this call: `value` is valid for a write, since it is not null.
    unsafe { put(value, found) }
}

#[inline(always)]
fn wait(address: CFlag, value: c_int) -> Result<()> {
    let ue = current()?;
    ue.wait_until(flag(ue, address, ErrorCode::FlagNotAllocated)?, value)
}

/// # Safety
/// `result` is null or valid for a write.
unsafe fn test(address: CFlag, value: c_int, result: *mut c_int) -> Result<()> {
    let ue = current()?;
    let flag = flag(ue, address, ErrorCode::FlagNotAllocated)?;
    if result.is_null() {
        return Err(ErrorCode::ValUndefined.into());
    }
    let found = ue.test_flag(flag, value)?;
    // SAFETY:
    // - contract of this call: `result` is valid for a write, since it is not null.
    unsafe { put(result, c_int::from(found)) }
}

/// The program's buffer for a tag, truncated to [`MAX_TAGGED_LEN`] bytes.
///
/// # Safety
/// `tag` is null or has `len` bytes, for as long as the result is used.
unsafe fn buffer<'a>(tag: *mut c_void, len: c_int) -> &'a mut [u8] {
    let len = usize::try_from(len).unwrap_or(0).min(MAX_TAGGED_LEN);
    if tag.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY:
    // - contract of this call: `tag` has `len` bytes, since it is not null.
    unsafe { std::slice::from_raw_parts_mut(tag.cast(), len) }
}

functions! {
    fn [Synch] RCCE_flag_alloc(flag: *mut CFlag) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { alloc(flag) }
    }

    fn [Synch] iRCCE_flag_alloc(flag: *mut CFlag) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { alloc(flag) }
    }

    fn [Synch] iRCCE_flag_alloc_tagged(flag: *mut CFlag) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { alloc(flag) }
    }

    fn [Synch] RCCE_flag_free(flag: *mut CFlag) {
        let ue = current()?;
        // SAFETY:
        // - C contract: each pointer is null or valid.
        let flag = unsafe { pointed(ue, flag) }?;
        ue.flag_free(flag)
    }

    fn [Synch] RCCE_flag_write(flag: *mut CFlag, value: c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { write(flag, value, id) }
    }

    fn [Synch] RCCE_flag_write_gory(flag: *mut CFlag, value: c_int, id: c_int) {
        let ue = current()?;
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe {
            pointed(ue, flag)?;
            check_status(value)?;
            write(flag, value, id)
        }
    }

    fn [Synch] iRCCE_flag_write(flag: *mut CFlag, value: c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { write(flag, value, id) }
    }

    fn [Synch] RCCE_flag_read(flag: CFlag, value: *mut c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { read(flag, value, id) }
    }

    fn [Synch] iRCCE_flag_read(flag: CFlag, value: *mut c_int, id: c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { read(flag, value, id) }
    }

    fn [Synch] RCCE_wait_until(flag: CFlag, value: c_int) {
        wait(flag, value)
    }

    fn [Synch] RCCE_wait_until_gory(flag: CFlag, value: c_int) {
        check_status(value)?;
        wait(flag, value)
    }

    fn [Synch] iRCCE_wait_until(flag: CFlag, value: c_int) {
        wait(flag, value)
    }

    fn [Synch] RCCE_test_flag(flag: CFlag, value: c_int, result: *mut c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { test(flag, value, result) }
    }

    fn [Synch] iRCCE_test_flag(flag: CFlag, value: c_int, result: *mut c_int) {
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe { test(flag, value, result) }
    }

    fn [Synch] iRCCE_flag_write_tagged(
        flag: *mut CFlag, value: c_int, id: c_int, tag: *mut c_void, len: c_int,
    ) {
        let ue = current()?;
        // SAFETY:
        // - C contract: each pointer is null or valid.
        let (flag, tag) = unsafe { (pointed(ue, flag)?, buffer(tag, len)) };
        ue.flag_write_tagged(flag, value, number(id)?, tag)
    }

    fn [Synch] iRCCE_flag_read_tagged(
        address: CFlag, value: *mut c_int, id: c_int, tag: *mut c_void, len: c_int,
    ) {
        let ue = current()?;
        let flag = flag(ue, address, ErrorCode::FlagUndefined)?;
        if value.is_null() {
            return Err(ErrorCode::ValUndefined.into());
        }
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe {
            let found = ue.flag_read_tagged(flag, number(id)?, buffer(tag, len))?;
            put(value, found)
        }
    }

    fn [Synch] iRCCE_wait_tagged(address: CFlag, value: c_int, tag: *mut c_void, len: c_int) {
        let ue = current()?;
        let flag = flag(ue, address, ErrorCode::FlagNotAllocated)?;
        // SAFETY:
        // - C contract: each pointer is null or valid.
        ue.wait_tagged(flag, value, unsafe { buffer(tag, len) })
    }

    fn [Synch] iRCCE_test_tagged(
        address: CFlag, value: c_int, result: *mut c_int, tag: *mut c_void, len: c_int,
    ) {
        let ue = current()?;
        let flag = flag(ue, address, ErrorCode::FlagNotAllocated)?;
        if result.is_null() {
            return Err(ErrorCode::ValUndefined.into());
        }
        // SAFETY:
        // - C contract: each pointer is null or valid.
        unsafe {
            let found = ue.test_tagged(flag, value, buffer(tag, len))?;
            put(result, c_int::from(found))
        }
    }
}

others! {
    fn RCCE_probe(flag: CFlag) -> c_int, or 0; {
        let ue = current()?;
        let flag = self::flag(ue, flag, ErrorCode::FlagNotAllocated)?;
        Ok(c_int::from(ue.test_flag(flag, 1)?))
    }

    fn iRCCE_get_max_tagged_len() -> c_int, or 0; {
        Ok(MAX_TAGGED_LEN as c_int)
    }
}
