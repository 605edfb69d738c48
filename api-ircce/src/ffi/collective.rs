//! Multicast (manual §9.11, §9.12), and RCCE's broadcast and reductions.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use libc::{c_char, c_int, size_t, ssize_t};

use super::functions;
use super::message::{bytes, length, room, source};
use crate::Reduction;
use crate::comm::Comm;
use crate::environment::current;
use crate::message::MULTICAST;
use crate::status::{ErrorCode, Result};

fn member(root: c_int) -> Result<u32> {
    u32::try_from(root).map_err(|_| ErrorCode::Id.into())
}

/// # Safety
/// `size` bytes at `data` are valid, or null.
unsafe fn broadcast(data: *mut c_char, size: size_t, root: c_int, comm: &Comm) -> Result<()> {
    let (ptr, len) = bytes(data, size)?;
    // SAFETY:
    // - contract of this call: the bytes are valid, or null. `bytes` excludes null with a length above 0.
    unsafe { current()?.broadcast_from((ptr.cast_mut(), len), member(root)?, comm) }
}

/// # Safety
/// As `broadcast`.
unsafe fn multicast(data: *mut c_char, size: size_t, root: c_int) -> Result<()> {
    let ue = current()?;
    let root = ue.check_id(root)?;
    // SAFETY:
    // - contract of this call: the bytes are valid, or null. `bytes` and `room` exclude null with a length above 0.
    unsafe {
        if root == ue.id() {
            return ue.multicast_from(bytes(data, size)?);
        }
        let room = room(data, crate::message::Length::Bytes(size), size_t::MAX)?;
        ue.receive_into(room, Some(root), MULTICAST).map(|_| ())
    }
}

/// The reduction, and the length of its elements in bytes. Errors: [`ErrorCode::IllegalOp`], [`ErrorCode::IllegalType`], [`ErrorCode::General`] if `data` is null and `num`
/// is above 0.
fn elements(data: *const c_char, num: c_int, ty: c_int, op: c_int) -> Result<(Reduction, usize)> {
    let reduction = Reduction::from_c(ty, op)?;
    let len = usize::try_from(num).unwrap_or(0) * reduction.element.size();
    bytes(data, len)?;
    Ok((reduction, len))
}

/// A copy of the elements at `data`, since the result may overlap them.
///
/// # Safety
/// `len` bytes at `data` are readable, or there are none.
unsafe fn taken(data: *const c_char, len: usize) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    // SAFETY:
    // - contract of this call: `len` bytes are readable.
    unsafe { from_raw_parts(data.cast(), len) }.to_vec()
}

/// # Safety
/// `len` bytes at `result` are valid, or there are none.
unsafe fn place<'a>(result: *mut c_char, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    bytes(result, len)?;
    // SAFETY:
    // - contract of this call: the bytes are valid. `bytes` excludes null.
    Ok(unsafe { from_raw_parts_mut(result.cast(), len) })
}

functions! {
    fn [Comm] RCCE_bcast(data: *mut c_char, size: size_t, root: c_int, comm: Comm) {
        // SAFETY:
        // - C contract: the bytes are valid during the call.
        unsafe { broadcast(data, size, root, &comm) }
    }

    fn [Comm] iRCCE_bcast(data: *mut c_char, size: size_t, root: c_int, comm: Comm) {
        // SAFETY:
        // - C contract: the bytes are valid during the call.
        unsafe {
            if comm == current()?.comm_world() {
                return multicast(data, size, root);
            }
            broadcast(data, size, root, &comm)
        }
    }

    fn [Comm] iRCCE_mcast(data: *mut c_char, size: size_t, root: c_int) {
        // SAFETY:
        // - C contract: the bytes are valid during the call.
        unsafe { multicast(data, size, root) }
    }

    fn [Comm] iRCCE_msend(data: *mut c_char, len: ssize_t) {
        let bytes = bytes(data, usize::try_from(len).unwrap_or(0))?;
        // SAFETY:
        // - C contract: the bytes are valid during the call.
        unsafe { current()?.multicast_from(bytes) }
    }

    fn [Comm] iRCCE_mrecv_within(buffer: *mut c_char, len: ssize_t, from: c_int, capacity: size_t) {
        let (room, from) = (room(buffer, length(len), capacity)?, source(from)?);
        // SAFETY:
        // - C contract: the bytes are valid during the call.
        unsafe { current()?.receive_into(room, from, MULTICAST) }.map(|_| ())
    }

    fn [Comm] iRCCE_mrecv(buffer: *mut c_char, len: ssize_t, from: c_int) {
        // SAFETY:
        // - both functions have the same C contract.
        Ok(unsafe { iRCCE_mrecv_within(buffer, len, from, size_t::MAX) })
    }

    fn [Comm] RCCE_reduce(
        data: *mut c_char, result: *mut c_char, num: c_int, ty: c_int, op: c_int, root: c_int, comm: Comm,
    ) {
        let ue = current()?;
        let (reduction, len) = elements(data, num, ty, op)?;
        let root = member(root)?;
        // SAFETY:
        // - C contract: `data` is valid, and at the root also `result`. Other members do not access `result`.
        unsafe {
            let mine = taken(data, len);
            let communicator = ue.communicator(&comm)?;
            let result = if communicator.rank() == root {
                place(result, len)?
            } else {
                &mut []
            };
            ue.reduce(&mine, result, reduction, root, &comm)
        }
    }

    fn [Comm] RCCE_allreduce(
        data: *mut c_char, result: *mut c_char, num: c_int, ty: c_int, op: c_int, comm: Comm,
    ) {
        let ue = current()?;
        let (reduction, len) = elements(data, num, ty, op)?;
        // SAFETY:
        // - C contract: the bytes are valid during the call.
        unsafe {
            let mine = taken(data, len);
            ue.all_reduce(&mine, place(result, len)?, reduction, &comm)
        }
    }
}
