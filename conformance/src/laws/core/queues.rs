//! Queues of requests, and inboxes.

use unipgas_core::inbox::{self, InboxLayout, InboxReader, Record};
use unipgas_core::transport::Life;
use unipgas_core::{Deadline, Error, Flags, Region, RemoteRegion, Rights};

use super::rank::{EXTRA, Rank, Says, is, late, on_ranks, refused, remote, write};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.queue.depth", "GASPI 17.1 §8.5.3; unipgas core: Endpoint::claim", 2,
        "a queue takes as many requests as it has places, and again as many after a drain" => depth;
    "core.queue.apart", "unipgas core: Engine::endpoint", 2,
        "endpoints have their own places" => apart;
    "core.inbox.once-in-order", "unipgas core: Channel::deliver", 4 + ordering,
        "records arrive once, and records of a sender in order" => |ctx| once_in_order(ctx, Rights::FULL);
    "core.inbox.for-records", "unipgas core: Rights::RECORDS", 4 + ordering,
        "so they do in memory that is for records alone, where a peer across a network reads and writes nothing" => |ctx| once_in_order(ctx, Rights::FULL | Rights::RECORDS);
    "core.inbox.full", "unipgas core: Error::InboxFull", 2,
        "a full inbox refuses a record, and loses none" => full;
    "core.leave.is-no-death", "unipgas core: Transport::leave", 2,
        "a rank that leaves properly has left, and has not died" => leaves;
}

fn depth(ctx: &Ctx) -> Verdict {
    const DEPTH: u32 = 8;
    on_ranks(ctx, 4096, |rank| {
        let there = rank.data_of(rank.other())?;
        let queue = rank.engine().endpoint(DEPTH).says("an endpoint")?;
        let is_full = |error: &Error| *error == Error::QueueFull;
        let local = rank.scratch.local(0, 64).says("source")?;
        for round in 0..3 {
            let ended = queue.claim(DEPTH + 1);
            refused(ended, is_full, "more places than there are")?;
            let ended = queue.claim(u32::MAX);
            refused(ended, is_full, "as many places as can be said")?;
            let seen = queue.posted();
            ensure_eq!(seen, 0, "requests in a queue that refused (round {round})");
            for nth in 0..DEPTH {
                queue.claim(1).says(&format!("place {nth} of {DEPTH}"))?;
                let dst = remote(&there, nth as usize * 64);
                // SAFETY:
                // - in bounds of the scratch region, which outlives the queue.
                let posted = unsafe { queue.put(local, dst, 64, Flags::empty(), 0) };
                queue.posted_or_not(1, u32::from(posted.is_ok()));
                posted.says("put")?;
                ensure_eq!(queue.posted(), nth + 1, "requests in the queue");
            }
            refused(queue.claim(1), is_full, "a place in a full queue")?;
            ensure_eq!(queue.posted(), DEPTH, "requests in a full queue");
            queue
                .drain(rank.engine(), late(), &mut || rank.world.check_anyone())
                .says("drain")?;
            let seen = (queue.posted(), queue.pending());
            ensure_eq!(seen, (0, 0), "requests after a drain");
        }
        // Claimed requests that were not posted occupy no place.
        for _ in 0..3 * DEPTH {
            queue.claim(3).says("three places")?;
            queue.posted_or_not(3, 0);
        }
        ensure_eq!(queue.posted(), 0, "requests that were never posted");
        queue
            .drain(rank.engine(), Deadline::Now, &mut || Ok(()))
            .says("drain of an empty queue")
    })
}

fn apart(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let (one, other) = (
            rank.engine().endpoint(1).says("an endpoint")?,
            rank.engine().endpoint(1).says("an endpoint")?,
        );
        one.claim(1).says("the only place")?;
        one.posted_or_not(1, 1);
        refused(one.claim(1), is(Error::QueueFull), "a second place")?;
        other.claim(1).says("a place of another queue")?;
        other.posted_or_not(1, 1);
        one.purge();
        one.claim(1).says("the only place, after a purge")?;
        one.posted_or_not(1, 0);
        ensure_eq!(other.posted(), 1, "requests of the other queue");
        Ok(())
    })
}

/// An inbox of this rank, published to all.
pub(super) fn open_inbox(
    rank: &Rank<'_>,
    capacity: usize,
    rights: Rights,
) -> Result<(Region, InboxReader), String> {
    let layout = InboxLayout::new(capacity).says("layout")?;
    let region = rank
        .engine()
        .allocate(layout.size(), rights)
        .says("allocate")?;
    // SAFETY:
    // - the region has the size of the layout, and peers do not know it yet.
    unsafe { inbox::initialise(region.base(), capacity) }.says("initialise")?;
    // SAFETY:
    // - the caller keeps the region until its last use of the reader; this is the only reader.
    let reader = unsafe { InboxReader::attach(region.base(), region.len()) }.says("attach")?;
    rank.list(EXTRA, &region).says("list")?;
    Ok((region, reader))
}

