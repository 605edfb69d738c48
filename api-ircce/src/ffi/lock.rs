//! Locks and atomic increment registers.

use std::ffi::c_int;
use std::ptr::null;

use super::{functions, put, put_if_wanted};
use crate::air::Air;
use crate::environment::current;
use crate::status::{ErrorCode, Result};

fn number(id: c_int) -> Result<u32> {
    u32::try_from(id).map_err(|_| ErrorCode::Id.into())
}

functions! {
    fn [Synch] RCCE_acquire_lock(id: c_int) {
        current()?.acquire_lock(number(id)?)
    }

    fn [Synch] RCCE_release_lock(id: c_int) {
        current()?.release_lock(number(id)?)
    }

    fn [Synch] iRCCE_atomic_alloc(register: *mut *const Air) {
        let ue = current()?;
        if register.is_null() {
            return Err(ErrorCode::General.into());
        }
        let made = ue.atomic_alloc();
        let handle = made.map_or(Ok(null()), |made| ue.handle(made));
        // SAFETY:
        // - C contract: `register` is valid, since it is not null.
        unsafe { put(register, *handle.as_ref().unwrap_or(&null())) }?;
        handle?;
        made.map(|_| ()).ok_or(ErrorCode::General.into())
    }

    fn [Synch] iRCCE_atomic_inc(register: *const Air, value: *mut c_int) {
        let ue = current()?;
        let before = ue.atomic_inc(ue.register(register)?)?;
        // SAFETY:
        // - C contract: `value` is null or valid.
        unsafe { put_if_wanted(value, before) };
        Ok(())
    }

    fn [Synch] iRCCE_atomic_read(register: *const Air, value: *mut c_int) {
        let ue = current()?;
        let found = ue.atomic_read(ue.register(register)?)?;
        // SAFETY:
        // - C contract: `value` is null or valid.
        unsafe { put_if_wanted(value, found) };
        Ok(())
    }

    fn [Synch] iRCCE_atomic_write(register: *const Air, value: c_int) {
        let ue = current()?;
        ue.atomic_write(ue.register(register)?, value)
    }
}
