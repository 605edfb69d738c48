//! Variables of RCCE.h, RCCE_lib.h and iRCCE.h that programs read.
//!
//! An executable may have copies of them, which the dynamic linker has made and which everybody but this library sees. So they are
//! written where a lookup by name leads.
#![allow(non_upper_case_globals)]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::ptr::null_mut;

use crate::comm::{Comm, MAX_UES};
use crate::environment::{Debug, debugging};
use crate::mpb::LINE;
use crate::process::Ue;

/// Memory that the program reads as a plain variable, and that few functions write, such as `RCCE_init`.
#[repr(transparent)]
pub struct Variable<T>(UnsafeCell<T>);

// SAFETY:
// - the library never reads it; it is written under a lock, before the program may read it.
unsafe impl<T> Sync for Variable<T> {}

#[unsafe(no_mangle)]
pub static RCCE_IAM: Variable<i32> = Variable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_NP: Variable<i32> = Variable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RC_COREID: Variable<[i32; MAX_UES]> = Variable(UnsafeCell::new([0; MAX_UES]));
#[unsafe(no_mangle)]
pub static RCCE_COMM_WORLD: Variable<Comm> = Variable(UnsafeCell::new(Comm::UNDEFINED));
#[unsafe(no_mangle)]
pub static RC_MY_COREID: Variable<i32> = Variable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_BUFF_SIZE: Variable<i32> = Variable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_comm_buffer: Variable<[*mut u8; MAX_UES]> =
    Variable(UnsafeCell::new([null_mut(); MAX_UES]));
#[unsafe(no_mangle)]
pub static RCCE_fool_write_combine_buffer: Variable<*mut u8> =
    Variable(UnsafeCell::new(null_mut()));
/// Where [`RCCE_fool_write_combine_buffer`] leads.
static DUMMY: Variable<[u64; LINE / 8]> = Variable(UnsafeCell::new([0; LINE / 8]));
#[unsafe(no_mangle)]
pub static RC_REFCLOCKGHZ: Variable<f64> = Variable(UnsafeCell::new(CHIP_CLOCK));
#[unsafe(no_mangle)]
pub static RCCE_debug_synch: Variable<i32> = Variable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_debug_comm: Variable<i32> = Variable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_debug_debug: Variable<i32> = Variable(UnsafeCell::new(0));
#[unsafe(no_mangle)]
pub static RCCE_debug_RPC: Variable<i32> = Variable(UnsafeCell::new(0));
/// Clock in GHz, unless the launcher names another one.
const CHIP_CLOCK: f64 = 0.533;
#[unsafe(no_mangle)]
pub static iRCCE_ANY_SOURCE: i32 = -1;
#[unsafe(no_mangle)]
pub static iRCCE_ANY_LENGTH: i32 = -1;

impl<T> Variable<T> {
    /// Where the program sees the variable: in the archive nobody may know the name, but then there is only one.
    fn seen(&self, name: &CStr) -> *mut T {
        // SAFETY:
        // - dlsym reads a string that ends with zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if found.is_null() {
            self.0.get()
        } else {
            found.cast()
        }
    }

    fn set(&self, name: &CStr, value: T) {
        // SAFETY:
        // - the variable, or the program's copy of it, of the same type; nobody else writes it.
        unsafe { self.seen(name).write(value) };
    }
}

/// Tells the program which errors are printed.
pub(super) fn publish_debug() {
    let on = |class| i32::from(debugging(class));
    RCCE_debug_synch.set(c"RCCE_debug_synch", on(Debug::Synch));
    RCCE_debug_comm.set(c"RCCE_debug_comm", on(Debug::Comm));
    RCCE_debug_debug.set(c"RCCE_debug_debug", on(Debug::Debug));
    RCCE_debug_RPC.set(c"RCCE_debug_RPC", on(Debug::Rpc));
}

/// Tells the program its place; `clock`: in GHz, if the launcher has named it.
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
