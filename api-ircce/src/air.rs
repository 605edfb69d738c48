//! Atomic increment registers (AIRs, manual §4.5): 96 counters at UE 0. [`Ue::air_barrier`] uses the first two (§5.3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use once_cell::sync::OnceCell;
use unipgas_core::World;
use unipgas_core::central::{BarrierPlaces, CentralBarrier};
use unipgas_core::published::PublishedRegions;

use crate::process::Ue;
use crate::status::{ErrorCode, Failure, Result};

/// Two sets of 48.
pub const REGISTERS: usize = 96;
/// Registers reserved for the barrier.
const OF_BARRIER: usize = 2;
/// Offset of the first register. Each register has its own cache line.
const FIRST: usize = 1024;
const STRIDE: usize = unipgas_core::cache::LINE;
/// Offset of the word for the barrier's notices, at each UE.
pub(crate) const NOTICE: usize = 256;
/// Offset of the end of the registers.
pub(crate) const END: usize = FIRST + REGISTERS * STRIDE;

/// `iRCCE_AIR`: the address of the register in this process, or null pointers if it is not mapped. Programs pass the address of this structure.
pub(crate) type Air = unipgas_ircce_sys::iRCCE_AIR;

/// The number of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Register(u8);

/// The handles, created at the first use; the number of allocated registers; the barrier.
pub(crate) struct Registers {
    handles: OnceCell<Box<[Air]>>,
    given: AtomicUsize,
    pub barrier: CentralBarrier,
}

const fn offset(nth: usize) -> usize {
    FIRST + nth * STRIDE
}

impl Registers {
    pub fn new(world: &Arc<World>, peers: &Arc<PublishedRegions>) -> Result<Self> {
        let places = BarrierPlaces {
            home: 0,
            counters: [offset(0), offset(1)],
            notice: NOTICE,
        };
        Ok(Registers {
            handles: OnceCell::new(),
            given: AtomicUsize::new(OF_BARRIER),
            barrier: CentralBarrier::new(world, peers.clone(), places)?,
        })
    }
}

impl Ue {
    /// Allocates the next register (`iRCCE_atomic_alloc`). All UEs allocate in the same order. The initial value is 0. `None` after 94 registers: two of the
    /// 96 belong to [`Ue::air_barrier`].
    pub fn atomic_alloc(&self) -> Option<Register> {
        let given = &self.registers.given;
        given
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < REGISTERS).then_some(n + 1)
            })
            .ok()
            .map(|n| Register(n as u8))
    }

    /// Adds 1 and returns the previous value (`iRCCE_atomic_inc`).
    #[inline]
    pub fn atomic_inc(&self, register: Register) -> Result<i32> {
        // Programs build spin locks from this call, so it counts as a poll.
        self.looked_if_crowded()?;
        self.accessed(4)?;
        let at = self.control(0, offset(register.0.into()))?;
        // The upper half of the word takes the carries and is ignored.
        self.endpoint
            .fetch_add(self.world().engine(), at, 1)
            .map(|before| before as i32)
            .map_err(|error| self.blame(0, error))
    }

    /// Reads the value (`iRCCE_atomic_read`).
    #[inline]
    pub fn atomic_read(&self, register: Register) -> Result<i32> {
        self.looked()?;
        self.endpoint.count(4);
        let at = self.control(0, offset(register.0.into()))?;
        self.endpoint
            .load(self.world().engine(), at)
            .map(|value| value as i32)
            .map_err(|error| self.blame(0, error))
    }

    /// Sets the value (`iRCCE_atomic_write`).
    pub fn atomic_write(&self, register: Register, value: i32) -> Result<()> {
        self.accessed(4)?;
        let at = self.control(0, offset(register.0.into()))?;
        let engine = self.world().engine();
        let mut known = 0;
        loop {
            let found = self
                .endpoint
                .compare_swap(engine, at, known, u64::from(value as u32))
                .map_err(|error| self.blame(0, error))?;
            if found == known {
                return Ok(());
            }
            known = found;
        }
    }

    /// The C handle of a register. Errors: [`Failure::Engine`] if UE 0, the owner of the registers, has died or left.
    pub(crate) fn handle(&self, register: Register) -> Result<*const Air> {
        let handles = self.registers.handles.get_or_try_init(|| {
            let base = self.peer(0)?.parts().base;
            let handle = |nth| {
                let place = match base.is_null() {
                    true => base,
                    false => base.wrapping_add(offset(nth)),
                };
                Air {
                    counter: place.cast(),
                    init: place.cast(),
                }
            };
            Ok::<_, Failure>((0..REGISTERS).map(handle).collect())
        })?;
        Ok(&raw const handles[usize::from(register.0)])
    }

    /// The register of a handle. Programs may also use the barrier's handles. Errors: [`ErrorCode::General`] if the register is not allocated.
    #[inline]
    pub(crate) fn register(&self, handle: *const Air) -> Result<Register> {
        let handles = self.registers.handles.get().ok_or(ErrorCode::General)?;
        let offset = (handle as usize).wrapping_sub(handles.as_ptr() as usize);
        let number = offset / size_of::<Air>();
        let known = offset.is_multiple_of(size_of::<Air>())
            && number < self.registers.given.load(Ordering::Relaxed);
        if known {
            Ok(Register(number as u8))
        } else {
            Err(Failure::Code(ErrorCode::General))
        }
    }
}
