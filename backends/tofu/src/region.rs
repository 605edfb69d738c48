//! Registered memory: what VCQs know of it, and what peers are told.

use std::any::Any;
use std::sync::Arc;

use unipgas_core::region::RemoteRegion;
use unipgas_core::streams::{Link, OwnPart};
use unipgas_core::{Error, Result};

use crate::conversation::Conversation;
use crate::lanes::Lane;
use crate::memory::Memory;
use crate::net::Net;

/// What peers may reach, by the first VCQ.
struct Reached {
    lane: Arc<Lane>,
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

/// Registers memory. `reached`: by peers; `write`: operations write there.
///
/// # Safety
/// `len` bytes at `base` are valid until what this gives is dropped, for writes, too, if they may be.
pub unsafe fn register(
    net: &Arc<Net>,
    base: *mut u8,
    len: usize,
    reached: bool,
    write: bool,
) -> Result<OwnPart> {
    if len == 0 {
        return Ok(OwnPart::default());
    }
    // SAFETY:
    // - the caller's word.
    let memory = unsafe { net.memories.enter(base, len, !write) }?;
    let desc = memory.name();
    let mut told = Vec::new();
    let keeps: Box<dyn Any + Send + Sync> = match reached {
        false => Box::new(memory),
        true => {
            let lane = net.lanes.first();
            // SAFETY:
            // - the caller's word.
            let stadd = unsafe { lane.register(base, len, !write, None) }?;
            told.extend(stadd.to_le_bytes());
            told.extend((base.expose_provenance() as u64).to_le_bytes());
            let reached = Reached {
                lane: lane.clone(),
                stadd,
                process: unipgas_core::process::id(),
            };
            // The name ends before the registration.
            Box::new((memory, reached) as (Memory, Reached))
        }
    };
    Ok(OwnPart {
        told,
        desc,
        keeps: Some(keeps),
    })
}

/// What its owner has told: where it begins, as Tofu and as the owner calls that; and the stream to him.
pub fn imported(link: &Link, told: &[u8]) -> Result<[u64; 3]> {
    let conversation: *const Conversation = Conversation::of(link);
    let conversation = conversation.expose_provenance() as u64;
    let [stadd, base] = said(told)?;
    Ok([stadd, base, conversation])
}

/// Where the memory begins, as Tofu and as its owner calls that.
pub(crate) fn said(told: &[u8]) -> Result<[u64; 2]> {
    if told.is_empty() {
        // Nothing is there to be read or written.
        return Ok([0, 0]);
    }
    let (stadd, base) = told.split_first_chunk().ok_or(Error::StaleRegion)?;
    let base = base.try_into().map_err(|_| Error::StaleRegion)?;
    Ok([u64::from_le_bytes(*stadd), u64::from_le_bytes(base)])
}

/// The STADD of what lies at `offset` of the region.
#[inline]
pub fn far(region: &RemoteRegion, offset: usize) -> u64 {
    let [_, stadd, _, _] = region.parts().detail;
    stadd.wrapping_add(offset as u64)
}

/// The stream to its owner.
#[inline]
pub fn conversation(region: &RemoteRegion) -> &Conversation {
    let at = region.parts().detail[3] as usize;
    // SAFETY:
    // - put there by `imported`; the region keeps the link, and that its stream.
    unsafe { &*std::ptr::with_exposed_provenance(at) }
}

/// The address of what lies there, in its owner's process.
#[inline]
pub fn address(region: &RemoteRegion, offset: usize) -> usize {
    let [_, _, base, _] = region.parts().detail;
    (base as usize).wrapping_add(offset)
}
