//! Communicators and barriers.

use std::ffi::{c_int, c_void};

use super::{functions, put};
use crate::comm::Comm;
use crate::environment::{Debug, current, debugging};
use crate::process::Ue;
use crate::status::{ErrorCode, Result};

type Colour = Option<unsafe extern "C" fn(c_int, *mut c_void) -> c_int>;

/// The common part of `RCCE_barrier` and `iRCCE_barrier`.
///
/// # Safety
/// `comm` is null or valid.
unsafe fn barrier(comm: *const Comm, meet: impl FnOnce(&Ue, &Comm) -> Result<()>) -> Result<()> {
    let ue = current()?;
    if debugging(Debug::Synch) {
        // SAFETY:
        // - the format and its argument agree: one int.
        unsafe { libc::printf(c"UE %d has checked into barrier\n".as_ptr(), ue.id()) };
    }
    // SAFETY:
    // - contract of this call: `comm` is null or valid.
    match unsafe { comm.as_ref() } {
        Some(comm) => meet(ue, comm),
        None => meet(ue, &ue.comm_world()),
    }
}

functions! {
    fn [Synch] RCCE_comm_split(colour: Colour, aux: *mut c_void, comm: *mut Comm) {
        let ue = current()?;
        let colour = colour.ok_or(ErrorCode::CommUndefined)?;
        if comm.is_null() {
            return Err(ErrorCode::CommUndefined.into());
        }
        // SAFETY:
        // - C contract: `comm` is valid, since it is not null. `colour` accepts any rank, and `aux` is the program's argument for it.
        unsafe {
            let made = ue.comm_split_over(&*comm, |id| colour(id as c_int, aux))?;
            put(comm, made)
        }
    }

    fn [Synch] RCCE_comm_free(comm: *mut Comm) {
        let ue = current()?;
        // SAFETY:
        // - C contract: the pointer is null or valid.
        let comm = unsafe { comm.as_mut() }.ok_or(ErrorCode::CommUndefined)?;
        ue.comm_free(comm)?;
        *comm = Comm::UNDEFINED;
        Ok(())
    }

    fn [Synch] RCCE_comm_size(comm: Comm, size: *mut c_int) {
        let members = current()?.communicator(&comm)?.members().len();
        // SAFETY:
        // - C contract: the pointer is null or valid.
        unsafe { put(size, members as c_int) }
    }

    fn [Synch] RCCE_comm_rank(comm: Comm, rank: *mut c_int) {
        let found = current()?.communicator(&comm)?.rank();
        // SAFETY:
        // - C contract: the pointer is null or valid.
        unsafe { put(rank, found as c_int) }
    }

    fn [Synch] RCCE_barrier(comm: *mut Comm) {
        // SAFETY:
        // - C contract: the pointer is null or valid.
        unsafe { barrier(comm, Ue::barrier) }
    }

    fn [Synch] iRCCE_barrier(comm: *mut Comm) {
        // SAFETY:
        // - C contract: the pointer is null or valid.
        unsafe { barrier(comm, Ue::air_barrier) }
    }
}
