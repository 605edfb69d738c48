//! Atomic operations of all ranks on one region, by different paths. The owner uses the CPU's atomics, and peers of its host mapped
//! memory. The device or process that serves the network carries out the operations of other hosts.

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::atomic::supported;
use unipgas_core::{AtomicOp, AtomicType, Region, Remote, RemoteRegion, Rights};

use super::rank::{EXTRA, Rank, Says, dawdle, on_ranks, read, read_word, remote, update};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.atomic.mixed", "unipgas core: Channel::atomic", 4 + ordering,
        "the owner by the CPU's atomics, peers on its host and peers across a network change the same words at once: nothing is lost" => |ctx| on_every_way(ctx, Memory::Allocated);
    "core.atomic.mixed-user", "unipgas core: Channel::atomic, Engine::register", 4 + ordering,
        "likewise in memory of the user" => |ctx| on_every_way(ctx, Memory::Users);
    "core.atomic.mixed-exclusive", "unipgas core: Channel::atomic, Rights::EXCLUSIVE", 4 + ordering,
        "likewise in memory with atomics under locks, where the owner uses the engine" => |ctx| on_every_way(ctx, Memory::Exclusive);
    "core.atomic.mixed-words", "unipgas core: Channel::atomic, Rights::WORDS", 4 + ordering,
        "likewise in memory with atomics of words only, where the owner uses the engine" => |ctx| on_every_way(ctx, Memory::Words);
    "core.atomic.mixed-words-user", "unipgas core: Channel::atomic, Rights::WORDS, Engine::register", 4 + ordering,
        "likewise in memory of the user" => |ctx| on_every_way(ctx, Memory::UsersWords);
}

#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Allocated,
    Users,
    Exclusive,
    Words,
    UsersWords,
}

impl Memory {
    /// The owner may change it by the CPU's atomics.
    fn has_processors(self) -> bool {
        matches!(self, Memory::Allocated | Memory::Users)
    }

    fn has_wide_elements(self) -> bool {
        !matches!(self, Memory::Words | Memory::UsersWords)
    }
}

/// Number of changes of each element by a peer across a network. Other ranks make at least as many.
const ROUNDS: u64 = 60;

/// Offsets in the region. Number of peers across a network that are still busy:
const BUSY: usize = 0;
/// A sum, a counter that a successful comparison increments, and a lock.
const SUM: usize = 64;
const COUNT: usize = 72;
const LOCK: usize = 80;
/// An element of 16 bytes.
const WIDE: usize = 96;
/// An element without CPU atomics: its halves belong to two neighbouring locks.
const SPLIT: usize = 2 * 256 - 8;
/// An element of 32 bytes.
const WIDEST: usize = 1024;
/// For each rank: its rounds, and its successful comparisons.
const TALLIES: usize = 2048;
const LEN: usize = 4096;

fn on_every_way(ctx: &Ctx, memory: Memory) -> Verdict {
    #[repr(align(4096))]
    struct Page([u8; LEN]);
    let mut users = Box::new(Page([0; LEN]));
    on_ranks(ctx, 4096, |rank| {
        let engine = rank.engine();
        let region = match memory {
            Memory::Allocated => engine.allocate(LEN, Rights::FULL),
            Memory::Exclusive => engine.allocate(LEN, Rights::FULL | Rights::EXCLUSIVE),
            Memory::Words => engine.allocate(LEN, Rights::FULL | Rights::WORDS),
            Memory::Users | Memory::UsersWords => {
                let mut rights = Rights::FULL;
                rights.set(Rights::WORDS, memory == Memory::UsersWords);
                // SAFETY:
                // - the page outlives the region, and is used through it alone.
                unsafe { engine.register(users.0.as_mut_ptr(), LEN, rights) }
            }
        };
        let region = region.says("a region")?;
        rank.list(EXTRA, &region).says("list")?;
        ctx.sync();
        let there = rank.listed(0, EXTRA)?;
        change(
            rank,
            &there,
            (ctx.rank == 0 && memory.has_processors()).then_some(&region),
            memory.has_wide_elements(),
        )?;
        ctx.sync();
        if ctx.rank == 0 {
            add_up(ctx, &region, memory.has_wide_elements())?;
        }
        ctx.sync();
        Ok(())
    })
}

/// The access path of a rank: the owner uses the CPU on its words, all others use the engine.
struct Way<'a> {
    rank: &'a Rank<'a>,
    there: &'a RemoteRegion,
    own: Option<&'a Region>,
}

impl Way<'_> {
    fn at(&self, offset: usize) -> Remote<'_> {
        remote(self.there, offset)
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let own = self.own?.local(offset, 8).ok()?;
        // SAFETY:
        // - in the region, and aligned; all ranks change it by atomics.
        Some(unsafe { AtomicU64::from_ptr(own.ptr.cast()) })
    }

    fn add(&self, offset: usize, value: u64) -> Result<u64, String> {
        if let Some(word) = self.word(offset) {
            return Ok(word.fetch_add(value, Ordering::AcqRel));
        }
        let before = self.rank.fetch_add(self.at(offset), value);
        before.says("fetch-add")
    }

    fn swap(&self, offset: usize, expected: u64, value: u64) -> Result<u64, String> {
        if let Some(word) = self.word(offset) {
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            let (Ok(before) | Err(before)) =
                word.compare_exchange(expected, value, success, failure);
            return Ok(before);
        }
        let before = self.rank.compare_swap(self.at(offset), expected, value);
        before.says("compare-swap")
    }

    /// Adds to an element that is wider than a word.
    fn add_wide(&self, ty: AtomicType, offset: usize, operand: &[u8]) -> Verdict {
        let request = update(AtomicOp::Sum, ty, 1, operand.as_ptr());
        let added = self.rank.atomic(self.at(offset), &request);
        added.says("a sum of wide elements")
    }
}

