//! §12: the limits in force.

use super::{procedures, put};
use crate::config::QUEUE_MAX;
use crate::environment::process;

/// Defines getters of configuration fields.
macro_rules! getters {
    ($($name:ident | $shifted:ident: $ty:ty = $field:ident;)*) => {
        procedures! {$(
            fn $name | $shifted(value: *mut $ty) with process {
                // SAFETY:
                // - null or valid, by the C contract.
                unsafe { put(value, process()?.config().$field) }
            }
        )*}
    };
}

getters! {
    gaspi_group_max | pgaspi_group_max: u32 = group_max;
    gaspi_segment_max | pgaspi_segment_max: u32 = segment_max;
    gaspi_queue_size_max | pgaspi_queue_size_max: u32 = queue_size_max;
    gaspi_transfer_size_max | pgaspi_transfer_size_max: u64 = transfer_size_max;
    gaspi_notification_num | pgaspi_notification_num: u32 = notification_num;
    gaspi_allreduce_buf_size | pgaspi_allreduce_buf_size: u64 = allreduce_buf_size;
    gaspi_allreduce_elem_max | pgaspi_allreduce_elem_max: u32 = allreduce_elem_max;
    gaspi_rw_list_elem_max | pgaspi_rw_list_elem_max: u32 = rw_list_elem_max;
    gaspi_network_type | pgaspi_network_type: u32 = network;
    gaspi_build_infrastructure | pgaspi_build_infrastructure: u32 = build_infrastructure;
}

procedures! {
    fn gaspi_queue_num | pgaspi_queue_num(num: *mut u32) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(num, process()?.queue_num()) }
    }

    fn gaspi_queue_max | pgaspi_queue_max(max: *mut u32) with process {
        process()?;
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(max, QUEUE_MAX) }
    }

    fn gaspi_transfer_size_min | pgaspi_transfer_size_min(min: *mut u64) with process {
        process()?;
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(min, 0) }
    }

    fn gaspi_passive_transfer_size_max | pgaspi_passive_transfer_size_max(max: *mut u64) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(max, u64::from(process()?.config().passive_transfer_size_max)) }
    }

    fn gaspi_passive_transfer_size_min | pgaspi_passive_transfer_size_min(min: *mut u64) with process {
        process()?;
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(min, 1) }
    }

    fn gaspi_atomic_max | pgaspi_atomic_max(max: *mut u64) with process {
        process()?;
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(max, u64::MAX) }
    }
}
