//! Constants of the headers.

macro_rules! constants {
    ($list:ident, $ty:ty: $($name:ident = $value:expr,)*) => {
        $(pub const $name: $ty = $value;)*
        const $list: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

/// All of them, for the comparison with the headers.
pub fn constants() -> impl Iterator<Item = (&'static str, u64)> {
    [FLAGS, MODES, WORDS, CLASSES, ERRNOS]
        .into_iter()
        .flatten()
        .copied()
}

/// All orders between accesses to remote memory, and between atomics.
pub const FI_ORDER_RMA: u64 = 0xf << 32;
pub const FI_ORDER_ATOMIC: u64 = 0xf << 36;

pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

constants! { FLAGS, u64:
    FI_MSG = 1 << 1,
    FI_RMA = 1 << 2,
    FI_TAGGED = 1 << 3,
    FI_ATOMIC = 1 << 4,
    FI_READ = 1 << 8,
    FI_WRITE = 1 << 9,
    FI_RECV = 1 << 10,
    FI_SEND = 1 << 11,
    FI_TRANSMIT = FI_SEND,
    FI_REMOTE_READ = 1 << 12,
    FI_REMOTE_WRITE = 1 << 13,
    FI_MULTI_RECV = 1 << 16,
    FI_REMOTE_CQ_DATA = 1 << 17,
    FI_MORE = 1 << 18,
    FI_PEEK = 1 << 19,
    FI_TRIGGER = 1 << 20,
    FI_FENCE = 1 << 21,
    FI_COMPLETION = 1 << 24,
    FI_INJECT = 1 << 25,
    FI_INJECT_COMPLETE = 1 << 26,
    FI_TRANSMIT_COMPLETE = 1 << 27,
    FI_DELIVERY_COMPLETE = 1 << 28,
    FI_MATCH_COMPLETE = 1 << 31,
    FI_SOURCE_ERR = 1 << 50,
    FI_LOCAL_COMM = 1 << 51,
    FI_REMOTE_COMM = 1 << 52,
    FI_PROV_ATTR_ONLY = 1 << 54,
    FI_NUMERICHOST = 1 << 55,
    FI_RMA_EVENT = 1 << 56,
    FI_SOURCE = 1 << 57,
    FI_DIRECTED_RECV = 1 << 59,
    FI_CLAIM = 1 << 59,
    FI_DISCARD = 1 << 58,
    FI_SELECTIVE_COMPLETION = 1 << 59,
    FI_FETCH_ATOMIC = 1 << 58,
    FI_COMPARE_ATOMIC = 1 << 59,
    FI_SYNC_ERR = 1 << 58,
    FI_SYMMETRIC = 1 << 59,
    FI_ORDER_STRICT = 0x1ff,
    FI_ORDER_RAW = 1 << 1,
    FI_ORDER_RAS = 1 << 2,
    FI_ORDER_WAR = 1 << 3,
    FI_ORDER_WAW = 1 << 4,
    FI_ORDER_WAS = 1 << 5,
    FI_ORDER_SAW = 1 << 7,
    FI_ORDER_SAS = 1 << 8,
    FI_ORDER_DATA = 1 << 16,
    FI_ORDER_RMA_RAW = 1 << 33,
    FI_ORDER_RMA_WAR = 1 << 34,
    FI_ORDER_RMA_WAW = 1 << 35,
    FI_ORDER_ATOMIC_RAW = 1 << 37,
    FI_ORDER_ATOMIC_WAR = 1 << 38,
    FI_ORDER_ATOMIC_WAW = 1 << 39,
    FI_CONTEXT = 1 << 59,
    FI_CONTEXT2 = 1 << 52,
    FI_RX_CQ_DATA = 1 << 56,
    FI_ADDR_UNSPEC = u64::MAX,
    FI_ADDR_NOTAVAIL = u64::MAX,
    FI_KEY_NOTAVAIL = u64::MAX,
}

constants! { MODES, i32:
    FI_MR_UNSPEC = 0,
    FI_MR_BASIC = 1 << 0,
    FI_MR_SCALABLE = 1 << 1,
    FI_MR_LOCAL = 1 << 2,
    FI_MR_RAW = 1 << 3,
    FI_MR_VIRT_ADDR = 1 << 4,
    FI_MR_ALLOCATED = 1 << 5,
    FI_MR_PROV_KEY = 1 << 6,
    FI_MR_RMA_EVENT = 1 << 8,
    FI_MR_ENDPOINT = 1 << 9,
    FI_AV_UNSPEC = 0,
    FI_AV_MAP = 1,
    FI_AV_TABLE = 2,
    FI_PROGRESS_UNSPEC = 0,
    FI_PROGRESS_AUTO = 1,
    FI_PROGRESS_MANUAL = 2,
    FI_THREAD_UNSPEC = 0,
    FI_THREAD_SAFE = 1,
    FI_THREAD_FID = 2,
    FI_THREAD_DOMAIN = 3,
    FI_THREAD_COMPLETION = 4,
    FI_THREAD_ENDPOINT = 5,
    FI_RM_UNSPEC = 0,
    FI_RM_DISABLED = 1,
    FI_RM_ENABLED = 2,
    FI_EP_UNSPEC = 0,
    FI_EP_RDM = 3,
    FI_GETOPSFLAG = 2,
    FI_SETOPSFLAG = 3,
    FI_ALIAS = 4,
    FI_GETWAIT = 5,
    FI_ENABLE = 6,
    FI_QUEUE_WORK = 11,
    FI_CANCEL_WORK = 12,
    FI_FLUSH_WORK = 13,
    FI_REFRESH = 14,
    FI_GETWAITOBJ = 16,
    FI_WAIT_NONE = 0,
    FI_WAIT_UNSPEC = 1,
    FI_WAIT_SET = 2,
    FI_WAIT_FD = 3,
    FI_WAIT_YIELD = 5,
    FI_CQ_FORMAT_UNSPEC = 0,
    FI_CQ_FORMAT_CONTEXT = 1,
    FI_CQ_FORMAT_MSG = 2,
    FI_CQ_FORMAT_DATA = 3,
    FI_CQ_FORMAT_TAGGED = 4,
    FI_CQ_COND_NONE = 0,
    FI_CQ_COND_THRESHOLD = 1,
    FI_OPT_ENDPOINT = 0,
    FI_OPT_MIN_MULTI_RECV = 0,
    FI_OPT_CM_DATA_SIZE = 1,
    FI_HMEM_SYSTEM = 0,
    FI_TRIGGER_THRESHOLD = 0,
    FI_OP_RECV = 0,
    FI_OP_SEND = 1,
    FI_OP_TRECV = 2,
    FI_OP_TSEND = 3,
    FI_OP_READ = 4,
    FI_OP_WRITE = 5,
    FI_OP_ATOMIC = 6,
    FI_OP_FETCH_ATOMIC = 7,
    FI_OP_COMPARE_ATOMIC = 8,
    FI_OP_CNTR_SET = 9,
    FI_OP_CNTR_ADD = 10,
    FI_UINT64 = 7,
    FI_SUM = 2,
    FI_INT128 = 14,
    FI_UINT128 = 15,
}

constants! { WORDS, u32:
    FI_FORMAT_UNSPEC = 0,
    FI_ADDR_STR = 9,
    FI_PROTO_UNSPEC = 0,
    FI_PROV_SPECIFIC = 1 << 31,
    FI_TC_UNSPEC = 0,
    FI_AV_COMPLETE = 5,
}

constants! { CLASSES, usize:
    FI_CLASS_FABRIC = 1,
    FI_CLASS_DOMAIN = 2,
    FI_CLASS_EP = 3,
    FI_CLASS_SRX_CTX = 6,
    FI_CLASS_STX_CTX = 8,
    FI_CLASS_AV = 11,
    FI_CLASS_MR = 12,
    FI_CLASS_EQ = 13,
    FI_CLASS_CQ = 14,
    FI_CLASS_CNTR = 15,
    FI_CLASS_WAIT = 16,
    FI_CLASS_POLL = 17,
    FI_SHARED_CONTEXT = usize::MAX,
}

/// The numbers of `rdma/fi_errno.h` that providers use; functions of C return their negatives.
pub fn error_numbers() -> impl Iterator<Item = (&'static str, i32)> {
    ERRNOS.iter().map(|(name, value)| (*name, *value as i32))
}

constants! { ERRNOS, i32:
    FI_ENOENT = 2,
    FI_EIO = 5,
    FI_EAGAIN = 11,
    FI_ENOMEM = 12,
    FI_EACCES = 13,
    FI_EBUSY = 16,
    FI_EINVAL = 22,
    FI_ENOSPC = 28,
    FI_ENOSYS = 38,
    FI_ENOMSG = 42,
    FI_ENODATA = 61,
    FI_EMSGSIZE = 90,
    FI_ENOPROTOOPT = 92,
    FI_EOPNOTSUPP = 95,
    FI_EADDRINUSE = 98,
    FI_EADDRNOTAVAIL = 99,
    FI_ECONNRESET = 104,
    FI_ETIMEDOUT = 110,
    FI_EHOSTUNREACH = 113,
    FI_ECANCELED = 125,
    FI_EOTHER = 256,
    FI_ETOOSMALL = 257,
    FI_EOPBADSTATE = 258,
    FI_EAVAIL = 259,
    FI_EBADFLAGS = 260,
    FI_ENOEQ = 261,
    FI_EDOMAIN = 262,
    FI_ENOCQ = 263,
    FI_ETRUNC = 265,
    FI_ENOKEY = 266,
    FI_ENOAV = 267,
}
