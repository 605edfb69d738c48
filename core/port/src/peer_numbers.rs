//! Numbers for peers without ranks. A peer has a 64-bit id. Before the first message, the peer or the owner enters the id in the owner's table. Both get the
//! same number, in either order. The owner frees the numbers of peers that have ended.
//!
//! Both sides may start at once, and select different slots. So a side first claims a slot, and chooses it if the whole table then has no other claim of the
//! peer. A side that sees two claims withdraws the later one. Each step changes one word by compare-and-swap; if the word has changed, the side starts again.

#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unipgas_base::{Error, Result, Rights};
use unipgas_engine::engine::Engine;
use unipgas_engine::op::Remote;
use unipgas_engine::service::Service;
use unipgas_engine::{Region, RemoteRegion};

/// Bytes of a peer's name.
pub const NAME_LEN: usize = 64;

/// The two low bits of a slot's word are its state. The other bits are the id.
const STATE: u64 = 3;
const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const CHOSEN: u64 = 2;
/// The name is written, too.
const NAMED: u64 = 3;

/// Size of a block. Blocks are filled in order, so the memory of entries and of related tables grows with use.
const BLOCK: usize = 256;
/// Limit of a table's numbers. A peer's table could claim any length.
const MOST: usize = 1 << 16;

/// Timeout for a peer without free numbers to free one, and the time between two attempts.
const FULL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(2));

const WORD: usize = 8;
/// Bytes of each number: a word in the array of words, and a name in the array of names behind it.
const EACH: usize = WORD + NAME_LEN;

/// A table of this process or of a peer.
trait Table {
    fn numbers(&self) -> usize;
    fn words(&self) -> Result<Vec<u64>>;
    /// Compare-and-swap of a word. Returns the previous value.
    fn change(&self, number: usize, from: u64, to: u64) -> Result<u64>;
    fn write_name(&self, number: usize, name: &[u8; NAME_LEN]) -> Result<()>;
}

fn key_of(id: u64) -> u64 {
    // The id must not equal the word of a free slot.
    (id & !STATE).max(STATE + 1)
}

/// Enters a peer, unless it has a number. Returns the number.
fn enter(table: &impl Table, id: u64, name: &[u8; NAME_LEN]) -> Result<u32> {
    let (key, numbers) = (key_of(id), table.numbers());
    loop {
        let words = table.words()?;
        // A word with an id and state FREE is corrupt, and its state would never change.
        let is_of = |word: u64| word & !STATE == key && word & STATE != FREE;
        let places = (0..numbers).filter(|number| is_of(words[*number]));
        let places: Vec<usize> = places.collect();
        let settled = |number: &&usize| words[**number] & STATE > CLAIMED;
        if let Some(&number) = places.iter().find(settled) {
            for other in places.iter().filter(|other| **other != number) {
                table.change(*other, key | CLAIMED, FREE)?;
            }
            if words[number] & STATE == CHOSEN {
                // The peer may do the same; it writes the same name.
                table.write_name(number, name)?;
                table.change(number, key | CHOSEN, key | NAMED)?;
            }
            return Ok(number as u32);
        }
        match places[..] {
            [] => {
                let free = (0..numbers).step_by(BLOCK).find_map(|begin| {
                    let block = BLOCK.min(numbers - begin);
                    let mut all =
                        (0..block).map(|nth| begin + (id as usize).wrapping_add(nth) % block);
                    all.find(|number| words[*number] == FREE)
                });
                let free = free.ok_or_else(|| {
                    Error::Exhausted(format!("numbers for peers (a process has {numbers})"))
                })?;
                table.change(free, FREE, key | CLAIMED)?;
            }
            [only] => drop(table.change(only, key | CLAIMED, key | CHOSEN)?),
            [.., last] => drop(table.change(last, key | CLAIMED, FREE)?),
        }
    }
}

/// The table of this process.
pub struct PeerNumbers {
    region: Region,
    numbers: usize,
}

impl PeerNumbers {
    /// Errors: as [`Engine::allocate`]; [`Error::InvalidArgument`] for more than 2^16 numbers.
    pub fn new(engine: &Engine, numbers: usize) -> Result<Self> {
        if numbers > MOST {
            return Err(Error::InvalidArgument(format!(
                "a process has at most {MOST} numbers for peers"
            )));
        }
        Ok(PeerNumbers {
            region: engine.allocate(numbers * EACH, Rights::FULL)?,
            numbers,
        })
    }

    /// The table's memory. Peers need its key.
    pub fn region(&self) -> &Region {
        &self.region
    }

