//! Constants of the headers.

macro_rules! constants {
    ($list:ident: $($name:ident = $value:literal,)*) => {
        $(pub const $name: i32 = $value;)*
        /// Names and values of the return codes.
        pub const $list: &[(&str, i32)] = &[$((stringify!($name), $name)),*];
    };
}

constants! { RETURN_CODES:
    GASPI_ERROR = -1,
    GASPI_SUCCESS = 0,
    GASPI_TIMEOUT = 1,
    GASPI_ERR_EMFILE = 2,
    GASPI_ERR_ENV = 3,
    GASPI_ERR_SN_PORT = 4,
    GASPI_ERR_CONFIG = 5,
    GASPI_ERR_NOINIT = 6,
    GASPI_ERR_INITED = 7,
    GASPI_ERR_NULLPTR = 8,
    GASPI_ERR_INV_SEGSIZE = 9,
    GASPI_ERR_INV_SEG = 10,
    GASPI_ERR_INV_GROUP = 11,
    GASPI_ERR_INV_RANK = 12,
    GASPI_ERR_INV_QUEUE = 13,
    GASPI_ERR_INV_LOC_OFF = 14,
    GASPI_ERR_INV_REM_OFF = 15,
    GASPI_ERR_INV_COMMSIZE = 16,
    GASPI_ERR_INV_NOTIF_VAL = 17,
    GASPI_ERR_INV_NOTIF_ID = 18,
    GASPI_ERR_INV_NUM = 19,
    GASPI_ERR_INV_SIZE = 20,
    GASPI_ERR_MANY_SEG = 21,
    GASPI_ERR_MANY_GRP = 22,
    GASPI_QUEUE_FULL = 23,
    GASPI_ERR_UNALIGN_OFF = 24,
    GASPI_ERR_ACTIVE_COLL = 25,
    GASPI_ERR_DEVICE = 26,
    GASPI_ERR_SN = 27,
    GASPI_ERR_MEMALLOC = 28,
}

pub const GASPI_BLOCK: u64 = u64::MAX;
pub const GASPI_TEST: u64 = 0;
pub const GASPI_GROUP_ALL: u8 = 0;
pub const GASPI_OP_MIN: u32 = 0;
pub const GASPI_OP_MAX: u32 = 1;
pub const GASPI_OP_SUM: u32 = 2;
pub const GASPI_OP_READ: u32 = 16;
pub const GASPI_OP_READ_NOTIFY: u32 = 17;
pub const GASPI_OP_READ_LIST: u32 = 18;
pub const GASPI_OP_READ_LIST_NOTIFY: u32 = 19;
pub const GASPI_OP_WRITE: u32 = 20;
pub const GASPI_OP_WRITE_NOTIFY: u32 = 21;
pub const GASPI_OP_WRITE_LIST: u32 = 22;
pub const GASPI_OP_WRITE_LIST_NOTIFY: u32 = 23;
pub const GASPI_OP_NOTIFY: u32 = 24;
pub const GASPI_TAG_NULL: i64 = 0;
pub const GASPI_QUEUE_GROUP_POLICY_DEFAULT: u32 = 0;
pub const GASPI_QUEUE_GROUP_POLICY_CPU_RR: u32 = 1;
