//! Memory of this process for operations, and its STADDs. A lane's VCQ registers it at first use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use unipgas_core::op::Local;
use unipgas_core::streams::{Operand, Operands};
use unipgas_core::{Error, Result};

use crate::lanes::{LANES, Lanes, VcqLane};

/// Entries of a table piece, and number of pieces: as in [`Operands`].
const PIECE: usize = 1024;
const PIECES: usize = 1024;
/// The VCQ has not registered the memory.
const UNKNOWN: u64 = u64::MAX;

type Stadds = [AtomicU64; LANES];

/// A registration.
#[derive(Clone, Copy)]
struct Registered {
    base: *mut u8,
    len: usize,
    read_only: bool,
}

// SAFETY:
// - the address is only passed on.
unsafe impl Send for Registered {}

/// All registrations of the process.
pub(crate) struct Memories {
    lanes: Arc<Lanes>,
    operands: Arc<Operands>,
    /// STADDs, by the places of operands.
    pieces: Box<[OnceLock<Box<[Stadds]>>]>,
    registered: Mutex<HashMap<u32, Registered>>,
}

/// A registration until its drop.
pub(crate) struct RegisteredMemory {
    all: Arc<Memories>,
    operand: Option<Operand>,
}

/// Place of the operand with this name.
fn place_of(name: u64) -> u32 {
    name as u32
}

impl Memories {
    /// An empty table for these lanes.
    pub fn new(lanes: &Arc<Lanes>) -> Self {
        Memories {
            lanes: lanes.clone(),
            operands: Arc::default(),
            pieces: (0..PIECES).map(|_| OnceLock::new()).collect(),
            registered: Mutex::default(),
        }
    }

    /// Registers `len` bytes at `base` for operations. Errors: [`Error::Exhausted`].
    ///
    /// # Safety
    /// The bytes are valid until the result is dropped, and valid for writes unless `read_only`.
    pub unsafe fn enter(
        self: &Arc<Self>,
        base: *mut u8,
        len: usize,
        read_only: bool,
    ) -> Result<RegisteredMemory> {
        let many = || Error::Exhausted("registrations".into());
        let operand = self.operands.enter(base, len, base.addr() as u64);
        let operand = operand.ok_or_else(many)?;
        let place = place_of(operand.name);
        let stadds = self.stadds(place).ok_or_else(many)?;
        stadds
            .iter()
            .for_each(|stadd| stadd.store(UNKNOWN, Ordering::Relaxed));
        let registered = Registered {
            base,
            len,
            read_only,
        };
        self.registered.lock().insert(place, registered);
        Ok(RegisteredMemory {
            all: self.clone(),
            operand: Some(operand),
        })
    }

    fn stadds(&self, place: u32) -> Option<&Stadds> {
        let place = place as usize;
        let piece = self.pieces.get(place / PIECE)?;
        let piece = piece.get_or_init(|| {
            let unknown = || std::array::from_fn(|_| AtomicU64::new(UNKNOWN));
            (0..PIECE).map(|_| unknown()).collect()
        });
        piece.get(place % PIECE)
    }

    /// Whether all of these bytes are registered.
    pub fn has(&self, local: Local, len: usize) -> bool {
        self.operands.find(local, len).is_some()
    }

    /// STADD of these bytes in the lane's VCQ. Errors: [`Error::NotRegistered`], and as [`VcqLane::register`].
    #[inline]
    pub fn stadd(&self, local: Local, len: usize, lane: &VcqLane) -> Result<u64> {
        let base = self.operands.find(local, len).ok_or(Error::NotRegistered)?;
        let place = place_of(local.desc);
        let known =
            self.stadds(place).ok_or(Error::NotRegistered)?[lane.number].load(Ordering::Acquire);
        let stadd = match known {
            UNKNOWN => self.register(place, base, lane)?,
            stadd => stadd,
        };
        Ok(stadd + (local.ptr.addr() as u64 - base))
    }

    #[cold]
    fn register(&self, place: u32, base: u64, lane: &VcqLane) -> Result<u64> {
        // A concurrent deregistration waits.
        let all = self.registered.lock();
        let found = all.get(&place).filter(|one| one.base.addr() as u64 == base);
        let one = found.ok_or(Error::NotRegistered)?;
        let known = &self.stadds(place).ok_or(Error::NotRegistered)?[lane.number];
        let before = known.load(Ordering::Acquire);
        if before != UNKNOWN {
            return Ok(before);
        }
        // SAFETY:
        // - contract of `Memories::enter`: the bytes are valid until `RegisteredMemory` is dropped, which deregisters them.
        let stadd = unsafe { lane.register(one.base, one.len, one.read_only, None) }?;
        known.store(stadd, Ordering::Release);
        Ok(stadd)
    }
}

impl RegisteredMemory {
    /// Name of the memory in operations.
    pub fn name(&self) -> u64 {
        self.operand.as_ref().map_or(0, |operand| operand.name)
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        let place = place_of(self.name());
        let mut registered = self.all.registered.lock();
        registered.remove(&place);
        if let Some(stadds) = self.all.stadds(place) {
            for lane in self.all.lanes.iter() {
                let stadd = stadds[lane.number].swap(UNKNOWN, Ordering::AcqRel);
                if stadd != UNKNOWN {
                    lane.deregister(stadd);
                }
            }
        }
        // Last, because it frees the place for reuse.
        drop(self.operand.take());
    }
}
