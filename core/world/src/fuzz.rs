//! Fuzzing of memory that another rank writes: directories, and arenas of groups.

use std::sync::Arc;

use super::group::{Forming, RankGroup};
use super::world::World;
use unipgas_base::combine::{Combination, ElementType};
use unipgas_base::fenced::{Fenced, Patch};
use unipgas_base::{Deadline, Result, Rights};
use unipgas_engine::Engine;
use unipgas_engine::Region;
use unipgas_engine::directory::{GROUPS, incarnation_word, region_entry, visibility_word};
use unipgas_engine::loopback::{Loopback, LoopbackNet};
use unipgas_engine::op::{Flags, Local, Notice, Remote};
use unipgas_job::bootstrap::LoopbackJob;
use unipgas_job::job::Job;

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("directory", directory, directories),
    ("arena", arena, arenas),
    ("circuit", circuit, circuits),
];

const RANKS: u32 = 2;
const NAME: [u64; 2] = [5, 6];
const LEN: usize = 128;
/// Short and unaligned.
const ODD: usize = 101;

/// Two ranks. The second one lists memory and notification words.
struct Ranks {
    worlds: [Arc<World>; 2],
    /// The second rank's data, words, and a short unaligned region.
    _regions: [Region; 3],
    own: Region,
}

/// The worlds of two ranks in this process.
pub(crate) fn worlds(net: LoopbackNet) -> Result<[Arc<World>; 2]> {
    let (net, job) = (Arc::new(net), LoopbackJob::of(RANKS));
    let world = |rank| {
        let engine = Engine::new(vec![Arc::new(Loopback::join(&net))])?;
        World::new(engine, Job::new(job.rank(rank)), 1).map(Arc::new)
    };
    Ok([world(0)?, world(1)?])
}

impl Ranks {
    fn new(odd: &mut Fenced, net: LoopbackNet) -> Result<Self> {
        let worlds = worlds(net)?;
        let engine = worlds[1].engine();
        let (odd, len) = (odd.base().wrapping_add(1), odd.len() - 1);
        let regions = [
            engine.allocate(LEN, Rights::FULL)?,
            engine.allocate(LEN, Rights::FULL)?,
            // SAFETY:
            // - `len` bytes, which outlive the ranks.
            unsafe { engine.register(odd, len, Rights::FULL) }?,
        ];
        let [data, words, odd] = regions.each_ref().map(Region::key);
        let directory = worlds[1].directory();
        for (id, data, words) in [(0, data, words), (1, odd, words), (2, data, odd)] {
            directory.list_region(id, &data, &words)?;
            directory.show_region(id, 0)?;
        }
        let own = worlds[0].engine().allocate(LEN, Rights::FULL)?;
        // SAFETY:
        // - the region above, with this length.
        unsafe { own.base().write_bytes(0xff, LEN) };
        Ok(Ranks {
            own,
            worlds,
            _regions: regions,
        })
    }

    fn form(&self) -> Result<[RankGroup; 2]> {
        let form = |world| Forming::new(world, &[0, 1], NAME);
        let [mut first, mut second] = [form(&self.worlds[0])?, form(&self.worlds[1])?];
        let begun = first.advance(Deadline::Now);
        let second = second.advance(Deadline::Now)?;
        let first = begun.or_else(|_| first.advance(Deadline::Now))?;
        Ok([first, second])
    }

    /// Uses the entry `id` of the second rank.
    fn use_region(&self, id: usize) -> Result<()> {
        let world = &self.worlds[0];
        let endpoint = world.engine().endpoint(4)?;
        for _ in 0..2 {
            let call = world.call();
            let found = world.import(1, id, &call, Deadline::Now)?;
            let at = |region, offset| Remote { region, offset };
            for offset in [0, 4, 9, LEN - 8] {
                let (data, slot) = (at(&found.data, offset), at(&found.notices, offset));
                let notice = Notice { slot, value: 3 };
                let local = self.own.local(0, 8)?;
                // SAFETY:
                // - memory of the region `own`, which outlives the endpoint.
                unsafe {
                    let _ = endpoint.fast_path().put_notify(local, data, 8, notice);
                    let _ = endpoint.put_notify(local, data, 8, notice, Flags::empty(), 0);
                    let _ = endpoint.get(local, data, 8, Flags::empty(), 0);
                }
                let _ = endpoint.fast_path().value(data);
                let _ = endpoint.notify(notice, Flags::empty(), 0);
            }
        }
        Ok(())
    }
}

fn write((base, len): (*mut u8, usize), patches: &[u8]) {
    for patch in Patch::all(patches) {
        // SAFETY:
        // - the whole region, which only this thread uses.
        unsafe { patch.apply(base, len) };
    }
}

fn record((base, _): (*mut u8, usize), at: usize, len: usize) -> Vec<u8> {
    // SAFETY:
    // - in the region, which only this thread uses.
    unsafe { Patch::of(0, base, at, len) }
}

fn all_of(region: &Region) -> (*mut u8, usize) {
    let Local { ptr, .. } = region.local(0, region.len()).expect("all of it");
    (ptr, region.len())
}

