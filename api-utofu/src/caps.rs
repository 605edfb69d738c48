//! Resources and limits of a virtual compute node: the values of the A64FX systems (guide tables 6.1 to 6.5).

use unipgas_utofu_sys::*;

/// `utofu_query_tofu_version`.
pub const TOFU_VERSION: (i32, i32) = (3, 0);
/// `utofu_query_utofu_version`.
pub const UTOFU_VERSION: (i32, i32) = (UTOFU_VERSION_MAJOR, UTOFU_VERSION_MINOR);
/// TNIs of a compute node.
pub const TNIS: u16 = 6;
/// CQs of a TNI.
pub const CQS: u16 = 9;
/// VCQs of a CQ: component ids.
pub const CMP_IDS: u16 = 8;
/// VBGs of a TNI that can start and end a circuit. They have the lowest numbers.
pub const START_VBGS: u16 = 16;
/// VBGs of a TNI.
pub const VBGS: u16 = 48;
/// STags of a VCQ that programs may choose themselves.
pub const RESERVED_STAGS: u32 = 256;
/// Memory under such a STag has an address and a size that are multiples of it, in bytes.
pub const STAG_ALIGNMENT: usize = 256;
/// Longest put or get, in bytes.
pub const MAX_PUTGET: usize = (1 << 24) - 1;
/// Longest piggyback, in bytes.
pub const MAX_PIGGYBACK: usize = 32;
/// Greatest MTU, in bytes.
pub const MAX_MTU: usize = 1920;
/// Greatest transmission gap.
pub const MAX_GAP: usize = 255;
/// Integers of one reduction.
pub const MAX_UINT64: usize = 6;
/// Floating-point numbers of one reduction.
pub const MAX_DOUBLE: usize = 3;

/// One-sided communication of each TNI (guide table 6.4).
pub static ONESIDED: utofu_onesided_caps = utofu_onesided_caps {
    flags: UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE | UTOFU_ONESIDED_CAP_FLAG_ARMW,
    armw_ops: UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP
        | UTOFU_ONESIDED_CAP_ARMW_OP_SWAP
        | UTOFU_ONESIDED_CAP_ARMW_OP_ADD
        | UTOFU_ONESIDED_CAP_ARMW_OP_XOR
        | UTOFU_ONESIDED_CAP_ARMW_OP_AND
        | UTOFU_ONESIDED_CAP_ARMW_OP_OR,
    num_cmp_ids: CMP_IDS as c_uint,
    num_reserved_stags: RESERVED_STAGS,
    cache_line_size: 256,
    stag_address_alignment: STAG_ALIGNMENT,
    max_toq_desc_size: unipgas_core::port::Command::SIZE,
    max_putget_size: MAX_PUTGET,
    max_piggyback_size: MAX_PIGGYBACK,
    max_edata_size: 1,
    max_mtu: MAX_MTU,
    max_gap: MAX_GAP,
};

/// Barrier communication of each TNI (guide table 6.5).
pub static BARRIER: utofu_barrier_caps = utofu_barrier_caps {
    flags: 0,
    reduce_ops: UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER
        | UTOFU_BARRIER_CAP_REDUCE_OP_BAND
        | UTOFU_BARRIER_CAP_REDUCE_OP_BOR
        | UTOFU_BARRIER_CAP_REDUCE_OP_BXOR
        | UTOFU_BARRIER_CAP_REDUCE_OP_MAX
        | UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC
        | UTOFU_BARRIER_CAP_REDUCE_OP_SUM
        | UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM,
    max_uint64_reduction: MAX_UINT64,
    max_double_reduction: MAX_DOUBLE,
};
