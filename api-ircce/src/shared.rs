//! The shared memory of all UEs (`RCCE_shmalloc`): 64 MiB of UE 0. All UEs must be on one host. Each UE has its own table of allocations.

use std::ptr::NonNull;

use parking_lot::{Mutex, Once};
use unipgas_core::host_memory::{HostFile, HostMemory};
use unipgas_core::{Result, World};

use crate::environment::tell_on_stderr;
use crate::extents::Extents;
use crate::mpb::request;
use crate::process::Ue;

/// `RCCE_SHM_SIZE_MAX`: size of the shared memory in bytes.
pub const SHARED_LEN: usize = 64 << 20;
/// Alignment of allocations, so that two allocations share no cache line.
const ALIGN: usize = unipgas_core::cache::LINE;
const NAME: &str = "rcce.shared";

/// The shared memory at this UE.
enum Memory {
    /// Not mapped yet.
    Offered,
    Mapped(HostMemory),
    /// The program's own (`RCCE_shmalloc_init`).
    Own(NonNull<u8>),
}

// SAFETY:
// - the library does not dereference the address of the program's memory. It only returns it to the program.
unsafe impl Send for Memory {}

struct Account {
    extents: Extents,
    memory: Memory,
}

pub(crate) struct Shared {
    account: Mutex<Account>,
    low: bool,
    _file: Option<HostFile>,
}

impl Shared {
    /// UE 0 publishes the memory. Call it before the first barrier of the UEs. `low`: UEs map it below 4 GiB.
    pub fn publish(world: &World, low: bool) -> Result<Shared> {
        let offers = world.rank() == 0 && world.is_on_one_host();
        let file = offers.then(|| world.offer_host_memory(NAME, SHARED_LEN));
        Ok(Shared {
            account: Mutex::new(Account {
                extents: Extents::new(SHARED_LEN),
                memory: Memory::Offered,
            }),
            low,
            _file: file.transpose()?,
        })
    }
}

impl Account {
    fn base(&self) -> Option<NonNull<u8>> {
        match &self.memory {
            Memory::Offered => None,
            Memory::Mapped(memory) => Some(memory.base()),
            Memory::Own(base) => Some(*base),
        }
    }
}

impl Ue {
    /// Allocates shared memory (`RCCE_shmalloc`). If all UEs allocate in the same order, they get the same offset. `None` for a size of 0, if there is no
    /// room, or if the memory cannot be mapped. A failure to map produces one line on stderr at each UE; if the UEs are on several hosts, at UE 0 only.
    pub fn shmalloc(&self, size: usize) -> Option<NonNull<u8>> {
        let mut account = self.shared.account.lock();
        if account.base().is_none() {
            match self.shared_memory() {
                Ok(memory) => account.memory = Memory::Mapped(memory),
                Err(why) => {
                    static TOLD: Once = Once::new();
                    // On several hosts the call fails at each UE, so one line for the job is enough.
                    let tells = self.id() == 0 || self.world().is_on_one_host();
                    TOLD.call_once(|| {
                        if tells {
                            tell_on_stderr(&format!("RCCE_shmalloc: {why}"));
                        }
                    });
                    return None;
                }
            }
        }
        let base = account.base()?;
        let offset = account
            .extents
            .take(size.checked_next_multiple_of(ALIGN)?)?;
        NonNull::new(base.as_ptr().wrapping_add(offset))
    }

    fn shared_memory(&self) -> std::result::Result<HostMemory, String> {
        if !self.world().is_on_one_host() {
            return Err("the UEs of this job are on several hosts, which share no memory".into());
        }
        let memory = self
            .world()
            .host_memory(0, NAME, SHARED_LEN, self.shared.low);
        memory.map_err(|error| error.to_string())
    }

    /// Later allocations use these bytes, which the program has mapped at all UEs (`RCCE_shmalloc_init`).
    pub fn shmalloc_from(&self, base: NonNull<u8>, len: usize) {
        *self.shared.account.lock() = Account {
            extents: Extents::new(len / ALIGN * ALIGN),
            memory: Memory::Own(base),
        };
    }

    /// Allocates `size` bytes, and halves the size until there is room (`RCCE_shmalloc_request`). Returns the memory and its size in bytes.
    pub fn shmalloc_request(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        request(size, |size| self.shmalloc(size))
    }

    /// Frees memory of [`Ue::shmalloc`] (`RCCE_shfree`). False: the address is not allocated.
    pub fn shfree(&self, address: *const u8) -> bool {
        let mut account = self.shared.account.lock();
        let Some(base) = account.base() else {
            return false;
        };
        let offset = address.addr().wrapping_sub(base.addr().get());
        account.extents.give_back(offset)
    }
}
