//! Types and structures that cross the interface (guide §3.1.1, §3.2.2, §3.4.4, §3.7.6).

use std::ffi::{c_uint, c_ulong};

pub type utofu_tni_id_t = u16;
pub type utofu_cq_id_t = u16;
pub type utofu_bg_id_t = u16;
pub type utofu_cmp_id_t = u16;
pub type utofu_vcq_hdl_t = usize;
pub type utofu_vcq_id_t = u64;
pub type utofu_vbg_id_t = u64;
pub type utofu_path_id_t = u8;
pub type utofu_stadd_t = u64;

/// An enumeration of C, so that any number that a program passes is a value: one of `UTOFU_ARMW_OP_*`.
pub type utofu_armw_op = c_uint;
/// One of `UTOFU_REDUCE_OP_*`.
pub type utofu_reduce_op = c_uint;

macro_rules! structures {
    ($($(#[$attribute:meta])* $name:ident ($size:literal) { $($offset:literal $field:ident: $ty:ty,)* })*) => {$(
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name { $(pub $field: $ty,)* }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    )*
        /// Name, size, and each member with its offset, for the comparison with the header.
        pub const STRUCTURES: &[(&str, usize, &[(&str, usize)])] = &[$((
            stringify!($name),
            size_of::<$name>(),
            &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
        ),)*];
    };
}

structures! {
    /// §3.2.2.1.
    utofu_onesided_caps (88) {
        0 flags: c_ulong,
        8 armw_ops: c_ulong,
        16 num_cmp_ids: c_uint,
        20 num_reserved_stags: c_uint,
        24 cache_line_size: usize,
        32 stag_address_alignment: usize,
        40 max_toq_desc_size: usize,
        48 max_putget_size: usize,
        56 max_piggyback_size: usize,
        64 max_edata_size: usize,
        72 max_mtu: usize,
        80 max_gap: usize,
    }
    /// §3.2.2.2.
    utofu_barrier_caps (32) {
        0 flags: c_ulong,
        8 reduce_ops: c_ulong,
        16 max_uint64_reduction: usize,
        24 max_double_reduction: usize,
    }
    /// §3.4.4.1.
    utofu_vbg_setting (48) {
        0 vbg_id: utofu_vbg_id_t,
        8 src_lcl_vbg_id: utofu_vbg_id_t,
        16 src_rmt_vbg_id: utofu_vbg_id_t,
        24 dst_lcl_vbg_id: utofu_vbg_id_t,
        32 dst_rmt_vbg_id: utofu_vbg_id_t,
        40 dst_path_coords: [u8; 3],
    }
    /// §3.7.6.1.
    utofu_mrq_notice (64) {
        0 notice_type: u8,
        1 padding1: [u8; 7],
        8 vcq_id: utofu_vcq_id_t,
        16 edata: u64,
        24 rmt_value: u64,
        32 lcl_stadd: utofu_stadd_t,
        40 rmt_stadd: utofu_stadd_t,
        48 reserved: [u64; 2],
    }
}
