//! The configuration (GASPI 17.1 §5.2), in the binary layout of release 1.6.

use crate::status::{Result, Status};

/// `gaspi_config_t`: 144 bytes. Fields that no backend of unipgas uses are kept and read back.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Config {
    pub logger: u32,
    pub sn_port: u32,
    pub net_info: u32,
    pub user_net: u32,
    pub sn_persistent: i32,
    pub sn_timeout: u64,
    pub dev_config: DeviceConfig,
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
    pub user_defined: *mut std::ffi::c_void,
}

// SAFETY:
// - `user_defined` is a value that the program gave and gets back; nobody here follows it.
unsafe impl Send for Config {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Config {}

/// `gaspi_dev_config_t`: 32 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct DeviceConfig {
    pub network_type: u32,
    pub netdev_id: i32,
    pub mtu: u32,
    pub port_check: u32,
    pub tcp_port: u32,
    pub use_shm: u32,
    pub provider_info: u32,
    pub progress_auto: u32,
}

/// Most queues that a process may have (`gaspi_queue_max`).
pub const QUEUE_MAX: u32 = 16;
/// Most requests of a queue.
pub const QUEUE_SIZE_MAX: u32 = 4096;
/// Most segments of a process.
pub const SEGMENT_MAX: u32 = 255;
/// Most groups of a process: each has a name of 8 bits.
pub const GROUP_MAX: u32 = 255;
/// Largest transfer in bytes.
pub const TRANSFER_SIZE_MAX: u64 = 1 << 30;
/// Most notifications of a segment. They take memory where they are used.
pub const NOTIFICATION_MAX: u32 = 1 << 24;
/// Largest passive transfer in bytes.
pub const PASSIVE_TRANSFER_SIZE_MAX: u32 = 65_535;
/// Most bytes of the buffer of `gaspi_allreduce_user`.
pub const ALLREDUCE_BUF_MAX: u64 = 2040;
/// Most elements of a list operation.
pub const RW_LIST_ELEM_MAX: u32 = 255;
/// `GASPI_OFI`, the last network.
const NETWORK_LAST: u32 = 5;
/// `GASPI_TOPOLOGY_DYNAMIC`, the last way to build connections.
const TOPOLOGY_LAST: u32 = 2;

impl Default for Config {
    fn default() -> Self {
        Config {
            logger: 1,
            sn_port: 12121,
            net_info: 0,
            user_net: 0,
            sn_persistent: 1,
            sn_timeout: 30_000,
            dev_config: DeviceConfig {
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
            segment_max: SEGMENT_MAX,
            transfer_size_max: TRANSFER_SIZE_MAX,
            notification_num: 65_536,
            passive_queue_size_max: 1024,
            passive_transfer_size_max: PASSIVE_TRANSFER_SIZE_MAX,
            allreduce_buf_size: ALLREDUCE_BUF_MAX,
            allreduce_elem_max: 255,
            rw_list_elem_max: RW_LIST_ELEM_MAX,
            build_infrastructure: 1,
            user_defined: std::ptr::null_mut(),
        }
    }
}

impl Config {
    /// Whether all that a program proposes can be had: no proposal is overruled, which §5.2.1 would allow. Errors: [`Status::ErrConfig`],
    /// [`Status::ErrSnPort`].
    pub fn check(&self) -> Result<()> {
        if !(1024..=65_536).contains(&self.sn_port) {
            return Err(Status::ErrSnPort);
        }
        let possible = (1..=QUEUE_SIZE_MAX).contains(&self.queue_size_max)
            && (1..=QUEUE_MAX).contains(&self.queue_num)
            && (1..=GROUP_MAX).contains(&self.group_max)
            && (1..=SEGMENT_MAX).contains(&self.segment_max)
            && self.notification_num <= NOTIFICATION_MAX
            && self.allreduce_buf_size <= ALLREDUCE_BUF_MAX
            && (1..=RW_LIST_ELEM_MAX).contains(&self.rw_list_elem_max)
            && self.transfer_size_max <= TRANSFER_SIZE_MAX
            && self.passive_transfer_size_max <= PASSIVE_TRANSFER_SIZE_MAX
            && self.network <= NETWORK_LAST
            && self.build_infrastructure <= TOPOLOGY_LAST;
        if possible {
            Ok(())
        } else {
            Err(Status::ErrConfig)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn layout_is_that_of_release_1_6() {
        assert_eq!((size_of::<Config>(), align_of::<Config>()), (144, 8));
        assert_eq!(size_of::<DeviceConfig>(), 32);
        let offsets = [
            (offset_of!(Config, sn_persistent), 16),
            (offset_of!(Config, sn_timeout), 24),
            (offset_of!(Config, dev_config), 32),
            (offset_of!(Config, network), 64),
            (offset_of!(Config, queue_size_max), 68),
            (offset_of!(Config, queue_num), 72),
            (offset_of!(Config, group_max), 76),
            (offset_of!(Config, segment_max), 80),
            (offset_of!(Config, transfer_size_max), 88),
            (offset_of!(Config, notification_num), 96),
            (offset_of!(Config, passive_queue_size_max), 100),
            (offset_of!(Config, passive_transfer_size_max), 104),
            (offset_of!(Config, allreduce_buf_size), 112),
            (offset_of!(Config, allreduce_elem_max), 120),
            (offset_of!(Config, rw_list_elem_max), 124),
            (offset_of!(Config, build_infrastructure), 128),
            (offset_of!(Config, user_defined), 136),
        ];
        for (ours, theirs) in offsets {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        assert!(Config::default().check().is_ok());
        let wrong = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert_eq!(wrong(|c| c.sn_port = 80), Status::ErrSnPort);
        assert_eq!(wrong(|c| c.queue_num = 0), Status::ErrConfig);
        assert_eq!(wrong(|c| c.queue_num = 17), Status::ErrConfig);
        assert_eq!(wrong(|c| c.queue_size_max = 4097), Status::ErrConfig);
        assert_eq!(wrong(|c| c.segment_max = 0), Status::ErrConfig);
        assert_eq!(wrong(|c| c.transfer_size_max = 1 << 31), Status::ErrConfig);
        assert_eq!(wrong(|c| c.network = 9), Status::ErrConfig);
        assert_eq!(wrong(|c| c.group_max = 256), Status::ErrConfig);
        assert_eq!(wrong(|c| c.group_max = 0), Status::ErrConfig);
        assert_eq!(wrong(|c| c.notification_num = 1 << 25), Status::ErrConfig);
        assert_eq!(wrong(|c| c.allreduce_buf_size = 2041), Status::ErrConfig);
    }
}
