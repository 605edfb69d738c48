//! Registered memory: its keys, and its description for peers.

use std::sync::Arc;

use unipgas_core::region::RemoteRegion;
use unipgas_core::streams::{Link, OwnPart};
use unipgas_core::{Error, Result, Rights};

use crate::connection::Connection;
use crate::net::VerbsNet;

/// Registers memory with the device. `write`: operations of this process write there.
///
/// # Safety
/// `len` bytes at `base` are valid until the result is dropped.
pub unsafe fn register(
    net: &Arc<VerbsNet>,
    base: *mut u8,
    len: usize,
    rights: Rights,
    write: bool,
) -> Result<OwnPart> {
    if len == 0 {
        return Ok(OwnPart::default());
    }
    // SAFETY:
    // - contract of this call, which is the same.
    let mr = unsafe { net.device.register(base, len, rights, write) }?;
    let mut told = mr.rkey().to_le_bytes().to_vec();
    told.push(
        net.device
            .carries_out(rights)
            .contains(Rights::ATOMIC)
            .into(),
    );
    told.extend((base.expose_provenance() as u64).to_le_bytes());
    let entered = net.operands.enter(base, len, mr.lkey().into());
    let operand = entered.ok_or_else(|| Error::Exhausted("registrations".into()))?;
    Ok(OwnPart {
        told,
        desc: operand.name,
        // The operand's name ends before the registration.
        keeps: Some(Box::new((operand, mr))),
    })
}

/// Flag beside the key: the owner's device carries out atomic operations.
const BY_DEVICE: u64 = 1 << 32;

/// Reads the owner's description: the key with [`BY_DEVICE`], and the address of the first byte. Adds the connection to the owner.
pub fn imported(link: &Link, told: &[u8]) -> Result<[u64; 3]> {
    let connection: *const Connection = Connection::of(link);
    let connection = connection.expose_provenance() as u64;
    let [key, base] = said(told)?;
    Ok([key, base, connection])
}

/// The key with [`BY_DEVICE`], and the address of the first byte.
pub(crate) fn said(told: &[u8]) -> Result<[u64; 2]> {
    if told.is_empty() {
        // An empty region.
        return Ok([0, 0]);
    }
    let (key, base) = told.split_first_chunk().ok_or(Error::StaleRegion)?;
    let (by_device, base) = base.split_first().ok_or(Error::StaleRegion)?;
    let base = base.try_into().map_err(|_| Error::StaleRegion)?;
    let key = u64::from(u32::from_le_bytes(*key)) | (u64::from(*by_device != 0) * BY_DEVICE);
    Ok([key, u64::from_le_bytes(base)])
}

/// Address and remote key of the byte at `offset` of the region.
#[inline]
pub fn far(region: &RemoteRegion, offset: usize) -> (u64, u32) {
    let [_, key, base, _] = region.parts().detail;
    (base.wrapping_add(offset as u64), key as u32)
}

/// Whether the owner's device carries out the atomic operations that devices support.
#[inline]
pub fn is_by_device(region: &RemoteRegion) -> bool {
    region.parts().detail[1] & BY_DEVICE != 0
}

/// The connection to the owner of the region.
#[inline]
pub fn connection(region: &RemoteRegion) -> &Connection {
    let at = region.parts().detail[3] as usize;
    // SAFETY:
    // - `imported` exposed this address. The region keeps the link, and the link keeps its connection.
    unsafe { &*std::ptr::with_exposed_provenance(at) }
}
