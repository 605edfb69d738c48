//! What a virtual compute node has: the quantities of the A64FX systems (guide tables 6.1 to 6.5).

/// `utofu_query_tofu_version`.
pub const TOFU_VERSION: (i32, i32) = (3, 0);
/// `utofu_query_utofu_version`.
pub const UTOFU_VERSION: (i32, i32) = (1, 0);
/// TNIs of a compute node.
pub const TNIS: u16 = 6;
/// CQs of a TNI.
pub const CQS: u16 = 9;
/// VCQs of a CQ: component ids.
pub const CMP_IDS: u16 = 8;
/// VBGs of a TNI that can start and end a circuit; they come first.
pub const START_VBGS: u16 = 16;
/// VBGs of a TNI.
pub const VBGS: u16 = 48;
/// STags that programs give out themselves.
pub const RESERVED_STAGS: u32 = 256;
/// Alignment and size of memory under such a STag, in bytes.
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

/// `struct utofu_onesided_caps`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct OnesidedCaps {
    pub flags: libc::c_ulong,
    pub armw_ops: libc::c_ulong,
    pub num_cmp_ids: libc::c_uint,
    pub num_reserved_stags: libc::c_uint,
    pub cache_line_size: usize,
    pub stag_address_alignment: usize,
    pub max_toq_desc_size: usize,
    pub max_putget_size: usize,
    pub max_piggyback_size: usize,
    pub max_edata_size: usize,
    pub max_mtu: usize,
    pub max_gap: usize,
}

/// `struct utofu_barrier_caps`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct BarrierCaps {
    pub flags: libc::c_ulong,
    pub reduce_ops: libc::c_ulong,
    pub max_uint64_reduction: usize,
    pub max_double_reduction: usize,
}

/// Of every TNI (guide table 6.4).
pub static ONESIDED: OnesidedCaps = OnesidedCaps {
    flags: 0b11,
    armw_ops: 0b11_1111,
    num_cmp_ids: CMP_IDS as libc::c_uint,
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

/// Of every TNI (guide table 6.5).
pub static BARRIER: BarrierCaps = BarrierCaps {
    flags: 0,
    reduce_ops: 0b1_1111_1110,
    max_uint64_reduction: MAX_UINT64,
    max_double_reduction: MAX_DOUBLE,
};
