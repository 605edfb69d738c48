//! The shared memory of all UEs (`RCCE_shmalloc`): 64 MiB of UE 0, mapped by everybody, whose allocations each UE keeps account of by
//! itself.

use std::ptr::NonNull;

use once_cell::sync::OnceCell;
use parking_lot::{Mutex, Once};
use unipgas_core::{Region, RemoteRegion, Result, Rights, World};

use crate::environment::tell_on_stderr;
use crate::extents::Extents;
use crate::mpb::request;
use crate::process::Ue;

/// `RCCE_SHM_SIZE_MAX`.
pub const SHARED_LEN: usize = 64 << 20;
/// Allocations begin at multiples of this, so that they share no cache line.
const ALIGN: usize = unipgas_core::cache::LINE;
const REGION: &str = "rcce.shared";

pub(crate) struct Shared {
    extents: Mutex<Extents>,
    /// Found at the first allocation.
    memory: OnceCell<RemoteRegion>,
    _region: Option<Region>,
}

impl Shared {
    /// Before the UEs meet: UE 0 tells the others where it is.
    pub fn publish(world: &World) -> Result<Shared> {
        let engine = world.engine();
        // A network that maps nothing would hold the memory for nobody.
        let region = match world.rank() {
            0 if engine.is_mapped() => Some(engine.allocate(SHARED_LEN, Rights::FULL)?),
            _ => None,
        };
        if let Some(region) = &region {
            world.publish_region(REGION, &region.key())?;
        }
        Ok(Shared {
            extents: Mutex::new(Extents::new(SHARED_LEN)),
            memory: OnceCell::new(),
            _region: region,
        })
    }
}

impl Ue {
    /// Allocates shared memory, at the same offset at all UEs if they all allocate alike (`RCCE_shmalloc`). `None` for no bytes, if there
    /// is no room, or, with a line on stderr, where UEs cannot map each other's memory: also where only some cannot, as with several hosts.
    pub fn shmalloc(&self, size: usize) -> Option<NonNull<u8>> {
        let base = match self.shared_memory() {
            Ok(base) => base,
            Err(why) => {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| tell_on_stderr(&format!("RCCE_shmalloc: {why}")));
                return None;
            }
        };
        let len = size.checked_next_multiple_of(ALIGN)?;
        let mut extents = self.shared.extents.lock();
        let offset = extents.take(len)?;
        NonNull::new(base.as_ptr().wrapping_add(offset))
    }

    fn shared_memory(&self) -> std::result::Result<NonNull<u8>, String> {
        let not_mapped = || "the UEs of this job cannot map each other's memory".to_owned();
        // What only some UEs have is not shared, and they would wait for the others.
        if !self.world().engine().is_mapped() {
            return Err(not_mapped());
        }
        let memory = &self.shared.memory;
        let memory = memory
            .get_or_try_init(|| self.world().published_region(0, REGION))
            .map_err(|error| error.to_string())?;
        NonNull::new(memory.parts().base).ok_or_else(not_mapped)
    }

    /// Allocates as much of `size` bytes as there is, by halves (`RCCE_shmalloc_request`): the memory, and its size in bytes.
    pub fn shmalloc_request(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        request(size, |size| self.shmalloc(size))
    }

    /// Frees what [`Ue::shmalloc`] gave (`RCCE_shfree`). False, and nothing else, for other addresses.
    pub fn shfree(&self, address: *const u8) -> bool {
        let Some(memory) = self.shared.memory.get() else {
            return false;
        };
        let offset = (address as usize).wrapping_sub(memory.parts().base as usize);
        let mut extents = self.shared.extents.lock();
        extents.give_back(offset)
    }
}
