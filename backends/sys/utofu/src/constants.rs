//! Constants of the header, and functions for its two macros with an argument.

use std::ffi::{c_int, c_uint, c_ulong};

use crate::{utofu_path_id_t, utofu_vbg_id_t};

macro_rules! constants {
    ($list:ident, $ty:ty: $($name:ident = $value:expr,)*) => {
        $(pub const $name: $ty = $value;)*
        const $list: &[(&str, i128)] = &[$((stringify!($name), $name as i128),)*];
    };
}

/// All of them, for the comparison with the header.
pub fn constants() -> impl Iterator<Item = (&'static str, i128)> {
    [VERSIONS, FLAGS, CODES, OPERATIONS, NOTICES, GATES, PATHS]
        .into_iter()
        .flatten()
        .copied()
}

/// Names and values of the return codes.
pub fn return_codes() -> impl Iterator<Item = (&'static str, c_int)> {
    CODES.iter().map(|(name, value)| (*name, *value as c_int))
}

const SPS_SHIFT: u32 = 24;
const PATH_SHIFT: u32 = 28;
/// All bits of the session progress step, and of the path, among the flags of one-sided communication.
pub const UTOFU_ONESIDED_SPS_MASK: c_ulong = 0xf << SPS_SHIFT;
pub const UTOFU_ONESIDED_PATH_MASK: c_ulong = 0xff << PATH_SHIFT;

/// The session progress step among the flags of one-sided communication (guide §3.7.9.3): below 16.
pub const fn UTOFU_ONESIDED_FLAG_SPS(sps: c_ulong) -> c_ulong {
    sps << SPS_SHIFT
}

/// The path among the flags of one-sided communication (guide §3.7.9.2).
pub const fn UTOFU_ONESIDED_FLAG_PATH(path_id: utofu_path_id_t) -> c_ulong {
    (path_id as c_ulong) << PATH_SHIFT
}

/// The session progress step among `flags`.
#[inline(always)]
pub const fn sps_of(flags: c_ulong) -> u8 {
    (flags >> SPS_SHIFT & 0xf) as u8
}

/// The path among `flags`; 0 for none.
#[inline(always)]
pub const fn path_id_of(flags: c_ulong) -> utofu_path_id_t {
    (flags >> PATH_SHIFT) as utofu_path_id_t
}

constants! { VERSIONS, c_int:
    UTOFU_VERSION_MAJOR = 1,
    UTOFU_VERSION_MINOR = 0,
}

constants! { FLAGS, c_ulong:
    UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE = 1 << 0,
    UTOFU_ONESIDED_CAP_FLAG_ARMW = 1 << 1,
    UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP = 1 << 0,
    UTOFU_ONESIDED_CAP_ARMW_OP_SWAP = 1 << 1,
    UTOFU_ONESIDED_CAP_ARMW_OP_ADD = 1 << 2,
    UTOFU_ONESIDED_CAP_ARMW_OP_XOR = 1 << 3,
    UTOFU_ONESIDED_CAP_ARMW_OP_AND = 1 << 4,
    UTOFU_ONESIDED_CAP_ARMW_OP_OR = 1 << 5,
    UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER = 1 << 1,
    UTOFU_BARRIER_CAP_REDUCE_OP_BAND = 1 << 2,
    UTOFU_BARRIER_CAP_REDUCE_OP_BOR = 1 << 3,
    UTOFU_BARRIER_CAP_REDUCE_OP_BXOR = 1 << 4,
    UTOFU_BARRIER_CAP_REDUCE_OP_MAX = 1 << 5,
    UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC = 1 << 6,
    UTOFU_BARRIER_CAP_REDUCE_OP_SUM = 1 << 7,
    UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM = 1 << 8,
    UTOFU_VCQ_FLAG_THREAD_SAFE = 1 << 0,
    UTOFU_VCQ_FLAG_EXCLUSIVE = 1 << 1,
    UTOFU_VCQ_FLAG_SESSION_MODE = 1 << 2,
    UTOFU_VBG_FLAG_THREAD_SAFE = 1 << 0,
    UTOFU_REG_MEM_FLAG_READ_ONLY = 1 << 0,
    UTOFU_ONESIDED_FLAG_STRONG_ORDER = 1 << 0,
    UTOFU_ONESIDED_FLAG_PACKET_RESPONSE = 1 << 1,
    UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE = 1 << 2,
    UTOFU_ONESIDED_FLAG_PADDING = 1 << 3,
    UTOFU_ONESIDED_FLAG_CACHE_INJECTION = 1 << 5,
    UTOFU_ONESIDED_FLAG_DELAY_START = 1 << 8,
    UTOFU_ONESIDED_FLAG_TCQ_NOTICE = 1 << 14,
    UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE = 1 << 15,
}

