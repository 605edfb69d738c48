//! Groups: barrier, reduction, broadcast.

use std::time::Duration;

use unipgas_core::group::RankGroup;
use unipgas_core::schedule::PAYLOAD;
use unipgas_core::{Deadline, Error, Result};

use super::rank::{Says, bytes_of, dawdle, invalid, late, on_ranks, refused};
use crate::law::{Ctx, Verdict};
use crate::stall::Looks;
use crate::{ensure, ensure_eq};

const BARRIER: &str = "GASPI 17.1 §11.2.1; unipgas core: RankGroup::barrier";
const REDUCE: &str = "GASPI 17.1 §11.3.1; unipgas core: RankGroup::all_reduce";
const BROADCAST: &str = "unipgas core: RankGroup::broadcast";
const RESUME: &str = "GASPI 17.1 §11.1; unipgas core: Error::Timeout";
const NOBODY: &str = "no rank leaves a barrier before all have entered it";
const EVERYBODY: &str = "a reduction gives all ranks the combination of all values";
const ALL: &str = "a broadcast gives all ranks the root's bytes, for every root";
const RESUMED: &str = "an operation that runs into its deadline goes on in the next call";

laws! {
    "core.barrier.of-1", BARRIER, 1, NOBODY => barrier;
    "core.barrier.of-2", BARRIER, 2 + ordering, NOBODY => barrier;
    "core.barrier.of-3", BARRIER, 3 + ordering, NOBODY => barrier;
    "core.barrier.of-4", BARRIER, 4 + ordering, NOBODY => barrier;
    "core.barrier.of-5", BARRIER, 5 + ordering, NOBODY => barrier;
    "core.all-reduce.of-1", REDUCE, 1, EVERYBODY => all_reduce;
    "core.all-reduce.of-2", REDUCE, 2 + ordering, EVERYBODY => all_reduce;
    "core.all-reduce.of-3", REDUCE, 3 + ordering, EVERYBODY => all_reduce;
    "core.all-reduce.of-4", REDUCE, 4 + ordering, EVERYBODY => all_reduce;
    "core.all-reduce.of-5", REDUCE, 5 + ordering, EVERYBODY => all_reduce;
    "core.broadcast.of-1", BROADCAST, 1, ALL => broadcast;
    "core.broadcast.of-2", BROADCAST, 2 + ordering, ALL => broadcast;
    "core.broadcast.of-3", BROADCAST, 3 + ordering, ALL => broadcast;
    "core.broadcast.of-4", BROADCAST, 4 + ordering, ALL => broadcast;
    "core.broadcast.of-5", BROADCAST, 5 + ordering, ALL => broadcast;
    "core.collective.resumes-of-3", RESUME, 3 + ordering, RESUMED => resumes;
    "core.collective.resumes-of-5", RESUME, 5 + ordering, RESUMED => resumes;
    "core.group.several", "GASPI 17.1 §6.1; unipgas core: Forming", 5 + ordering,
        "groups of some ranks, apart and overlapping, work beside each other" => several;
    "core.collective.bounds", "unipgas core: RankGroup::all_reduce", 2,
        "values that are too long or of two lengths, and roots that do not exist, are refused" => bounds;
}

const ROUNDS: u64 = 12;

fn barrier(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let group = rank.group_of_all()?;
        let mut random = ctx.random(u64::from(ctx.rank));
        for round in 1..=ROUNDS {
            dawdle(&mut random);
            rank.enter(round)?;
            group.barrier(late()).says(&format!("barrier {round}"))?;
            rank.all_have_entered(round)?;
        }
        Ok(())
    })
}

fn add(held: &mut [u8], other: &[u8]) -> Result<()> {
    for (held, other) in held.chunks_exact_mut(8).zip(other.chunks_exact(8)) {
        let sum = number(held).wrapping_add(number(other));
        held.copy_from_slice(&sum.to_ne_bytes());
    }
    Ok(())
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

/// The sum of all members' values of a round.
fn sum(ctx: &Ctx, members: &[u32], round: u64, len: usize) -> Vec<u8> {
    let mut total = vec![0; len];
    for member in members {
        add(&mut total, &value(ctx, *member, round, len)).expect("adding cannot fail");
    }
    total
}

fn value(ctx: &Ctx, member: u32, round: u64, len: usize) -> Vec<u8> {
    bytes_of(ctx, 1 + round * 64 + u64::from(member), len)
}

fn lens() -> impl Iterator<Item = usize> {
    [8, 16, 64, 1000, 2040, PAYLOAD, 0, 8].into_iter()
}

fn all_reduce(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let group = rank.group_of_all()?;
        let mut random = ctx.random(u64::from(ctx.rank));
        for (round, len) in (0..2).flat_map(|_| lens()).enumerate() {
            dawdle(&mut random);
            let mut result = vec![0x77; len];
            let mine = value(ctx, ctx.rank, round as u64, len);
            group
                .all_reduce(&mine, &mut result, &mut add, late())
                .says(&format!("reduction {round} of {len} bytes"))?;
            ensure!(
                result == sum(ctx, group.members(), round as u64, len),
                "reduction {round} of {len} bytes gave another sum"
            );
        }
        Ok(())
    })
}

