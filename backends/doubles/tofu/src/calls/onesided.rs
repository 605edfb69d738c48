//! One-sided communication start (§3.7.1), preparation (§3.7.2) and batch start (§3.7.3).

use std::ffi::{c_ulong, c_void};

use unipgas_utofu_sys::*;

use crate::flight::DescriptorKind;
use crate::library::{Double, UtofuResult};
use crate::operation::OperationArguments;
use crate::post;

/// The double requests a TCQ descriptor for each descriptor, to know the free places of the TOQ. Programs get only the ones that they requested.
const TOLD: c_ulong = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;

/// A start function and its preparation function, with their operation.
macro_rules! both {
    ($(fn $name:ident | $prepare:ident ($($parameter:ident: $ty:ty),* $(,)?) $flags:ident { $($field:ident: $value:expr),* $(,)? })*) => {$(
        #[allow(clippy::too_many_arguments, reason = "as in C")]
        pub unsafe fn $name(
            double: &'static Double, vcq_hdl: utofu_vcq_hdl_t, $($parameter: $ty,)* cbdata: *mut c_void,
        ) -> UtofuResult {
            let operation = OperationArguments { flags: $flags, $($field: $value,)* ..OperationArguments::NONE };
            let $flags = $flags | TOLD;
            post::start(
                double, stringify!($name), vcq_hdl, cbdata, &operation,
                || {
                    // SAFETY:
                    // - the arguments of the caller, by the contract of this function.
                    unsafe { (double.real.$name)(vcq_hdl, $($parameter,)* cbdata) }
                },
                |desc, size| {
                    // SAFETY:
                    // - the arguments of the caller, by the contract of this function; `desc` and `size` are valid for writes.
                    unsafe { (double.real.$prepare)(vcq_hdl, $($parameter,)* desc, size) }
                },
            )
        }

        #[allow(clippy::too_many_arguments, reason = "as in C")]
        pub unsafe fn $prepare(
            double: &'static Double, vcq_hdl: utofu_vcq_hdl_t, $($parameter: $ty,)* desc: *mut c_void, desc_size: *mut usize,
        ) -> UtofuResult {
            let operation = OperationArguments { flags: $flags, $($field: $value,)* ..OperationArguments::NONE };
            let $flags = $flags | TOLD;
            let make = || {
                // SAFETY:
                // - the arguments of the caller, by the contract of this function.
                unsafe { (double.real.$prepare)(vcq_hdl, $($parameter,)* desc, desc_size) }
            };
            // SAFETY:
            // - the library writes to the same `desc` and `desc_size`.
            unsafe { post::prepare(double, stringify!($prepare), vcq_hdl, (desc, desc_size), &operation, make) }
        }
    )*};
}

both! {
    fn utofu_put | utofu_prepare_put(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Put, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata }

    fn utofu_put_gap | utofu_prepare_put_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong, mtu: usize, gap: usize,
    ) flags {
        kind: DescriptorKind::Put, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata,
        packets: Some((mtu, gap)),
    }

    fn utofu_put_stride | utofu_prepare_put_stride(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize, num_blocks: usize, edata: u64,
        flags: c_ulong,
    ) flags {
        kind: DescriptorKind::Put, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata,
        blocks: Some((stride, num_blocks)),
    }

    fn utofu_put_stride_gap | utofu_prepare_put_stride_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize, num_blocks: usize, edata: u64,
        flags: c_ulong, mtu: usize, gap: usize,
    ) flags {
        kind: DescriptorKind::Put, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata,
        blocks: Some((stride, num_blocks)), packets: Some((mtu, gap)),
    }

    fn utofu_put_piggyback | utofu_prepare_put_piggyback(
        rmt_vcq_id: u64, lcl_data: *mut c_void, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Piggyback, vcq_id: rmt_vcq_id, remote: rmt_stadd, length: length, edata: edata }

    fn utofu_put_piggyback8 | utofu_prepare_put_piggyback8(
        rmt_vcq_id: u64, lcl_data: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Piggyback, vcq_id: rmt_vcq_id, remote: rmt_stadd, length: length, edata: edata, most: 8 }

    fn utofu_get | utofu_prepare_get(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Get, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata }

    fn utofu_get_gap | utofu_prepare_get_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong, mtu: usize, gap: usize,
    ) flags {
        kind: DescriptorKind::Get, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata,
        packets: Some((mtu, gap)),
    }

    fn utofu_get_stride | utofu_prepare_get_stride(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize, num_blocks: usize, edata: u64,
        flags: c_ulong,
    ) flags {
        kind: DescriptorKind::Get, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata,
        blocks: Some((stride, num_blocks)),
    }

    fn utofu_get_stride_gap | utofu_prepare_get_stride_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize, num_blocks: usize, edata: u64,
        flags: c_ulong, mtu: usize, gap: usize,
    ) flags {
        kind: DescriptorKind::Get, vcq_id: rmt_vcq_id, local: lcl_stadd, remote: rmt_stadd, length: length, edata: edata,
        blocks: Some((stride, num_blocks)), packets: Some((mtu, gap)),
    }

    fn utofu_armw4 | utofu_prepare_armw4(
        rmt_vcq_id: u64, armw_op: utofu_armw_op, op_value: u32, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Armw, vcq_id: rmt_vcq_id, remote: rmt_stadd, edata: edata, most: 4 }

    fn utofu_armw8 | utofu_prepare_armw8(
        rmt_vcq_id: u64, armw_op: utofu_armw_op, op_value: u64, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Armw, vcq_id: rmt_vcq_id, remote: rmt_stadd, edata: edata, most: 8 }

    fn utofu_cswap4 | utofu_prepare_cswap4(
        rmt_vcq_id: u64, old_value: u32, new_value: u32, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Armw, vcq_id: rmt_vcq_id, remote: rmt_stadd, edata: edata, most: 4 }

    fn utofu_cswap8 | utofu_prepare_cswap8(
        rmt_vcq_id: u64, old_value: u64, new_value: u64, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) flags { kind: DescriptorKind::Armw, vcq_id: rmt_vcq_id, remote: rmt_stadd, edata: edata, most: 8 }

    fn utofu_nop | utofu_prepare_nop(flags: c_ulong) flags {}
}

pub unsafe fn utofu_post_toq(
    double: &'static Double,
    vcq_hdl: utofu_vcq_hdl_t,
    desc: *mut c_void,
    desc_size: usize,
    cbdata: *mut c_void,
) -> UtofuResult {
    // SAFETY:
    // - the arguments of the caller, by the contract of this function.
    unsafe { post::post_toq(double, vcq_hdl, desc, desc_size, cbdata) }
}
