//! The list of all functions, and their table for callers that load the library.

use std::ffi::{CStr, c_int, c_uint, c_ulong, c_void};

use crate::types::*;

/// Passes to `$callback!` the declarations of all 65 functions: `fn name(parameter: type, ...) -> result;`. The result is `c_int`. The two
/// functions without a result have `()`. The caller needs the types, by `use unipgas_utofu_sys::*`.
#[macro_export]
macro_rules! utofu_functions {
    // A start function and its twin that prepares differ in their last parameters.
    (@all $callback:ident
        { $($before:tt)* }
        { $(fn $start:ident | $prepare:ident($($parameter:ident: $ty:ty),* $(,)?);)* }
        { $($after:tt)* }
    ) => {
        $callback! {
            $($before)*
            // one-sided start
            $(fn $start(vcq_hdl: utofu_vcq_hdl_t, $($parameter: $ty,)* cbdata: *mut c_void) -> c_int;)*
            // one-sided prepare
            $(fn $prepare(
                vcq_hdl: utofu_vcq_hdl_t, $($parameter: $ty,)* desc: *mut c_void, desc_size: *mut usize,
            ) -> c_int;)*
            $($after)*
        }
    };
    ($callback:ident) => {
        $crate::utofu_functions! { @all $callback {
            // TNI query
            fn utofu_get_onesided_tnis(tni_ids: *mut *mut utofu_tni_id_t, num_tnis: *mut usize) -> c_int;
            fn utofu_get_barrier_tnis(tni_ids: *mut *mut utofu_tni_id_t, num_tnis: *mut usize) -> c_int;
            fn utofu_query_onesided_caps(tni_id: utofu_tni_id_t, tni_caps: *mut *mut utofu_onesided_caps) -> c_int;
            fn utofu_query_barrier_caps(tni_id: utofu_tni_id_t, tni_caps: *mut *mut utofu_barrier_caps) -> c_int;
            // VCQ
            fn utofu_create_vcq(tni_id: utofu_tni_id_t, flags: c_ulong, vcq_hdl: *mut utofu_vcq_hdl_t) -> c_int;
            fn utofu_create_vcq_with_cmp_id(
                tni_id: utofu_tni_id_t, cmp_id: utofu_cmp_id_t, flags: c_ulong, vcq_hdl: *mut utofu_vcq_hdl_t,
            ) -> c_int;
            fn utofu_free_vcq(vcq_hdl: utofu_vcq_hdl_t) -> c_int;
            fn utofu_query_vcq_id(vcq_hdl: utofu_vcq_hdl_t, vcq_id: *mut utofu_vcq_id_t) -> c_int;
            fn utofu_construct_vcq_id(
                coords: *mut u8, tni_id: utofu_tni_id_t, cq_id: utofu_cq_id_t, cmp_id: utofu_cmp_id_t,
                vcq_id: *mut utofu_vcq_id_t,
            ) -> c_int;
            fn utofu_set_vcq_id_path(vcq_id: *mut utofu_vcq_id_t, path_coords: *mut u8) -> c_int;
            fn utofu_query_vcq_info(
                vcq_id: utofu_vcq_id_t, coords: *mut u8, tni_id: *mut utofu_tni_id_t, cq_id: *mut utofu_cq_id_t,
                extra_val: *mut u16,
            ) -> c_int;
            // VBG
            fn utofu_alloc_vbg(tni_id: utofu_tni_id_t, num_vbgs: usize, flags: c_ulong, vbg_ids: *mut utofu_vbg_id_t) -> c_int;
            fn utofu_free_vbg(vbg_ids: *mut utofu_vbg_id_t, num_vbgs: usize) -> c_int;
            fn utofu_set_vbg(vbg_settings: *mut utofu_vbg_setting, num_vbg_settings: usize) -> c_int;
            fn utofu_query_vbg_info(
                vbg_id: utofu_vbg_id_t, coords: *mut u8, tni_id: *mut utofu_tni_id_t, bg_id: *mut utofu_bg_id_t,
                extra_val: *mut u16,
            ) -> c_int;
            // path
            fn utofu_get_path_id(vcq_id: utofu_vcq_id_t, path_coords: *mut u8, path_id: *mut utofu_path_id_t) -> c_int;
            fn utofu_get_path_coords(vcq_id: utofu_vcq_id_t, path_id: utofu_path_id_t, path_coords: *mut u8) -> c_int;
            // STADD
            fn utofu_reg_mem(
                vcq_hdl: utofu_vcq_hdl_t, addr: *mut c_void, size: usize, flags: c_ulong, stadd: *mut utofu_stadd_t,
            ) -> c_int;
            fn utofu_reg_mem_with_stag(
                vcq_hdl: utofu_vcq_hdl_t, addr: *mut c_void, size: usize, stag: c_uint, flags: c_ulong,
                stadd: *mut utofu_stadd_t,
            ) -> c_int;
            fn utofu_query_stadd(vcq_id: utofu_vcq_id_t, stag: c_uint, stadd: *mut utofu_stadd_t) -> c_int;
            fn utofu_dereg_mem(vcq_hdl: utofu_vcq_hdl_t, stadd: utofu_stadd_t, flags: c_ulong) -> c_int;
        } {
            // one-sided start and prepare
            fn utofu_put | utofu_prepare_put(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize, edata: u64,
                flags: c_ulong,
            );
            fn utofu_put_gap | utofu_prepare_put_gap(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize, edata: u64,
                flags: c_ulong, mtu: usize, gap: usize,
            );
            fn utofu_put_stride | utofu_prepare_put_stride(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize,
                stride: usize, num_blocks: usize, edata: u64, flags: c_ulong,
            );
            fn utofu_put_stride_gap | utofu_prepare_put_stride_gap(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize,
                stride: usize, num_blocks: usize, edata: u64, flags: c_ulong, mtu: usize, gap: usize,
            );
            fn utofu_put_piggyback | utofu_prepare_put_piggyback(
                rmt_vcq_id: utofu_vcq_id_t, lcl_data: *mut c_void, rmt_stadd: utofu_stadd_t, length: usize, edata: u64,
                flags: c_ulong,
            );
            fn utofu_put_piggyback8 | utofu_prepare_put_piggyback8(
                rmt_vcq_id: utofu_vcq_id_t, lcl_data: u64, rmt_stadd: utofu_stadd_t, length: usize, edata: u64,
                flags: c_ulong,
            );
            fn utofu_get | utofu_prepare_get(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize, edata: u64,
                flags: c_ulong,
            );
            fn utofu_get_gap | utofu_prepare_get_gap(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize, edata: u64,
                flags: c_ulong, mtu: usize, gap: usize,
            );
            fn utofu_get_stride | utofu_prepare_get_stride(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize,
                stride: usize, num_blocks: usize, edata: u64, flags: c_ulong,
            );
            fn utofu_get_stride_gap | utofu_prepare_get_stride_gap(
                rmt_vcq_id: utofu_vcq_id_t, lcl_stadd: utofu_stadd_t, rmt_stadd: utofu_stadd_t, length: usize,
                stride: usize, num_blocks: usize, edata: u64, flags: c_ulong, mtu: usize, gap: usize,
            );
            fn utofu_armw4 | utofu_prepare_armw4(
                rmt_vcq_id: utofu_vcq_id_t, armw_op: utofu_armw_op, op_value: u32, rmt_stadd: utofu_stadd_t, edata: u64,
                flags: c_ulong,
            );
            fn utofu_armw8 | utofu_prepare_armw8(
                rmt_vcq_id: utofu_vcq_id_t, armw_op: utofu_armw_op, op_value: u64, rmt_stadd: utofu_stadd_t, edata: u64,
                flags: c_ulong,
            );
            fn utofu_cswap4 | utofu_prepare_cswap4(
                rmt_vcq_id: utofu_vcq_id_t, old_value: u32, new_value: u32, rmt_stadd: utofu_stadd_t, edata: u64,
                flags: c_ulong,
            );
            fn utofu_cswap8 | utofu_prepare_cswap8(
                rmt_vcq_id: utofu_vcq_id_t, old_value: u64, new_value: u64, rmt_stadd: utofu_stadd_t, edata: u64,
                flags: c_ulong,
            );
            fn utofu_nop | utofu_prepare_nop(flags: c_ulong);
        } {
            // post
            fn utofu_post_toq(vcq_hdl: utofu_vcq_hdl_t, desc: *mut c_void, desc_size: usize, cbdata: *mut c_void) -> c_int;
            // completion
            fn utofu_poll_tcq(vcq_hdl: utofu_vcq_hdl_t, flags: c_ulong, cbdata: *mut *mut c_void) -> c_int;
            fn utofu_poll_mrq(vcq_hdl: utofu_vcq_hdl_t, flags: c_ulong, notice: *mut utofu_mrq_notice) -> c_int;
            fn utofu_query_num_unread_tcq(vcq_hdl: utofu_vcq_hdl_t, count: *mut usize) -> c_int;
            fn utofu_query_num_unread_mrq(vcq_hdl: utofu_vcq_hdl_t, count: *mut usize) -> c_int;
            // barrier
            fn utofu_barrier(vbg_id: utofu_vbg_id_t, flags: c_ulong) -> c_int;
            fn utofu_reduce_uint64(
                vbg_id: utofu_vbg_id_t, op: utofu_reduce_op, data: *mut u64, num_data: usize, flags: c_ulong,
            ) -> c_int;
            fn utofu_reduce_double(
                vbg_id: utofu_vbg_id_t, op: utofu_reduce_op, data: *mut f64, num_data: usize, flags: c_ulong,
            ) -> c_int;
            fn utofu_poll_barrier(vbg_id: utofu_vbg_id_t, flags: c_ulong) -> c_int;
            fn utofu_poll_reduce_uint64(vbg_id: utofu_vbg_id_t, flags: c_ulong, data: *mut u64) -> c_int;
            fn utofu_poll_reduce_double(vbg_id: utofu_vbg_id_t, flags: c_ulong, data: *mut f64) -> c_int;
            // misc
            fn utofu_query_tofu_version(major_ver: *mut c_int, minor_ver: *mut c_int) -> ();
            fn utofu_query_utofu_version(major_ver: *mut c_int, minor_ver: *mut c_int) -> ();
            fn utofu_query_my_coords(coords: *mut u8) -> c_int;
        } }
    };
}

macro_rules! table {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions of a loaded library.
        #[derive(Debug, Clone, Copy)]
        pub struct UtofuFunctions {
            $(pub $name: unsafe extern "C" fn($($parameter: $ty),*) -> $result,)*
        }

        impl UtofuFunctions {
            /// The names, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Finds all functions by `symbol`, which returns null for an unknown name.
            /// Errors: the first name that is missing.
            ///
            /// # Safety
            /// `symbol` returns null, or the function of that name, which stays loaded.
            pub unsafe fn load(symbol: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static str> {
                $(
                    let name = const {
                        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name has no zero in it"),
                        }
                    };
                    let $name = symbol(name);
                    if $name.is_null() {
                        return Err(stringify!($name));
                    }
                )*
                Ok(UtofuFunctions {
                    $($name: {
                        // SAFETY:
                        // - not null, so the function of this name (contract of this call); the header declares this type.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $result>($name) }
                    },)*
                })
            }
        }
    };
}

utofu_functions!(table);
