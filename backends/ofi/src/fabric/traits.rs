//! Properties of a provider.

use unipgas_libfabric_sys::*;

use crate::choice::ProviderInfo;

/// Properties of a provider.
#[derive(Debug, Clone)]
pub(crate) struct Traits {
    /// The provider's name.
    pub provider: String,
    /// Maximum number of bytes that a call copies.
    pub inject: usize,
    /// Maximum length of a transfer.
    pub longest: usize,
    /// Maximum number of operations in flight.
    pub depth: usize,
    /// Bytes of the data that a write carries to the target's completion queue.
    pub data: usize,
    /// Operands need a registration.
    pub local: bool,
    /// Accesses use the address at the target. False: they use the offset in the registration.
    pub addresses: bool,
    /// Bits of a key that this process chooses.
    pub key_bits: u32,
    /// The provider chooses keys.
    pub own_keys: bool,
    /// Registrations belong to an endpoint.
    pub by_endpoint: bool,
    /// A message arrives after earlier writes, and their bytes are visible then.
    pub send_after_write: bool,
    /// Writes of any length take effect in order.
    pub write_after_write: bool,
    /// A read of any length sees earlier writes.
    pub read_after_write: bool,
    /// Writes may be unsignaled: a later signaled write confirms them.
    pub gathers: bool,
    /// Writes with data use up a receive buffer.
    pub data_takes_buffer: bool,
}

impl Traits {
    pub(super) fn of(info: &ProviderInfo) -> Self {
        let (tx, rx) = (info.tx_attr(), info.rx_attr());
        let (ep, domain) = (info.ep_attr(), info.domain_attr());
        let order = tx.msg_order & rx.msg_order;
        let mode = |bit: i32| domain.mr_mode & bit != 0 || domain.mr_mode == FI_MR_BASIC;
        let whole = |most: usize| most >= ep.max_msg_size;
        let send_after_write = order & FI_ORDER_SAW != 0;
        let write_after_write = order & FI_ORDER_WAW != 0 && whole(ep.max_order_waw_size);
        let read_after_write = order & FI_ORDER_RAW != 0 && whole(ep.max_order_raw_size);
        Traits {
            provider: info.provider(),
            inject: tx.inject_size,
            longest: ep.max_msg_size,
            depth: tx.size.max(1),
            data: domain.cq_data_size,
            local: domain.mr_mode & FI_MR_LOCAL != 0,
            addresses: mode(FI_MR_VIRT_ADDR),
            key_bits: 8 * domain.mr_key_size.clamp(1, 8) as u32,
            own_keys: mode(FI_MR_PROV_KEY),
            by_endpoint: domain.mr_mode & FI_MR_ENDPOINT != 0,
            send_after_write,
            write_after_write,
            read_after_write,
            // Operations with provider memory in their context must be signaled: their completion frees it.
            gathers: write_after_write
                && read_after_write
                && send_after_write
                && tx.inject_size >= size_of::<u64>()
                && (info.raw().mode | tx.mode) & (FI_CONTEXT | FI_CONTEXT2) == 0,
            data_takes_buffer: (info.raw().mode | rx.mode) & FI_RX_CQ_DATA != 0,
        }
    }
}