constants! { CODES, c_int:
    UTOFU_SUCCESS = 0,
    UTOFU_ERR_NOT_FOUND = -1,
    UTOFU_ERR_NOT_COMPLETED = -2,
    UTOFU_ERR_NOT_PROCESSED = -3,
    UTOFU_ERR_BUSY = -4,
    UTOFU_ERR_USED = -5,
    UTOFU_ERR_FULL = -6,
    UTOFU_ERR_NOT_AVAILABLE = -7,
    UTOFU_ERR_NOT_SUPPORTED = -8,
    UTOFU_ERR_TCQ_OTHER = -128,
    UTOFU_ERR_TCQ_DESC = -129,
    UTOFU_ERR_TCQ_MEMORY = -130,
    UTOFU_ERR_TCQ_STADD = -131,
    UTOFU_ERR_TCQ_LENGTH = -132,
    UTOFU_ERR_MRQ_OTHER = -192,
    UTOFU_ERR_MRQ_PEER = -193,
    UTOFU_ERR_MRQ_LCL_MEMORY = -194,
    UTOFU_ERR_MRQ_RMT_MEMORY = -195,
    UTOFU_ERR_MRQ_LCL_STADD = -196,
    UTOFU_ERR_MRQ_RMT_STADD = -197,
    UTOFU_ERR_MRQ_LCL_LENGTH = -198,
    UTOFU_ERR_MRQ_RMT_LENGTH = -199,
    UTOFU_ERR_BARRIER_OTHER = -256,
    UTOFU_ERR_BARRIER_MISMATCH = -257,
    UTOFU_ERR_INVALID_ARG = -512,
    UTOFU_ERR_INVALID_POINTER = -513,
    UTOFU_ERR_INVALID_FLAGS = -514,
    UTOFU_ERR_INVALID_COORDS = -515,
    UTOFU_ERR_INVALID_PATH = -516,
    UTOFU_ERR_INVALID_TNI_ID = -517,
    UTOFU_ERR_INVALID_CQ_ID = -518,
    UTOFU_ERR_INVALID_BG_ID = -519,
    UTOFU_ERR_INVALID_CMP_ID = -520,
    UTOFU_ERR_INVALID_VCQ_HDL = -521,
    UTOFU_ERR_INVALID_VCQ_ID = -522,
    UTOFU_ERR_INVALID_VBG_ID = -523,
    UTOFU_ERR_INVALID_PATH_ID = -524,
    UTOFU_ERR_INVALID_STADD = -525,
    UTOFU_ERR_INVALID_ADDRESS = -526,
    UTOFU_ERR_INVALID_SIZE = -527,
    UTOFU_ERR_INVALID_STAG = -528,
    UTOFU_ERR_INVALID_EDATA = -529,
    UTOFU_ERR_INVALID_NUMBER = -530,
    UTOFU_ERR_INVALID_OP = -531,
    UTOFU_ERR_INVALID_DESC = -532,
    UTOFU_ERR_INVALID_DATA = -533,
    UTOFU_ERR_OUT_OF_RESOURCE = -640,
    UTOFU_ERR_OUT_OF_MEMORY = -641,
    UTOFU_ERR_FATAL = -768,
}

constants! { OPERATIONS, c_uint:
    UTOFU_ARMW_OP_SWAP = 1,
    UTOFU_ARMW_OP_ADD = 2,
    UTOFU_ARMW_OP_XOR = 3,
    UTOFU_ARMW_OP_AND = 4,
    UTOFU_ARMW_OP_OR = 5,
    UTOFU_REDUCE_OP_BARRIER = 1,
    UTOFU_REDUCE_OP_BAND = 2,
    UTOFU_REDUCE_OP_BOR = 3,
    UTOFU_REDUCE_OP_BXOR = 4,
    UTOFU_REDUCE_OP_MAX = 5,
    UTOFU_REDUCE_OP_MAXLOC = 6,
    UTOFU_REDUCE_OP_SUM = 7,
    UTOFU_REDUCE_OP_BFPSUM = 8,
}

// As wide as the member `notice_type`.
constants! { NOTICES, u8:
    UTOFU_MRQ_TYPE_LCL_PUT = 0,
    UTOFU_MRQ_TYPE_RMT_PUT = 1,
    UTOFU_MRQ_TYPE_LCL_GET = 2,
    UTOFU_MRQ_TYPE_RMT_GET = 3,
    UTOFU_MRQ_TYPE_LCL_ARMW = 4,
    UTOFU_MRQ_TYPE_RMT_ARMW = 5,
}

constants! { GATES, utofu_vbg_id_t:
    UTOFU_VBG_ID_NULL = utofu_vbg_id_t::MAX,
}

constants! { PATHS, u8:
    UTOFU_PATH_COORD_NULL = u8::MAX,
}