    fn word(&self, at: usize) -> Result<&AtomicU64> {
        let local = self.region.local(at, WORD)?;
        // SAFETY:
        // - in bounds; the region is page-aligned, and entries are whole words; the region lives as long as self; all accesses are atomic.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }

    fn name_at(&self, number: usize, nth: usize) -> Result<&AtomicU64> {
        self.word(self.numbers * WORD + number * NAME_LEN + nth * WORD)
    }

    /// The number of the peer with this id and name. Errors: [`Error::Exhausted`].
    pub fn number(&self, id: u64, name: &[u8; NAME_LEN]) -> Result<u32> {
        enter(self, id, name)
    }

    /// The name of the peer with `number`. Errors: [`Error::StaleRegion`] if the number is free, or its entry is incomplete.
    pub fn name(&self, number: u32) -> Result<[u8; NAME_LEN]> {
        let number = number as usize;
        if self.word(number * WORD)?.load(Ordering::Acquire) & STATE != NAMED {
            return Err(Error::StaleRegion);
        }
        let mut name = [0; NAME_LEN];
        for (nth, word) in name.chunks_exact_mut(WORD).enumerate() {
            let value = self.name_at(number, nth)?.load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        Ok(name)
    }

    /// Count of used numbers, and the end of the last one.
    pub fn taken(&self) -> (usize, usize) {
        let is_taken = |number: &usize| {
            let word = self.word(number * WORD);
            word.is_ok_and(|word| word.load(Ordering::Relaxed) != FREE)
        };
        (0..self.numbers)
            .filter(is_taken)
            .fold((0, 0), |(count, _), number| (count + 1, number + 1))
    }

    /// Frees the number of a peer that has ended. Another peer may get it at once.
    pub fn free(&self, number: u32) {
        let Ok(word) = self.word(number as usize * WORD) else {
            return;
        };
        let key = word.load(Ordering::Relaxed) & !STATE;
        // The peer may have died with a claim to a second slot.
        let all = (0..self.numbers).filter_map(|other| self.word(other * WORD).ok());
        for word in all.filter(|word| word.load(Ordering::Relaxed) & !STATE == key) {
            word.store(FREE, Ordering::Release);
        }
    }
}

impl Table for PeerNumbers {
    fn numbers(&self) -> usize {
        self.numbers
    }

    fn words(&self) -> Result<Vec<u64>> {
        let word = |number| Ok(self.word(number * WORD)?.load(Ordering::SeqCst));
        (0..self.numbers).map(word).collect()
    }

    fn change(&self, number: usize, from: u64, to: u64) -> Result<u64> {
        let word = self.word(number * WORD)?;
        let changed = word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        Ok(changed.unwrap_or_else(|other| other))
    }

    fn write_name(&self, number: usize, name: &[u8; NAME_LEN]) -> Result<()> {
        for (nth, word) in name.chunks_exact(WORD).enumerate() {
            let value = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
            self.name_at(number, nth)?.store(value, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The table of another process.
struct There<'a> {
    engine: &'a Engine,
    service: &'a Service,
    table: &'a RemoteRegion,
}

impl There<'_> {
    fn at(&self, offset: usize) -> Remote<'_> {
        Remote {
            region: self.table,
            offset,
        }
    }
}

impl Table for There<'_> {
    fn numbers(&self) -> usize {
        self.table.len() / EACH
    }

    fn words(&self) -> Result<Vec<u64>> {
        let mut words = vec![0; self.numbers()];
        let bytes = bytemuck::cast_slice_mut(&mut words);
        self.service.read(self.engine, self.at(0), bytes)?;
        Ok(words)
    }

    fn change(&self, number: usize, from: u64, to: u64) -> Result<u64> {
        let at = self.at(number * WORD);
        self.service.compare_swap(self.engine, at, from, to)
    }

    fn write_name(&self, number: usize, name: &[u8; NAME_LEN]) -> Result<()> {
        let at = self.at(self.numbers() * WORD + number * NAME_LEN);
        self.service.write(self.engine, name, at)
    }
}

/// Enters the process with `id` and `name` in the table of a peer, and returns its number. While the table is full, `ask` asks the peer to free numbers of dead
/// peers. Errors: [`Error::Exhausted`]; [`Error::StaleRegion`] for a table that is too long; errors of the access and of `ask`.
pub fn number_there(
    engine: &Engine,
    service: &Service,
    table: &RemoteRegion,
    id: u64,
    name: &[u8; NAME_LEN],
    ask: impl Fn() -> Result<()>,
) -> Result<u32> {
    let there = There {
        engine,
        service,
        table,
    };
    if there.numbers() > MOST {
        return Err(Error::StaleRegion);
    }
    let begin = Instant::now();
    loop {
        match enter(&there, id, name) {
            Err(Error::Exhausted(_)) if begin.elapsed() < FULL.0 => ask()?,
            found => return found,
        }
        std::thread::sleep(FULL.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unipgas_engine::loopback::{Loopback, LoopbackNet};

    /// A peer's table, accessed remotely.
    struct OfPeer {
        engine: Engine,
        service: Service,
        table: RemoteRegion,
    }

    impl OfPeer {
        fn number(&self, id: u64, name: &[u8; NAME_LEN]) -> Result<u32> {
            self.number_in(&self.table, id, name)
        }

        fn number_in(&self, table: &RemoteRegion, id: u64, name: &[u8; NAME_LEN]) -> Result<u32> {
            let ask = || Err(Error::Ended);
            number_there(&self.engine, &self.service, table, id, name, ask)
        }
    }

    fn peers(most: usize) -> (PeerNumbers, OfPeer) {
        let net = Arc::new(LoopbackNet::default());
        let [engine, yours] =
            [(); 2].map(|()| Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap());
        let numbers = PeerNumbers::new(&yours, most).unwrap();
        let table = engine
            .connect(&yours.address().unwrap())
            .unwrap()
            .import(&numbers.region().key())
            .unwrap();
        let service = Service::new(&engine).unwrap();
        let there = OfPeer {
            engine,
            service,
            table,
        };
        (numbers, there)
    }

    #[test]
    fn a_table_of_any_length_is_not_read() {
        let (numbers, peer) = peers(MOST);
        assert_eq!(peer.number(8, &[1; NAME_LEN]), Ok(8));
        assert_eq!(numbers.taken(), (1, 9));
        let engine = &peer.engine;
        let longer = engine.allocate((MOST + 1) * EACH, Rights::FULL).unwrap();
        let own = engine.connect(&engine.address().unwrap()).unwrap();
        let longer = own.import(&longer.key()).unwrap();
        let found = peer.number_in(&longer, 8, &[1; NAME_LEN]);
        assert_eq!(found, Err(Error::StaleRegion));
        assert!(PeerNumbers::new(engine, MOST + 1).is_err());
    }

    #[test]
    fn a_place_in_no_state_is_nobodys() {
        let (numbers, peer) = peers(2);
        numbers.word(0).unwrap().store(40, Ordering::Relaxed);
        let name = [1; NAME_LEN];
        assert_eq!(peer.number(40, &name), Ok(1));
        assert_eq!(numbers.number(40, &name), Ok(1));
    }

    #[test]
    fn both_sides_find_the_same_number() {
        let (numbers, peer) = peers(8);
        assert_eq!(numbers.name(3), Err(Error::StaleRegion));
        let mut found = Vec::new();
        for id in 100..108u64 {
            let name = [id as u8; NAME_LEN];
            let there = || peer.number(id * 8, &name).unwrap();
            let here = || numbers.number(id * 8, &name).unwrap();
            let (first, second) = if id % 2 == 0 {
                (here(), there())
            } else {
                (there(), here())
            };
            assert_eq!(first, second);
            assert_eq!(numbers.name(first).unwrap(), name);
            found.push(first);
        }
        let before = found.clone();
        found.sort_unstable();
        assert_eq!(found, (0..8).collect::<Vec<_>>());
        let name = [0; NAME_LEN];
        assert!(matches!(numbers.number(7, &name), Err(Error::Exhausted(_))));
        assert!(peer.number(7, &name).is_err());
        assert_eq!(numbers.taken(), (8, 8));
        // A freed number goes to another peer. The others keep their numbers.
        numbers.free(3);
        assert_eq!(numbers.name(3), Err(Error::StaleRegion));
        assert_eq!(peer.number(7, &name), Ok(3));
        for (id, number) in (100..108u64).zip(before).filter(|(_, number)| *number != 3) {
            let name = [id as u8; NAME_LEN];
            assert_eq!(numbers.number(id * 8, &name), Ok(number));
        }
    }

    #[test]
    fn both_at_once_find_the_same_number() {
        let (numbers, peer) = peers(4);
        let start = std::sync::Barrier::new(2);
        let rounds = if cfg!(miri) { 20 } else { 3000 };
        for id in (1..rounds).map(|nth: u64| nth * 52) {
            let name = [id as u8; NAME_LEN];
            let (here, there) = std::thread::scope(|scope| {
                let there = scope.spawn(|| {
                    start.wait();
                    peer.number(id, &name).unwrap()
                });
                start.wait();
                // A slot freed in between makes the two sides start at different slots.
                let before = id.wrapping_sub(52);
                let last = (0..4).find(|n| numbers.name(*n) == Ok([before as u8; NAME_LEN]));
                if let Some(last) = last {
                    numbers.free(last);
                }
                let here = numbers.number(id, &name).unwrap();
                (here, there.join().unwrap())
            });
            assert_eq!(here, there);
            assert_eq!((numbers.name(here).unwrap(), numbers.taken().0), (name, 1));
        }
    }
}