fn change(
    rank: &Rank<'_>,
    there: &RemoteRegion,
    own: Option<&Region>,
    has_wide_elements: bool,
) -> Verdict {
    let ctx = rank.ctx;
    let way = Way { rank, there, own };
    let far = !there.is_direct();
    let me = u64::from(ctx.rank) + 1;
    let mut random = ctx.random(u64::from(ctx.rank));
    way.add(BUSY, u64::from(far))?;
    ctx.sync();
    let (mut rounds, mut right) = (0, 0);
    let (mut last, mut seen) = (None, 0);
    while rounds < ROUNDS || !far && way.add(BUSY, 0)? != 0 {
        let before = way.add(SUM, 1)?;
        ensure!(last < Some(before), "fetched {before} after {last:?}");
        last = Some(before);
        let before = way.swap(COUNT, seen, seen + 1)?;
        right += u64::from(before == seen);
        seen = before;
        take_lock(&way, me)?;
        if has_wide_elements {
            add_to_wide_elements(&way)?;
        }
        rounds += 1;
        dawdle(&mut random);
    }
    way.add(BUSY, u64::from(far).wrapping_neg())?;
    way.add(TALLIES + 16 * ctx.rank as usize, rounds)?;
    way.add(TALLIES + 16 * ctx.rank as usize + 8, right)?;
    Ok(())
}

fn add_to_wide_elements(way: &Way<'_>) -> Verdict {
    if supported(AtomicOp::Sum, AtomicType::U128) {
        way.add_wide(AtomicType::U128, WIDE, &wide(1).to_ne_bytes())?;
    }
    way.add_wide(AtomicType::ComplexF64, SPLIT, &complex(1))?;
    if supported(AtomicOp::Sum, AtomicType::ComplexLongDouble) {
        way.add_wide(AtomicType::ComplexLongDouble, WIDEST, &widest(1))?;
    }
    Ok(())
}

fn take_lock(way: &Way<'_>, me: u64) -> Verdict {
    while way.swap(LOCK, 0, me)? != 0 {
        std::thread::yield_now();
    }
    std::thread::yield_now();
    ensure_eq!(way.swap(LOCK, me, 0)?, me, "holder of the lock");
    Ok(())
}

fn add_up(ctx: &Ctx, region: &Region, has_wide_elements: bool) -> Verdict {
    let word = |at| read_word(region, at);
    let all = 0..ctx.size as usize;
    let tallies = |at| -> u64 { all.clone().map(|r| word(TALLIES + 16 * r + at)).sum() };
    let (rounds, right) = (tallies(0), tallies(8));
    ensure!(rounds >= ROUNDS * u64::from(ctx.size), "{rounds} rounds");
    ensure_eq!(word(SUM), rounds, "the sum");
    ensure_eq!(word(COUNT), right, "comparisons that were right");
    ensure_eq!(word(LOCK), 0, "the lock");
    if !has_wide_elements {
        return Ok(());
    }
    let expected = |ty, value| u64::from(supported(AtomicOp::Sum, ty)) * value;
    let expect = expected(AtomicType::U128, rounds);
    let seen = read(region, WIDE, 16);
    ensure_eq!(seen, wide(expect).to_ne_bytes(), "the sum of 16 bytes");
    let seen = read(region, SPLIT, 16);
    ensure_eq!(seen, complex(rounds), "the complex sum of {rounds}");
    let expect = expected(AtomicType::ComplexLongDouble, rounds);
    let seen = read(region, WIDEST, 32);
    ensure_eq!(seen, widest(expect), "the widest sum of {rounds}");
    Ok(())
}

/// The number in both halves: the loss of one half shows.
fn wide(number: u64) -> u128 {
    u128::from(number) << 64 | u128::from(number)
}

fn complex(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(number as f64).to_ne_bytes());
    bytes[8..].copy_from_slice(&(number as f64 * 2.0).to_ne_bytes());
    bytes
}

/// The layout of C's long double: 80 bits on x86-64, else 128.
fn widest(number: u64) -> [u8; 32] {
    let extended = |number: u64| match number.checked_ilog2() {
        None => 0,
        Some(log) if cfg!(target_arch = "x86_64") => {
            let exponent = u128::from(16383 + log);
            exponent << 64 | u128::from(number << number.leading_zeros())
        }
        Some(log) => {
            let exponent = u128::from(16383 + log);
            // The first bit is always set and is not stored.
            let fraction = (u128::from(number) - (1 << log)) << (112 - log);
            exponent << 112 | fraction
        }
    };
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&extended(number).to_ne_bytes());
    bytes[16..].copy_from_slice(&extended(2 * number).to_ne_bytes());
    bytes
}
