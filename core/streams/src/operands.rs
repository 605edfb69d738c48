//! Registered memory of this process, for networks that need its name: names in operations, and the network's names.
//!
//! Networks trust the name that they get. So an ended registration has no name here.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use unipgas_engine::op::Local;

/// Places in a piece of the table.
const PIECE: usize = 1024;
/// Maximum of pieces.
const PIECES: usize = 1024;

#[derive(Default)]
struct Place {
    /// Odd: there is a registration.
    generation: AtomicU32,
    base: AtomicUsize,
    len: AtomicUsize,
    network: AtomicU64,
}

/// All registrations. A lookup takes no lock.
pub struct Operands {
    pieces: Box<[OnceLock<Box<[Place]>>]>,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    places: Vec<u32>,
    /// Places from here on are unused.
    fresh: u32,
}

/// A registration. Its drop ends it.
pub struct Operand {
    all: Arc<Operands>,
    place: u32,
    /// Name in operations: not 0, and unique.
    pub name: u64,
}

impl Default for Operands {
    fn default() -> Self {
        Operands {
            pieces: (0..PIECES).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
        }
    }
}

impl Operands {
    fn place(&self, number: u32) -> Option<&Place> {
        let piece = self.pieces.get(number as usize / PIECE)?.get()?;
        piece.get(number as usize % PIECE)
    }

    /// Registers `len` bytes at `base`, with the network's name `network`. `None`: the table is full.
    pub fn enter(self: &Arc<Self>, base: *mut u8, len: usize, network: u64) -> Option<Operand> {
        let number = {
            let mut free = self.free.lock();
            let fresh = free.fresh;
            let number = free.places.pop().unwrap_or(fresh);
            let piece = self.pieces.get(number as usize / PIECE)?;
            piece.get_or_init(|| (0..PIECE).map(|_| Place::default()).collect());
            free.fresh += u32::from(number == fresh);
            number
        };
        let place = self.place(number)?;
        place.base.store(base.addr(), Ordering::Relaxed);
        place.len.store(len, Ordering::Relaxed);
        place.network.store(network, Ordering::Relaxed);
        let generation = place
            .generation
            .fetch_add(1, Ordering::Release)
            .wrapping_add(1);
        Some(Operand {
            all: self.clone(),
            place: number,
            name: u64::from(generation) << 32 | u64::from(number),
        })
    }

    /// The network's name. `None`: not all bytes are registered.
    pub fn find(&self, local: Local, len: usize) -> Option<u64> {
        let place = self.place(local.desc as u32)?;
        let generation = place.generation.load(Ordering::Acquire);
        if generation.is_multiple_of(2) || u64::from(generation) != local.desc >> 32 {
            return None;
        }
        let at = local
            .ptr
            .addr()
            .checked_sub(place.base.load(Ordering::Relaxed))?;
        let end = at.checked_add(len)?;
        (end <= place.len.load(Ordering::Relaxed)).then(|| place.network.load(Ordering::Relaxed))
    }
}

impl Drop for Operand {
    fn drop(&mut self) {
        if let Some(place) = self.all.place(self.place) {
            place.generation.fetch_add(1, Ordering::Release);
            place.network.store(0, Ordering::Relaxed);
        }
        self.all.free.lock().places.push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_as_long_as_it_is_there() {
        let all = Arc::new(Operands::default());
        let mut memory = vec![0u8; 100];
        let base = memory.as_mut_ptr();
        let desc = |nth: u64| 8 * nth;
        let find = |name, at: usize, len| {
            let ptr = base.wrapping_add(at);
            all.find(Local { ptr, desc: name }, len)
        };
        let many: Vec<_> = (1..3000)
            .map(|nth| all.enter(base.wrapping_add(10), 80, desc(nth)).unwrap())
            .collect();
        for (nth, one) in (1..).zip(&many) {
            assert_eq!(find(one.name, 10, 80), Some(desc(nth)));
        }
        let name = many[7].name;
        for (at, len) in [(10, 0), (90, 0), (89, 1)] {
            assert_eq!(find(name, at, len), Some(desc(8)));
        }
        for (at, len) in [(9, 1), (10, 81), (90, 1), (50, usize::MAX)] {
            assert_eq!(find(name, at, len), None);
        }
        drop(many);
        assert_eq!(find(name, 10, 1), None);
        let again: Vec<_> = (1..3000)
            .map(|nth| all.enter(base, 100, desc(nth)).unwrap())
            .collect();
        assert!(again.iter().all(|one| one.name != name));
        for nobody in [0, 1, u64::MAX, 5 << 32, 1 << 32 | 4000] {
            assert_eq!(find(nobody, 10, 1), None);
        }
    }
}