fn broadcast(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let group = rank.group_of_all()?;
        let mut random = ctx.random(u64::from(ctx.rank));
        for (round, len) in lens().chain([3, 1999]).enumerate() {
            for root in 0..ctx.size {
                dawdle(&mut random);
                let salt = round as u64 * 8 + u64::from(root);
                let mut bytes = value(ctx, ctx.rank, salt, len);
                group
                    .broadcast(&mut bytes, root, late())
                    .says(&format!("broadcast of {len} bytes from {root}"))?;
                ensure!(
                    bytes == value(ctx, root, salt, len),
                    "broadcast of {len} bytes from {root} brought others"
                );
            }
        }
        Ok(())
    })
}

/// Repeats the call until it ends by something other than the deadline.
fn again(mut call: impl FnMut(Deadline) -> Result<()>) -> Result<u64> {
    let mut looks = Looks::new();
    let mut calls = 0;
    loop {
        calls += 1;
        let deadline = match calls % 3 {
            0 => Deadline::after(Duration::from_micros(50)),
            _ => Deadline::Now,
        };
        match call(deadline) {
            Err(Error::Timeout) => looks.again(),
            Err(error) => return Err(error),
            Ok(()) => return Ok(calls),
        }
    }
}

fn resumes(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let group = rank.group_of_all()?;
        let mut waited = 0;
        for round in 1..=ROUNDS / 2 {
            // In each round another rank is late.
            if round % u64::from(ctx.size) == u64::from(ctx.rank) {
                std::thread::sleep(Duration::from_millis(3));
            }
            rank.enter(round)?;
            waited += again(|deadline| group.barrier(deadline)).says("barrier")?;
            rank.all_have_entered(round)?;
            let (mine, mut result) = (value(ctx, ctx.rank, round, 256), vec![0; 256]);
            let mut first = true;
            waited += again(|deadline| {
                // Later calls resume the first one and ignore their own value.
                let given = if first { mine.clone() } else { vec![0xff; 256] };
                first = false;
                group.all_reduce(&given, &mut result, &mut add, deadline)
            })
            .says("reduction")?;
            ensure!(
                result == sum(ctx, group.members(), round, 256),
                "a resumed reduction gave another sum"
            );
            let root = (round % u64::from(ctx.size)) as u32;
            let mut bytes = value(ctx, ctx.rank, 100 + round, 100);
            waited +=
                again(|deadline| group.broadcast(&mut bytes, root, deadline)).says("broadcast")?;
            ensure!(
                bytes == value(ctx, root, 100 + round, 100),
                "a resumed broadcast brought other bytes"
            );
        }
        ensure!(
            waited > ROUNDS / 2 * 3,
            "no call ever ran into its deadline"
        );
        Ok(())
    })
}

fn several(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let all: &[&[u32]] = &[
            &[0, 2, 4],
            &[1, 3],
            &[0, 1, 2, 3, 4],
            &[2, 3],
            &[4],
            &[0, 2, 4],
        ];
        let mut groups: Vec<RankGroup> = Vec::new();
        for (name, members) in all.iter().enumerate() {
            if members.contains(&ctx.rank) {
                groups.push(rank.group(members, name as u64 + 1)?);
            }
        }
        for round in 0..4 {
            for group in &groups {
                let mut result = vec![0; 40];
                group.barrier(late()).says("barrier")?;
                group
                    .all_reduce(
                        &value(ctx, ctx.rank, round, 40),
                        &mut result,
                        &mut add,
                        late(),
                    )
                    .says("reduction")?;
                ensure!(
                    result == sum(ctx, group.members(), round, 40),
                    "the reduction of {:?} gave another sum",
                    group.members()
                );
            }
        }
        let seen = groups[0].members()[groups[0].index() as usize];
        ensure_eq!(seen, ctx.rank, "own number in the group");
        let result = rank.world.clone();
        for members in [&[0u32, 9][..], &[1, 0], &[0, 0], &[]] {
            let forming = unipgas_core::group::Forming::new(&result, members, [0, 0]).map(drop);
            refused(forming, invalid, &format!("a group of {members:?}"))?;
        }
        ctx.sync();
        Ok(())
    })
}

fn bounds(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let group = rank.group_of_all()?;
        let (long, mut result) = (vec![0; PAYLOAD + 8], vec![0; PAYLOAD + 8]);
        let ended = group.all_reduce(&long, &mut result, &mut add, late());
        refused(ended, invalid, "a reduction that is too long")?;
        let ended = group.all_reduce(&long[..8], &mut result[..16], &mut add, late());
        refused(ended, invalid, "a reduction of two lengths")?;
        let ended = group.broadcast(&mut result, 0, late());
        refused(ended, invalid, "a broadcast that is too long")?;
        let ended = group.broadcast(&mut result[..8], 2, late());
        refused(ended, invalid, "a broadcast from member 2 of 2")?;
        // None of the refused calls has begun an operation.
        let mut result = [0; 8];
        group
            .all_reduce(
                &u64::from(ctx.rank + 1).to_ne_bytes(),
                &mut result,
                &mut add,
                late(),
            )
            .says("reduction")?;
        ensure_eq!(number(&result), 3, "sum afterwards");
        Ok(())
    })
}