fn record(source: u32, number: u64) -> Record {
    Record {
        source: u64::from(source),
        kind: source * 3,
        len: number as u32,
        value: number,
        offset: !number,
    }
}

fn take(rank: &Rank<'_>, reader: &mut InboxReader) -> Result<Record, String> {
    rank.await_some(|| reader.take())
        .says("waiting for a record")
}

fn once_in_order(ctx: &Ctx, rights: Rights) -> Verdict {
    const RECORDS: u64 = 60;
    on_ranks(ctx, 64, |rank| {
        if ctx.rank == 0 {
            let (region, mut reader) = open_inbox(rank, 256, rights)?;
            ctx.sync();
            let mut next = vec![0; ctx.size as usize];
            for _ in 0..RECORDS * u64::from(ctx.size - 1) {
                let seen = take(rank, &mut reader)?;
                let source = seen.source as u32;
                ensure!(
                    (1..ctx.size).contains(&source),
                    "a record without a sender: {seen:?}"
                );
                let expected = record(source, next[source as usize]);
                ensure_eq!(seen, expected, "next record of rank {source}");
                next[source as usize] += 1;
            }
            ctx.sync();
            ensure_eq!(reader.take(), None, "one record more");
            ensure_eq!(reader.lost(), 0, "records lost");
            drop(region);
            return Ok(());
        }
        ctx.sync();
        let inbox = rank.listed(0, EXTRA)?;
        if !inbox.parts().rights.intersects(Rights::FULL) {
            reaches_nothing(rank, &inbox)?;
        }
        for number in 0..RECORDS {
            let posted = rank.deliver(&inbox, record(ctx.rank, number), Flags::ORDERED);
            posted.says("record")?;
            if number % 16 == 0 {
                rank.drain().says("drain")?;
            }
        }
        rank.drain().says("drain")?;
        ctx.sync();
        Ok(())
    })
}

/// Puts, gets and atomics are refused; a notice is a write and is refused, too.
fn reaches_nothing(rank: &Rank<'_>, inbox: &RemoteRegion) -> Verdict {
    let there = remote(inbox, 0);
    let denied = |error: &Error| *error == Error::AccessDenied;
    refused(rank.try_put(there, 8), denied, "a put")?;
    refused(rank.get(there, 8), denied, "a get")?;
    refused(rank.notify(there, 1), denied, "a notice")?;
    refused(rank.fetch_add(there, 1), denied, "an addition")
}

fn full(ctx: &Ctx) -> Verdict {
    const CAPACITY: u64 = 8;
    on_ranks(ctx, 64, |rank| {
        if ctx.rank == 0 {
            let (region, mut reader) = open_inbox(rank, CAPACITY as usize, Rights::FULL)?;
            for _ in 0..5 {
                ctx.sync();
                ctx.sync();
                for number in 0..CAPACITY {
                    ensure_eq!(reader.take(), Some(record(1, number)), "record {number}");
                }
                ensure_eq!(reader.take(), None, "record of a delivery that was refused");
            }
            ctx.sync();
            drop(region);
            return Ok(());
        }
        for _ in 0..5 {
            ctx.sync();
            let inbox = rank.listed(0, EXTRA)?;
            let deliver = |number| rank.deliver(&inbox, record(1, number), Flags::empty());
            for number in 0..CAPACITY {
                rank.end(deliver(number))
                    .says(&format!("record {number} of {CAPACITY}"))?;
            }
            for _ in 0..3 {
                let ended = rank.end(deliver(99));
                refused(ended, is(Error::InboxFull), "a record for a full inbox")?;
            }
            ctx.sync();
        }
        ctx.sync();
        Ok(())
    })
}

fn leaves(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let there = rank.data_of(rank.other())?;
        write(&rank.scratch, 0, &[1; 8]);
        rank.try_put(remote(&there, 0), 8).says("put")?;
        ctx.sync();
        if ctx.rank == 1 {
            rank.world.leave().says("leave")?;
            ctx.sync();
            ctx.sync();
            return Ok(());
        }
        ctx.sync();
        let seen = rank.world.lives_now(1);
        ensure_eq!(seen, Life::Left, "life of a rank that has left");
        rank.world.check_anyone().says("a wait for anyone")?;
        ensure_eq!(rank.world.lives(), [Life::Alive, Life::Left], "lives");
        // A wait for this rank alone ends: it can send nothing any more.
        let mut since = None;
        let waited = rank.engine().wait(
            late(),
            &mut || rank.world.check_ranks(&[1], &mut since),
            || Ok(None::<()>),
        );
        let what = "a wait for a rank that has left";
        refused(waited, is(Error::RankDead(1)), what)?;
        ctx.sync();
        Ok(())
    })
}
