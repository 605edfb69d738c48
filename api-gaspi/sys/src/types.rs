//! Types and structures that cross the interface.

use std::ffi::c_void;

/// The callback of release 1.6: operands, result, state, number and size of elements, timeout.
pub type gaspi_reduce_operation_t =
    extern "C" fn(*mut u8, *mut u8, *mut u8, *mut c_void, u32, u64, u64) -> i32;
/// The callback of the GASPI text (§11.4.2): called for one element at a time.
pub type gaspi_reduce_operation_17_t =
    extern "C" fn(*const u8, *const u8, *mut u8, *mut c_void, u64) -> i32;
/// The function of a thread of `gaspi_threads_run`.
pub type gaspi_thread_function = extern "C" fn(*mut c_void) -> *mut c_void;

/// The result of an operation with a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct gaspi_status_t {
    pub error: i32,
}

/// The configuration (GASPI 17.1 §5.2): 144 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct gaspi_config_t {
    pub logger: u32,
    pub sn_port: u32,
    pub net_info: u32,
    pub user_net: u32,
    pub sn_persistent: i32,
    pub sn_timeout: u64,
    pub dev_config: gaspi_dev_config_t,
    pub network: u32,
    pub queue_size_max: u32,
    pub queue_num: u32,
    pub group_max: u32,
    pub segment_max: u32,
    pub transfer_size_max: u64,
    pub notification_num: u32,
    pub passive_queue_size_max: u32,
    pub passive_transfer_size_max: u32,
    pub allreduce_buf_size: u64,
    pub allreduce_elem_max: u32,
    pub rw_list_elem_max: u32,
    pub build_infrastructure: u32,
    pub user_defined: *mut c_void,
}

// SAFETY:
// - `user_defined` is a value of the program; no code here dereferences it.
unsafe impl Send for gaspi_config_t {}
// SAFETY:
// - as for Send.
unsafe impl Sync for gaspi_config_t {}

/// The part of the configuration about the device: 32 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct gaspi_dev_config_t {
    pub network_type: u32,
    pub netdev_id: i32,
    pub mtu: u32,
    pub port_check: u32,
    pub tcp_port: u32,
    pub use_shm: u32,
    pub provider_info: u32,
    pub progress_auto: u32,
}

/// The defaults of release 1.6 (§5.2.2).
impl Default for gaspi_config_t {
    fn default() -> Self {
        gaspi_config_t {
            logger: 1,
            sn_port: 12121,
            net_info: 0,
            user_net: 0,
            sn_persistent: 1,
            sn_timeout: 30_000,
            dev_config: gaspi_dev_config_t {
                network_type: 2,
                netdev_id: -1,
                mtu: 0,
                port_check: 1,
                tcp_port: 19_000,
                use_shm: 1,
                provider_info: 0,
                progress_auto: 1,
            },
            network: 2,
            queue_size_max: 1024,
            queue_num: 8,
            group_max: 32,
            segment_max: 255,
            transfer_size_max: 1 << 30,
            notification_num: 65_536,
            passive_queue_size_max: 1024,
            passive_transfer_size_max: 65_535,
            allreduce_buf_size: 2040,
            allreduce_elem_max: 255,
            rw_list_elem_max: 255,
            build_infrastructure: 1,
            user_defined: std::ptr::null_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn layout_is_that_of_release_1_6() {
        assert_eq!(
            (size_of::<gaspi_config_t>(), align_of::<gaspi_config_t>()),
            (144, 8)
        );
        assert_eq!(size_of::<gaspi_dev_config_t>(), 32);
        let offsets = [
            (offset_of!(gaspi_config_t, sn_persistent), 16),
            (offset_of!(gaspi_config_t, sn_timeout), 24),
            (offset_of!(gaspi_config_t, dev_config), 32),
            (offset_of!(gaspi_config_t, network), 64),
            (offset_of!(gaspi_config_t, queue_size_max), 68),
            (offset_of!(gaspi_config_t, queue_num), 72),
            (offset_of!(gaspi_config_t, group_max), 76),
            (offset_of!(gaspi_config_t, segment_max), 80),
            (offset_of!(gaspi_config_t, transfer_size_max), 88),
            (offset_of!(gaspi_config_t, notification_num), 96),
            (offset_of!(gaspi_config_t, passive_queue_size_max), 100),
            (offset_of!(gaspi_config_t, passive_transfer_size_max), 104),
            (offset_of!(gaspi_config_t, allreduce_buf_size), 112),
            (offset_of!(gaspi_config_t, allreduce_elem_max), 120),
            (offset_of!(gaspi_config_t, rw_list_elem_max), 124),
            (offset_of!(gaspi_config_t, build_infrastructure), 128),
            (offset_of!(gaspi_config_t, user_defined), 136),
        ];
        for (ours, theirs) in offsets {
            assert_eq!(ours, theirs);
        }
    }
}
