//! Variables of RCCE.h, RCCE_lib.h and iRCCE.h. Programs read them.
//!
//! The dynamic linker may give the executable a copy of a variable (copy relocation). The program then reads the copy, so this library writes to the address
//! that `dlsym` returns.
#![allow(non_upper_case_globals)]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::ptr::null_mut;

use crate::comm::{Comm, MAX_UES};
use crate::environment::{Debug, debugging};
use crate::mpb::LINE;
use crate::process::Ue;

/// A plain variable of the program. `RCCE_init`, `RCCE_debug_set` and `RCCE_debug_unset` write it.
#[repr(transparent)]
pub struct ProgramVariable<T>(UnsafeCell<T>);

// SAFETY:
// - the library only writes it, in `RCCE_init`, `RCCE_debug_set` and `RCCE_debug_unset`.
// - C contract: one thread makes these calls, and the program does not read the variables meanwhile.
unsafe impl<T> Sync for ProgramVariable<T> {}

#[unsafe(no_mangle)]
pub static RCCE_IAM: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_NP: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RC_COREID: ProgramVariable<[i32; MAX_UES]> =
    ProgramVariable(UnsafeCell::new([0; MAX_UES]));
#[unsafe(no_mangle)]
pub static RCCE_COMM_WORLD: ProgramVariable<Comm> =
    ProgramVariable(UnsafeCell::new(Comm::UNDEFINED));
#[unsafe(no_mangle)]
pub static RC_MY_COREID: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_BUFF_SIZE: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_comm_buffer: ProgramVariable<[*mut u8; MAX_UES]> =
    ProgramVariable(UnsafeCell::new([null_mut(); MAX_UES]));
#[unsafe(no_mangle)]
pub static RCCE_fool_write_combine_buffer: ProgramVariable<*mut u8> =
    ProgramVariable(UnsafeCell::new(null_mut()));
/// Target of [`RCCE_fool_write_combine_buffer`].
static DUMMY: ProgramVariable<[u64; LINE / 8]> = ProgramVariable(UnsafeCell::new([0; LINE / 8]));
#[unsafe(no_mangle)]
pub static RC_REFCLOCKGHZ: ProgramVariable<f64> = ProgramVariable(UnsafeCell::new(CHIP_CLOCK));
#[unsafe(no_mangle)]
pub static RCCE_debug_synch: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_debug_comm: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_debug_debug: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_debug_RPC: ProgramVariable<i32> = ProgramVariable(UnsafeCell::new(0));
/// Clock in GHz, unless the launcher sets it.
const CHIP_CLOCK: f64 = 0.533;
#[unsafe(no_mangle)]
pub static iRCCE_ANY_SOURCE: i32 = -1;
#[unsafe(no_mangle)]
pub static iRCCE_ANY_LENGTH: i32 = -1;

impl<T> ProgramVariable<T> {
    /// Address of the variable in the program. With static linking, `dlsym` may not find the name; then there is no copy.
    fn seen(&self, name: &CStr) -> *mut T {
        // SAFETY:
        // - the name is a string that ends with zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if found.is_null() {
            self.0.get()
        } else {
            found.cast()
        }
    }

    fn set(&self, name: &CStr, value: T) {
        // SAFETY:
        // - the address is the variable, or the program's copy of it with the same type. Only this library writes it.
        unsafe { self.seen(name).write(value) };
    }
}

/// Publishes the enabled debug classes to the program.
pub(super) fn publish_debug() {
    let on = |class| i32::from(debugging(class));
    RCCE_debug_synch.set(c"RCCE_debug_synch", on(Debug::Synch));
    RCCE_debug_comm.set(c"RCCE_debug_comm", on(Debug::Comm));
    RCCE_debug_debug.set(c"RCCE_debug_debug", on(Debug::Debug));
    RCCE_debug_RPC.set(c"RCCE_debug_RPC", on(Debug::Rpc));
}

/// Publishes the job to the program. `clock`: in GHz, if the launcher sets it.
pub(super) fn publish(ue: &Ue, clock: Option<f64>) {
    RC_REFCLOCKGHZ.set(c"RC_REFCLOCKGHZ", clock.unwrap_or(CHIP_CLOCK));
    RCCE_IAM.set(c"RCCE_IAM", ue.id() as i32);
    RCCE_NP.set(c"RCCE_NP", ue.num() as i32);
    RC_COREID.set(c"RC_COREID", *ue.cores());
    RC_MY_COREID.set(c"RC_MY_COREID", ue.cores()[ue.id() as usize]);
    RCCE_BUFF_SIZE.set(c"RCCE_BUFF_SIZE", ue.mpb_len() as i32);
    let buffers = std::array::from_fn(|id| ue.window(id as u32));
    RCCE_comm_buffer.set(c"RCCE_comm_buffer", buffers);
    RCCE_fool_write_combine_buffer.set(c"RCCE_fool_write_combine_buffer", DUMMY.0.get().cast());
    RCCE_COMM_WORLD.set(c"RCCE_COMM_WORLD", ue.comm_world());
}
