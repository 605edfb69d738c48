//! Constants of the headers.

use std::ffi::c_int;

pub const RCCE_LINE_SIZE: usize = 32;
pub const RCCE_BUFF_SIZE_MAX: usize = 8192;
pub const RCCE_MAXNP: usize = 48;
pub const RCCE_MAX_ERROR_STRING: usize = 45;

pub const RCCE_SUCCESS: c_int = 0;
pub const iRCCE_ERROR: c_int = -1;
pub const iRCCE_PENDING: c_int = -2;
pub const iRCCE_RESERVED: c_int = -3;
pub const iRCCE_NOT_ENQUEUED: c_int = -4;
pub const RCCE_ERROR_BASE: c_int = 1_234_321;

macro_rules! errors {
    ($($name:ident = $number:literal,)*) => {
        $(pub const $name: c_int = RCCE_ERROR_BASE + $number;)*
        /// Names and values of the errors after [`RCCE_ERROR_BASE`].
        pub const ERRORS: &[(&str, c_int)] = &[$((stringify!($name), $name)),*];
    };
}

errors! {
    RCCE_ERROR_TARGET = 1,
    RCCE_ERROR_SOURCE = 2,
    RCCE_ERROR_ID = 3,
    RCCE_ERROR_MESSAGE_LENGTH = 4,
    RCCE_ERROR_FLAG_UNDEFINED = 5,
    RCCE_ERROR_NUM_UES = 6,
    RCCE_ERROR_DATA_OVERLAP = 7,
    RCCE_ERROR_ALIGNMENT = 8,
    RCCE_ERROR_DEBUG_FLAG = 9,
    RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER = 10,
    RCCE_ERROR_FLAG_STATUS_UNDEFINED = 11,
    RCCE_ERROR_FLAG_NOT_ALLOCATED = 12,
    RCCE_ERROR_VAL_UNDEFINED = 13,
    RCCE_ERROR_INVALID_ERROR_CODE = 14,
    RCCE_ERROR_RPC_NOT_ALLOCATED = 15,
    RCCE_ERROR_RPC_INTERNAL = 16,
    RCCE_ERROR_MULTIPLE_RPC_REQUESTS = 17,
    RCCE_ERROR_FDIVIDER = 18,
    RCCE_ERROR_FREQUENCY_EXCEEDED = 19,
    RCCE_ERROR_NO_ACTIVE_RPC_REQUEST = 20,
    RCCE_ERROR_STALE_RPC_REQUEST = 21,
    RCCE_ERROR_COMM_UNDEFINED = 22,
    RCCE_ERROR_ILLEGAL_OP = 23,
    RCCE_ERROR_ILLEGAL_TYPE = 24,
    RCCE_ERROR_MALLOC = 25,
    RCCE_ERROR_COMM_INITIALIZED = 26,
    RCCE_ERROR_CORE_NOT_IN_HOSTFILE = 27,
}

pub const RCCE_DEBUG_ALL: c_int = 111_111;
pub const RCCE_DEBUG_SYNCH: c_int = 111_444;
pub const RCCE_DEBUG_COMM: c_int = 111_555;
pub const RCCE_DEBUG_RPC: c_int = 111_666;
pub const RCCE_DEBUG_DEBUG: c_int = 111_888;