/// The directory of another rank.
pub(crate) fn directory(bytes: &[u8]) {
    let mut odd = Fenced::new(ODD);
    let ranks = Ranks::new(&mut odd, LoopbackNet::default()).expect("ranks");
    let listed = Forming::new(&ranks.worlds[1], &[0, 1], NAME).expect("room");
    write(all_of(ranks.worlds[1].directory().region()), bytes);
    for id in [0, 1, 2, 255, 256] {
        let _ = ranks.use_region(id);
    }
    let world = &ranks.worlds[0];
    for name in [NAME, [0, 0], [5, 7]] {
        let _ = world.find_group(1, name, Deadline::Now);
    }
    if let Ok(mut forming) = Forming::new(world, &[0, 1], NAME) {
        for _ in 0..2 {
            let _ = forming.advance(Deadline::Now);
        }
    }
    let _ = ranks.worlds[1].incarnation_of(0);
    let _ = (world.returned(), world.lives());
    drop((listed, ranks));
    odd.check();
}

pub(crate) fn directories() -> Vec<Vec<u8>> {
    let mut odd = Fenced::new(ODD);
    let ranks = Ranks::new(&mut odd, LoopbackNet::default()).expect("ranks");
    let _listed = Forming::new(&ranks.worlds[1], &[0, 1], NAME).expect("room");
    let all = all_of(ranks.worlds[1].directory().region());
    let seen = visibility_word(0, 0, RANKS as usize);
    let known = incarnation_word(0, RANKS as usize);
    // The second entry, moved to the first place.
    let mut moved = record(all, region_entry(1), 252);
    moved[1..3].fill(0);
    let entry = record(all, region_entry(0), 252);
    vec![
        [&entry[..], &record(all, seen, 16)].concat(),
        record(all, region_entry(1), 252),
        moved,
        record(all, GROUPS, 160),
        record(all, known, 8),
    ]
}

/// The bytes that another member has written to a group's arena.
pub(crate) fn arena(bytes: &[u8]) {
    written(bytes, LoopbackNet::default());
}

/// As [`arena`], on a network with gates. Members write the names of their gates to the arena.
pub(crate) fn circuit(bytes: &[u8]) {
    written(bytes, LoopbackNet::with_gates());
}

fn written(bytes: &[u8], net: LoopbackNet) {
    let mut odd = Fenced::new(ODD);
    let ranks = Ranks::new(&mut odd, net).expect("ranks");
    let [here, there] = ranks.form().expect("both are there");
    // The second rank is ahead in some operations, and behind in others.
    let _ = there.barrier(Deadline::Now);
    let _ = there.all_reduce(&[1; 8], &mut [0; 8], &mut either, Deadline::Now);
    write(here.memory(), bytes);
    for len in [8, 100, 0, 16] {
        for group in [&here, &there, &here] {
            use_group(group, len);
        }
    }
}

fn either(held: &mut [u8], other: &[u8]) -> Result<()> {
    assert_eq!(held.len(), other.len());
    held.iter_mut().zip(other).for_each(|(a, b)| *a |= *b);
    Ok(())
}

fn use_group(group: &RankGroup, len: usize) {
    let (value, mut result) = (vec![2; len], vec![0; len]);
    let sum = (Combination::Sum, ElementType::U64);
    let _ = group.barrier(Deadline::Now);
    let _ = group.all_reduce(&value, &mut result, &mut either, Deadline::Now);
    let _ = group.broadcast(&mut result, 1, Deadline::Now);
    let _ = group.all_reduce_elements_in((), &value, &mut result, sum, Deadline::Now);
}

pub(crate) fn arenas() -> Vec<Vec<u8>> {
    let mut odd = Fenced::new(ODD);
    let ranks = Ranks::new(&mut odd, LoopbackNet::default()).expect("ranks");
    let [here, there] = ranks.form().expect("both are there");
    let _ = there.barrier(Deadline::Now);
    let _ = there.all_reduce(&[1; 8], &mut [0; 8], &mut either, Deadline::Now);
    let _ = there.broadcast(&mut [7; 100], 1, Deadline::Now);
    pieces(&here)
}

/// Arenas of a group with members that know the names of all gates.
pub(crate) fn circuits() -> Vec<Vec<u8>> {
    let mut odd = Fenced::new(ODD);
    let ranks = Ranks::new(&mut odd, LoopbackNet::with_gates()).expect("ranks");
    let [here, there] = ranks.form().expect("both are there");
    let groups = [&here, &there];
    (0..4)
        .flat_map(|_| groups)
        .for_each(|one| use_group(one, 8));
    assert!(groups.iter().all(|group| group.meets_by_gates()));
    pieces(&here)
}

/// The whole arena, 1 KiB at a time.
fn pieces(group: &RankGroup) -> Vec<Vec<u8>> {
    let all @ (_, len) = group.memory();
    let places: Vec<usize> = (0..len).step_by(128).collect();
    let piece = |at: &usize| record(all, *at, 128.min(len - at));
    let pieces = places.chunks(8);
    pieces
        .map(|some| some.iter().flat_map(piece).collect())
        .collect()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();
