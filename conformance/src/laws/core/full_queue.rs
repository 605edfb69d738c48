//! More operations than a network takes at a time: they wait in the engine, with the same results.

use unipgas_core::inbox::Record;
use unipgas_core::transport::Life;
use unipgas_core::{AtomicOp, AtomicType, Error, Flags, Outcome, RemoteRegion, Rights};

use super::queues::open_inbox;
use super::rank::{EXTRA, Rank, Says, bytes_of, on_ranks, read, read_word, remote, update, write};
use crate::law::{Ctx, Verdict};
use crate::stall::Looks;
use crate::{ensure, ensure_eq};

laws! {
    "core.full-queue.both-sides", "unipgas core: Limits::depth, Error::NotNow", 2 + ordering,
        "two ranks that flood each other get everything once, and what is ordered in order" => both_sides;
    "core.full-queue.long", "unipgas core: Limits::largest", 3,
        "long puts to and gets from all sides under way together move exactly their bytes" => long;
    "core.full-queue.nobody-polls", "unipgas core: Endpoint", 2,
        "an operation that waits for room leaves, though its poster makes no call" => nobody_polls;
    "core.full-queue.death", "unipgas core: Limits::depth; Error::PeerDead", 3 + needs_kill,
        "when a rank dies to which a queue is full everything in the queue ends, and what goes to others is done" => death;
}

/// Number of operations posted without a poll for completions.
const MANY: u64 = 512;

/// Adds 1 to the word at `offset`, without a result.
fn add(rank: &Rank<'_>, region: &RemoteRegion, offset: usize) -> unipgas_core::Result<Outcome> {
    let one = 1u64;
    let request = update(AtomicOp::Sum, AtomicType::U64, 1, &raw const one);
    rank.post_atomic(remote(region, offset), &request, Flags::empty())
}

fn word(rank: &Rank<'_>, offset: usize) -> u64 {
    read_word(&rank.data, offset)
}

fn both_sides(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let (_inbox, mut reader) = open_inbox(rank, MANY as usize, Rights::FULL)?;
        ctx.sync();
        let there = rank.data_of(rank.other())?;
        let their_inbox = rank.listed(rank.other(), EXTRA)?;
        for number in 0..MANY {
            add(rank, &there, 8).says("an add")?;
            // Numbered in the order of posting. INLINE: the call takes the bytes.
            let mut bytes = number.to_ne_bytes();
            let local = unipgas_core::Local::unregistered(bytes.as_mut_ptr());
            let dst = remote(&there, 16);
            let flags = Flags::INLINE | Flags::ORDERED;
            // SAFETY:
            // - INLINE: the call takes the bytes of this local before it returns.
            unsafe { rank.endpoint.put(local, dst, 8, flags, 0) }.says("a put")?;
            bytes.fill(0xee);
            let record = Record {
                source: u64::from(ctx.rank),
                value: number,
                ..Record::default()
            };
            let sent = rank.deliver(&their_inbox, record, Flags::ORDERED);
            sent.says("a record")?;
        }
        let mut looks = Looks::for_the("records of a flood");
        let mut next = 0;
        while next < MANY {
            rank.endpoint.progress();
            while let Some(record) = reader.take() {
                ensure_eq!(record.value, next, "the next record");
                // The record is ordered after its number, and the number only grows.
                ensure!(word(rank, 16) >= next, "record {next} before its number");
                next += 1;
            }
            looks.again();
        }
        rank.drain().says("drain")?;
        ctx.sync();
        ensure_eq!(word(rank, 8), MANY, "additions");
        ensure_eq!(word(rank, 16), MANY - 1, "the last number");
        ensure_eq!(reader.take(), None, "one more record");
        ctx.sync();
        Ok(())
    })
}

fn long(ctx: &Ctx) -> Verdict {
    const LEN: usize = 150_001;
    on_ranks(ctx, 4 * LEN + 64, |rank| {
        let me = ctx.rank as usize;
        let bytes = |rank: usize| bytes_of(ctx, rank as u64, LEN);
        write(&rank.data, 3 * LEN, &bytes(me));
        write(&rank.scratch, 1, &bytes(me));
        ctx.sync();
        let others = (0..ctx.size).filter(|other| *other != ctx.rank);
        for other in others.clone() {
            let there = rank.data_of(other)?;
            let at = |offset| remote(&there, offset);
            rank.post_put(1, at(me * LEN), LEN, Flags::empty())
                .says("a put")?;
            let into = (1 + other as usize) * LEN + 8;
            let local = rank.scratch.local(into, LEN).says("room")?;
            // SAFETY:
            // - in bounds of the scratch region; the drain comes before the first read.
            unsafe {
                rank.endpoint
                    .get(local, at(3 * LEN), LEN, Flags::empty(), 0)
            }
            .says("a get")?;
        }
        rank.drain().says("drain")?;
        ctx.sync();
        for other in others {
            let other = other as usize;
            let come = read(&rank.data, other * LEN, LEN);
            ensure!(come == bytes(other), "a put of rank {other}");
            let got = read(&rank.scratch, (1 + other) * LEN + 8, LEN);
            ensure!(got == bytes(other), "what was read of rank {other}");
        }
        ctx.sync();
        Ok(())
    })
}

fn nobody_polls(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        if ctx.rank == 0 {
            let there = rank.data_of(1)?;
            for _ in 0..MANY {
                add(rank, &there, 8).says("an add")?;
            }
            // This rank calls nothing of the engine until rank 1 has seen all operations.
            ctx.sync();
            return rank.drain().says("drain");
        }
        let mut looks = Looks::for_the("operations that nobody polls");
        while word(rank, 8) < MANY {
            looks.pause(std::time::Duration::from_millis(1));
        }
        ctx.sync();
        Ok(())
    })
}

fn death(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let (victim, other) = (ctx.size - 1, 1 - ctx.rank.min(1));
        let there = rank.data_of(other)?;
        let dead = rank.data_of(victim);
        ctx.sync();
        if ctx.rank == victim {
            ctx.dies();
        }
        let dead = dead?;
        for nth in 0..MANY {
            // Some are posted before the death is known, some after.
            match add(rank, &dead, 8) {
                Ok(_) | Err(Error::PeerDead | Error::StaleRegion) => {}
                Err(error) => return Err(format!("operation {nth} to the dead: {error}")),
            }
            add(rank, &there, 8).says("an operation to the living")?;
        }
        let mut looks = Looks::for_the("the end of all operations");
        let mut wrong = None;
        while rank.endpoint.pending() > 0 {
            rank.endpoint.poll(&mut |end| match end.result {
                Ok(()) | Err(Error::PeerDead | Error::StaleRegion) => {}
                Err(error) => wrong = Some(error),
            });
            looks.again();
        }
        ensure!(wrong.is_none(), "an operation ended with {wrong:?}");
        let mut looks = Looks::for_the("the death");
        while rank.world.lives_now(victim) != Life::Dead {
            looks.again();
        }
        ctx.sync();
        ensure_eq!(word(rank, 8), MANY, "what a living rank has sent");
        ctx.sync();
        Ok(())
    })
}
