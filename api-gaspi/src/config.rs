//! The configuration (GASPI 17.1 §5.2), in the binary layout of release 1.6.

use unipgas_gaspi_sys::{gaspi_config_t, gaspi_dev_config_t};

use crate::status::{Result, Status};

/// `gaspi_config_t`. Reads return all fields as the program set them, also fields that no backend uses.
pub type Config = gaspi_config_t;
/// `gaspi_dev_config_t`.
pub type DeviceConfig = gaspi_dev_config_t;

/// Most queues of a process (`gaspi_queue_max`).
pub const QUEUE_MAX: u32 = 16;
/// Most requests of a queue.
pub const QUEUE_SIZE_MAX: u32 = 4096;
/// Most segments of a process.
pub const SEGMENT_MAX: u32 = 255;
/// Most groups of a process: a group name has 8 bits.
pub const GROUP_MAX: u32 = 255;
/// Largest transfer in bytes.
pub const TRANSFER_SIZE_MAX: u64 = 1 << 30;
/// Most notifications of a segment. Only used notifications take memory.
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

/// Checks that each proposed value is possible. unipgas overrules no proposal, although §5.2.1 allows that. Errors: [`Status::ErrConfig`],
/// [`Status::ErrSnPort`].
pub fn check(config: &Config) -> Result<()> {
    if !(1024..=65_536).contains(&config.sn_port) {
        return Err(Status::ErrSnPort);
    }
    let possible = (1..=QUEUE_SIZE_MAX).contains(&config.queue_size_max)
        && (1..=QUEUE_MAX).contains(&config.queue_num)
        && (1..=GROUP_MAX).contains(&config.group_max)
        && (1..=SEGMENT_MAX).contains(&config.segment_max)
        && config.notification_num <= NOTIFICATION_MAX
        && config.allreduce_buf_size <= ALLREDUCE_BUF_MAX
        && (1..=RW_LIST_ELEM_MAX).contains(&config.rw_list_elem_max)
        && config.transfer_size_max <= TRANSFER_SIZE_MAX
        && config.passive_transfer_size_max <= PASSIVE_TRANSFER_SIZE_MAX
        && config.network <= NETWORK_LAST
        && config.build_infrastructure <= TOPOLOGY_LAST;
    if possible {
        Ok(())
    } else {
        Err(Status::ErrConfig)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_has_its_own_code() {
        let config = Config {
            sn_port: 80,
            ..Config::default()
        };
        assert_eq!(check(&config), Err(Status::ErrSnPort));
    }
}
