//! Communicators and barriers.

use std::ffi::{c_int, c_void};

use super::{functions, put};
use crate::comm::Comm;
use crate::environment::{Debug, current, debugging};
use crate::process::Ue;
use crate::status::{Code, Result};

type Colour = Option<unsafe extern "C" fn(c_int, *mut c_void) -> c_int>;

/// A barrier of UEs, as one of the two functions has it.
///
/// # Safety
/// `comm` is null or valid.
unsafe fn barrier(comm: *const Comm, meet: impl FnOnce(&Ue, &Comm) -> Result<()>) -> Result<()> {
    let ue = current()?;
    if debugging(Debug::Synch) {
        // SAFETY:
        // - the format takes an int.
        unsafe { libc::printf(c"UE %d has checked into barrier\n".as_ptr(), ue.id()) };
    }
    // SAFETY:
    // - null or valid, by the caller's word.
    match unsafe { comm.as_ref() } {
        Some(comm) => meet(ue, comm),
        None => meet(ue, &ue.comm_world()),
    }
}

functions! {
    fn [Synch] RCCE_comm_split(colour: Colour, aux: *mut c_void, comm: *mut Comm) {
        let ue = current()?;
        let colour = colour.ok_or(Code::CommUndefined)?;
        if comm.is_null() {
            return Err(Code::CommUndefined.into());
        }
        // SAFETY:
        // - not null, so valid by the C contract; the function takes any rank and what the program gave for it.
        unsafe {
            let made = ue.comm_split_over(&*comm, |id| colour(id as c_int, aux))?;
            put(comm, made)
        }
    }

    fn [Synch] RCCE_comm_free(comm: *mut Comm) {
        let ue = current()?;
        // SAFETY:
        // - null or valid, by the C contract.
        let comm = unsafe { comm.as_mut() }.ok_or(Code::CommUndefined)?;
        ue.comm_free(comm)?;
        *comm = Comm::UNDEFINED;
        Ok(())
    }

    fn [Synch] RCCE_comm_size(comm: Comm, size: *mut c_int) {
        let members = current()?.communicator(&comm)?.members().len();
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(size, members as c_int) }
    }

    fn [Synch] RCCE_comm_rank(comm: Comm, rank: *mut c_int) {
        let found = current()?.communicator(&comm)?.rank();
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(rank, found as c_int) }
    }

    fn [Synch] RCCE_barrier(comm: *mut Comm) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { barrier(comm, Ue::barrier) }
    }

    fn [Synch] iRCCE_barrier(comm: *mut Comm) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { barrier(comm, Ue::air_barrier) }
    }
}
