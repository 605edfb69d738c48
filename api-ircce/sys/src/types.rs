//! Types and structures that cross the interface.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::ptr::null_mut;

use crate::constants::RCCE_MAXNP;

/// A line of the MPB. Its first word is the flag's value.
pub type RCCE_FLAG = *mut c_int;
/// Returns the colour of a UE, for `RCCE_comm_split`.
pub type RCCE_COLOUR = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
/// Compares two elements for `RCCE_qsort`.
pub type RCCE_COMPARE = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// A communicator. Programs hold and copy it, and read `size`, `my_rank` and `member`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RCCE_COMM {
    /// Number of members.
    pub size: c_int,
    /// This UE's number among them.
    pub my_rank: c_int,
    pub initialized: c_int,
    /// The members' numbers among all UEs, ascending.
    pub member: [c_int; RCCE_MAXNP],
    pub gather: RCCE_FLAG,
    pub release: RCCE_FLAG,
}

// SAFETY:
// - the pointers are values that programs keep; the library compares them with the addresses that it returned, and dereferences none.
unsafe impl Send for RCCE_COMM {}
// SAFETY:
// - as for Send.
unsafe impl Sync for RCCE_COMM {}

impl RCCE_COMM {
    /// No communicator.
    pub const UNDEFINED: RCCE_COMM = RCCE_COMM {
        size: 0,
        my_rank: 0,
        initialized: 0,
        member: [0; RCCE_MAXNP],
        gather: null_mut(),
        release: null_mut(),
    };
}

/// A change of voltage and frequency.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RCCE_REQUEST {
    /// 1 if the change has ended.
    pub release: c_int,
    /// Index of the voltage before.
    pub old_voltage_level: c_int,
    /// Index of the requested voltage.
    pub new_voltage_level: c_int,
    /// Divider before.
    pub old_frequency_divider: c_int,
    /// Requested divider.
    pub new_frequency_divider: c_int,
    /// Begin of the change, in nanoseconds of a monotonic clock.
    pub start_cycle: c_longlong,
}

/// An atomic increment register: programs use its address alone.
#[repr(C)]
#[derive(Debug)]
pub struct iRCCE_AIR {
    pub counter: *mut c_int,
    pub init: *mut c_int,
}

// SAFETY:
// - the pointers are values for the program; the library dereferences none of them.
unsafe impl Send for iRCCE_AIR {}
// SAFETY:
// - as for Send.
unsafe impl Sync for iRCCE_AIR {}

/// Several requests.
#[repr(C)]
#[derive(Debug)]
pub struct iRCCE_WAIT_LIST {
    pub first: *mut c_void,
    pub last: *mut c_void,
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident: $peer:ident, [$($started:ident)?];)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            pub privbuf: *mut c_char,
            pub combuf: *mut u8,
            pub chunk: usize,
            pub ready: *mut RCCE_FLAG,
            pub sent: *mut RCCE_FLAG,
            pub size: usize,
            pub $peer: c_int,
            pub sync: c_int,
            pub wsize: usize,
            pub remainder: usize,
            pub nbytes: usize,
            pub bufptr: *mut c_char,
            pub label: c_int,
            pub finished: c_int,
            $(pub $started: c_int,)?
            pub next: *mut $name,
            pub subchunk1: usize,
            pub subchunk2: usize,
            pub flag_set_value: c_int,
        }
    )*};
}

requests! {
    /// A send in progress, as the header declares it. A library may use only a part.
    iRCCE_SEND_REQUEST: dest, [];
    /// A receive in progress. `source` is -1 while the sender may be any UE.
    iRCCE_RECV_REQUEST: source, [started];
}
