//! The shared memory of all UEs (`RCCE_shmalloc`): 64 MiB of UE 0, mapped by everybody, whose allocations each UE keeps account of by
//! itself.

use std::ptr::NonNull;

use parking_lot::{Mutex, Once};
use unipgas_core::{Region, RemoteRegion, Result, Rights, World};

use crate::environment::tell_on_stderr;
use crate::extents::Extents;
use crate::mpb::request;
use crate::process::Ue;

/// `RCCE_SHM_SIZE_MAX`.
pub const SHARED_LEN: usize = 64 << 20;
/// Allocations begin at multiples of this, so that they share no cache line.
const ALIGN: usize = 64;
const REGION: &str = "rcce.shared";

/// UE 0's region before the others are known.
pub(crate) struct Published(Option<Region>);

pub(crate) struct Shared {
    extents: Mutex<Extents>,
    memory: RemoteRegion,
    _region: Option<Region>,
}

impl Shared {
    pub fn publish(world: &World) -> Result<Published> {
        if world.rank() != 0 {
            return Ok(Published(None));
        }
        let region = world.engine().allocate(SHARED_LEN, Rights::FULL)?;
        world.publish_region(REGION, &region.key())?;
        Ok(Published(Some(region)))
    }
}

impl Published {
    pub fn attach(self, world: &World) -> Result<Shared> {
        Ok(Shared {
            extents: Mutex::new(Extents::new(SHARED_LEN)),
            memory: world.published_region(0, REGION)?,
            _region: self.0,
        })
    }
}

impl Ue {
    /// Allocates shared memory, at the same offset at all UEs if they all allocate alike (`RCCE_shmalloc`). `None` for no bytes, if there
    /// is no room, or, with a line on stderr, where the memory of another process cannot be mapped.
    pub fn shmalloc(&self, size: usize) -> Option<NonNull<u8>> {
        let base = NonNull::new(self.shared.memory.parts().base);
        let Some(base) = base else {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tell_on_stderr(
                    "RCCE_shmalloc: this backend does not map the memory of other processes",
                );
            });
            return None;
        };
        let len = size.checked_next_multiple_of(ALIGN)?;
        let mut extents = self.shared.extents.lock();
        let offset = extents.take(len)?;
        NonNull::new(base.as_ptr().wrapping_add(offset))
    }

    /// Allocates as much of `size` bytes as there is, by halves (`RCCE_shmalloc_request`): the memory, and its size in bytes.
    pub fn shmalloc_request(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        request(size, |size| self.shmalloc(size))
    }

    /// Frees what [`Ue::shmalloc`] gave (`RCCE_shfree`). False, and nothing else, for other addresses.
    pub fn shfree(&self, address: *const u8) -> bool {
        let offset = (address as usize).wrapping_sub(self.shared.memory.parts().base as usize);
        let mut extents = self.shared.extents.lock();
        extents.give_back(offset)
    }
}
