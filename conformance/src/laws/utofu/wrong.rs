//! Wrong arguments for many functions.

use super::circuit::NULL;
use super::kit::*;

pub(super) const TOO_LONG: usize = 1 << 24;

/// Flag bits without meaning.
pub(super) fn unassigned() -> impl Iterator<Item = u64> {
    [4, 6, 7, 9, 10, 11, 12, 13]
        .into_iter()
        .chain(16..24)
        .chain(36..64)
        .map(|bit| 1u64 << bit)
}

/// Numbers that are not VCQ IDs.
pub(super) fn wrong_vcq_ids(right: u64) -> Vec<u64> {
    vec![
        0,
        1,
        u64::MAX,
        NULL,
        0x5a5a_5a5a_5a5a_5a5a,
        // A TNI and a CQ that no node has.
        right | 7 << 7,
        right | 15 << 3,
        right ^ 1 << 50,
        right ^ 1 << 63,
        // Coordinates outside of the network.
        right | 0xff << 26,
        right | 0xff << 10,
    ]
}

pub(super) fn wrong_handles(freed: usize) -> [usize; 7] {
    [
        0,
        1,
        0x5a5a_5a5a,
        usize::MAX,
        freed,
        freed ^ 1 << 20,
        0xffff,
    ]
}

/// The handle of a freed VCQ.
pub(super) fn freed() -> Result<usize, String> {
    let queue = Queue::with_component(TNI, 7, 0)?;
    queue.free()?;
    Ok(queue.hdl)
}
