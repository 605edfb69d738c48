//! Numbers for peers that have no ranks: whoever talks to a process first enters itself in that process's table, or is entered there by
//! the owner. A peer is known by a 64-bit id, and both find the same number for it, whoever comes first.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Engine;
use crate::op::Remote;
use crate::port::Service;
use crate::region::{Region, RemoteRegion, Rights};
use crate::{Error, Result};

/// Bytes of a peer's name.
pub const NAME_LEN: usize = 64;

/// A number: whose it is (0: nobody's), and how its owner is reached.
#[repr(C)]
struct Entry {
    id: u64,
    /// Not 0: the name is there.
    named: u64,
    name: [u64; NAME_LEN / 8],
}

const fn offset(number: usize) -> usize {
    number * size_of::<Entry>()
}

fn exhausted(numbers: usize) -> Error {
    Error::Exhausted(format!("numbers for peers (a process has {numbers})"))
}

/// The own table.
pub struct Lanes {
    region: Region,
    numbers: usize,
}

impl Lanes {
    /// Errors: those of [`Engine::allocate`].
    pub fn new(engine: &Engine, numbers: usize) -> Result<Self> {
        Ok(Lanes {
            region: engine.allocate(offset(numbers), Rights::FULL)?,
            numbers,
        })
    }

    /// The memory, whose key peers need.
    pub fn region(&self) -> &Region {
        &self.region
    }

    fn word(&self, at: usize) -> Result<&AtomicU64> {
        let local = self.region.local(at, 8)?;
        // SAFETY:
        // - in bounds; the region is page-aligned and entries consist of whole words; lives as long as self; atomics only.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }

    /// The number of the peer with this id and name. Errors: [`Error::Exhausted`].
    pub fn number(&self, id: u64, name: &[u8; NAME_LEN]) -> Result<u32> {
        for nth in 0..self.numbers {
            let at = offset((id as usize).wrapping_add(nth) % self.numbers);
            let whose = self.word(at)?;
            let taken = whose.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire);
            if let Err(other) = taken
                && other != id
            {
                continue;
            }
            for (nth, word) in name.chunks_exact(8).enumerate() {
                // If the peer does so too, it writes the same.
                let value = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
                self.word(at + offset_of!(Entry, name) + nth * 8)?
                    .store(value, Ordering::Relaxed);
            }
            self.word(at + offset_of!(Entry, named))?
                .store(1, Ordering::Release);
            return Ok((at / size_of::<Entry>()) as u32);
        }
        Err(exhausted(self.numbers))
    }

    /// The name of the peer that has `number`. Errors: [`Error::StaleRegion`] if nobody has.
    pub fn name(&self, number: u32) -> Result<[u8; NAME_LEN]> {
        let at = offset(number as usize);
        if self
            .word(at + offset_of!(Entry, named))?
            .load(Ordering::Acquire)
            == 0
        {
            return Err(Error::StaleRegion);
        }
        let mut name = [0; NAME_LEN];
        for (nth, word) in name.chunks_exact_mut(8).enumerate() {
            let value = self
                .word(at + offset_of!(Entry, name) + nth * 8)?
                .load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        Ok(name)
    }
}

/// The number of the process with `id` and `name` in the table of another one. Errors: [`Error::Exhausted`], and what keeps the
/// table from being reached.
pub fn number_there(
    engine: &Engine,
    service: &Service,
    table: &RemoteRegion,
    id: u64,
    name: &[u8; NAME_LEN],
) -> Result<u32> {
    let numbers = table.len() / size_of::<Entry>();
    for nth in 0..numbers {
        let number = (id as usize).wrapping_add(nth) % numbers;
        let at = |part: usize| Remote {
            region: table,
            offset: offset(number) + part,
        };
        let whose = service.compare_swap(engine, at(offset_of!(Entry, id)), 0, id)?;
        if whose != 0 && whose != id {
            continue;
        }
        service.write(engine, name, at(offset_of!(Entry, name)))?;
        service.write(engine, &1u64.to_ne_bytes(), at(offset_of!(Entry, named)))?;
        return Ok(number as u32);
    }
    Err(exhausted(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{Loopback, LoopbackNet};
    use std::sync::Arc;

    #[test]
    fn both_sides_find_the_same_number() {
        let net = Arc::new(LoopbackNet::default());
        let [mine, yours] =
            [(); 2].map(|()| Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap());
        let lanes = Lanes::new(&yours, 8).unwrap();
        let service = Service::new(&mine).unwrap();
        let table = mine
            .connect(&yours.address().unwrap())
            .unwrap()
            .import(&lanes.region().key())
            .unwrap();
        assert_eq!(lanes.name(3), Err(Error::StaleRegion));
        let mut numbers = Vec::new();
        for id in 100..108u64 {
            let name = [id as u8; NAME_LEN];
            let there = || number_there(&mine, &service, &table, id * 8, &name).unwrap();
            let here = || lanes.number(id * 8, &name).unwrap();
            let (first, second) = if id % 2 == 0 {
                (here(), there())
            } else {
                (there(), here())
            };
            assert_eq!(first, second);
            assert_eq!(lanes.name(first).unwrap(), name);
            numbers.push(first);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..8).collect::<Vec<_>>());
        let name = [0; NAME_LEN];
        assert!(matches!(lanes.number(7, &name), Err(Error::Exhausted(_))));
        assert!(number_there(&mine, &service, &table, 7, &name).is_err());
    }
}
