//! Registered memory: its STADDs, and its description for peers.

use std::any::Any;
use std::sync::Arc;

use unipgas_core::region::RemoteRegion;
use unipgas_core::streams::{Link, OwnPart};
use unipgas_core::{Error, Result};

use crate::conversation::TofuStream;
use crate::lanes::VcqLane;
use crate::memory::RegisteredMemory;
use crate::net::TofuNet;

/// The registration for peers, in the first VCQ.
struct Reached {
    lane: Arc<VcqLane>,
    stadd: u64,
    process: u32,
}

impl Drop for Reached {
    fn drop(&mut self) {
        if self.process == unipgas_core::process::id() {
            self.lane.deregister(self.stadd);
        }
    }
}

/// Registers memory. `reached`: peers access it. `write`: operations write there.
///
/// # Safety
/// `len` bytes at `base` are valid until the result is dropped, and valid for writes if `write` is set.
pub unsafe fn register(
    net: &Arc<TofuNet>,
    base: *mut u8,
    len: usize,
    reached: bool,
    write: bool,
) -> Result<OwnPart> {
    if len == 0 {
        return Ok(OwnPart::default());
    }
    // SAFETY:
    // - contract of this call, which is the same.
    let memory = unsafe { net.memories.enter(base, len, !write) }?;
    let desc = memory.name();
    let mut told = Vec::new();
    let keeps: Box<dyn Any + Send + Sync> = match reached {
        false => Box::new(memory),
        true => {
            let lane = net.lanes.first();
            // SAFETY:
            // - as above: `keeps` deregisters the memory at its drop.
            let stadd = unsafe { lane.register(base, len, !write, None) }?;
            told.extend(stadd.to_le_bytes());
            told.extend((base.expose_provenance() as u64).to_le_bytes());
            let reached = Reached {
                lane: lane.clone(),
                stadd,
                process: unipgas_core::process::id(),
            };
            // The operand's name ends before the registration.
            Box::new((memory, reached) as (RegisteredMemory, Reached))
        }
    };
    Ok(OwnPart {
        told,
        desc,
        keeps: Some(keeps),
    })
}

/// Reads the owner's description: STADD and address of the first byte. Adds the stream to the owner.
pub fn imported(link: &Link, told: &[u8]) -> Result<[u64; 3]> {
    let conversation: *const TofuStream = TofuStream::of(link);
    let conversation = conversation.expose_provenance() as u64;
    let [stadd, base] = said(told)?;
    Ok([stadd, base, conversation])
}

/// STADD of the first byte, and its address in the owner.
pub(crate) fn said(told: &[u8]) -> Result<[u64; 2]> {
    if told.is_empty() {
        // An empty region.
        return Ok([0, 0]);
    }
    let (stadd, base) = told.split_first_chunk().ok_or(Error::StaleRegion)?;
    let base = base.try_into().map_err(|_| Error::StaleRegion)?;
    Ok([u64::from_le_bytes(*stadd), u64::from_le_bytes(base)])
}

/// STADD of the byte at `offset` of the region.
#[inline]
pub fn far(region: &RemoteRegion, offset: usize) -> u64 {
    let [_, stadd, _, _] = region.parts().detail;
    stadd.wrapping_add(offset as u64)
}

/// The stream to the owner of the region.
#[inline]
pub fn conversation(region: &RemoteRegion) -> &TofuStream {
    let at = region.parts().detail[3] as usize;
    // SAFETY:
    // - `imported` exposed this address. The region keeps the link, and the link keeps its stream.
    unsafe { &*std::ptr::with_exposed_provenance(at) }
}

/// Address in the owner of the byte at `offset`.
#[inline]
pub fn address(region: &RemoteRegion, offset: usize) -> usize {
    let [_, _, base, _] = region.parts().detail;
    (base as usize).wrapping_add(offset)
}
