//! §8.2, §8.3, §8.4: writing and reading, with notifications.

use super::kit::*;
use crate::kit::bytes_of;
use crate::law::Random;

laws! {
    writes_of_all_sizes: "write.sizes", "§8.2.1", 2, [gaspi_write, gaspi_notify, gaspi_wait],
        "a contiguous block of any size goes to its place, and no byte beside it changes";
    reads_of_all_sizes: "read.sizes", "§8.2.2", 2, [gaspi_read, gaspi_wait],
        "after gaspi_wait the data read is there, and no byte beside it has changed";
    to_oneself: "write.self", "§8.2.1", 2, [gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_read_notify],
        "the own rank is a rank like any other";
    notify_after_writes: "notify.not-overtaking", "§8.3.2", 4, [gaspi_write, gaspi_notify, gaspi_notify_waitsome] + ordering,
        "a notification does not overtake earlier writes of its queue to the same rank";
    notify_after_large_writes: "notify.not-overtaking.large", "§8.3.2", 2, [gaspi_write, gaspi_notify] + ordering,
        "a notification does not overtake large writes";
    notify_per_destination: "notify.not-overtaking.destinations", "§8.3.2", 4, [gaspi_write, gaspi_notify] + ordering,
        "writes to several ranks interleaved on one queue: each rank's notification comes after its own data";
    write_notify_carries_data: "write_notify.own-data", "§8.4.1", 4, [gaspi_write_notify, gaspi_notify_waitsome] + ordering,
        "when the notification of gaspi_write_notify is there, its data is";
    first_with_test: "transfer.first", "§4.2.1, §5.2.1", 3, [gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_atomic_fetch_add],
        "the first request to a rank succeeds with GASPI_TEST, where gaspi_proc_init builds the infrastructure; without a segment there it is refused";
    read_notify_carries_data: "read_notify.own-data", "§8.4.4", 3, [gaspi_read_notify, gaspi_notify_waitsome] + ordering,
        "when the notification of gaspi_read_notify is there, its data is, and the value is 1";
    nothing_to_transfer: "transfer.size-zero", "§8.2.1", 2, [gaspi_write, gaspi_read, gaspi_write_notify, gaspi_read_notify],
        "size 0 transfers nothing, also at the very end of a segment, and still notifies";
    largest_transfer configured(|config| config.transfer_size_max = MOST as u64): "transfer.size-max", "§12.3.4", 2, [gaspi_transfer_size_max, gaspi_write_notify, gaspi_read] + bare,
        "one transfer may have gaspi_transfer_size_max bytes, and not one more";
    many_megabytes: "transfer.large", "§8.2.1", 2, [gaspi_write_notify, gaspi_read_notify],
        "a transfer of 24 MiB arrives whole";
    source_is_free_after_wait: "wait.source-reusable", "§8.2.3", 2, [gaspi_write, gaspi_wait, gaspi_notify] + ordering,
        "after gaspi_wait the source may change: the bytes at the time of the post arrive";
    read_after_wait: "wait.read-complete", "§8.2.2", 4, [gaspi_read, gaspi_wait] + ordering,
        "after gaspi_wait all reads of the queue are complete, from whatever rank";
    read_sees_what_was_notified: "read.after-notification", "§8.2.2", 3, [gaspi_read, gaspi_write, gaspi_notify] + ordering,
        "a read that follows a notification finds what its sender had stored before it";
    all_to_all: "write.all-to-all", "§8.2.1", 4, [gaspi_write_notify, gaspi_notify_waitsome, gaspi_notify_reset] + ordering,
        "all ranks write to all at once over all queues; everything arrives, once and in its place";
    chain_of_ranks: "write.chain", "§8.3.3", 4, [gaspi_write_notify, gaspi_notify_waitsome] + ordering,
        "a rank can pass on data after its notification";
}

const GUARD: usize = 64;

const SIZES: [usize; 22] = [
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 255, 1000, 4095, 4096, 4097, 65_536,
    300_001,
];

fn writes_of_all_sizes(ctx: &Ctx) -> Verdict {
    let len = 400_000;
    let memory = segment(0, len)?;
    let mut random = ctx.random(0);
    for (round, size) in SIZES.into_iter().enumerate() {
        let from = random.below(300) as usize;
        let to = GUARD + random.below(300) as usize;
        let data = random_bytes(&mut random, size);
        if ctx.rank == 0 {
            memory.store(from, &data);
            post::write(0, from as u64, 1, 0, to as u64, size as u64).ok(0, LONG)?;
            ok!(gaspi_notify(0, 1, 1, round as u32 + 1, 0, LONG));
            flush(0)?;
            notified(0, 2)?;
        } else {
            // The bytes around the data stay 0.
            ensure_eq!(notified(0, 1)?, round as u32 + 1, "the notification");
            memory.holds(to, &data, &format!("a write of {size} bytes"))?;
            memory.all(to - GUARD, GUARD, 0, "before the target")?;
            memory.all(to + size, GUARD, 0, "behind the target")?;
            memory.store(to, &vec![0; size]);
            ok!(gaspi_notify(0, 0, 2, 1, 0, LONG));
        }
    }
    Ok(())
}

fn reads_of_all_sizes(ctx: &Ctx) -> Verdict {
    let len = 400_000;
    let memory = segment(0, len)?;
    let data = bytes_of(ctx, 7, len);
    let target = segment(1, len)?;
    if ctx.rank == 1 {
        memory.store(0, &data);
    }
    barrier()?;
    if ctx.rank == 0 {
        let mut random = ctx.random(1);
        for size in SIZES {
            let from = random.below((len - size) as u64) as usize;
            let to = GUARD + random.below(300) as usize;
            post::read(1, to as u64, 1, 0, from as u64, size as u64).ok(0, LONG)?;
            flush(0)?;
            let what = format!("a read of {size} bytes");
            target.holds(to, &data[from..from + size], &what)?;
            target.all(to - GUARD, GUARD, 0, "before the target")?;
            target.all(to + size, GUARD, 0, "behind the target")?;
            target.store(to, &vec![0; size]);
        }
    }
    barrier()
}

fn to_oneself(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 1024)?;
    let me = ctx.rank as u16;
    let data = bytes_of(ctx, u64::from(me), 100);
    memory.store(0, &data);
    ok!(gaspi_write(0, 0, me, 0, 200, 100, 0, LONG));
    ok!(gaspi_notify(0, me, 0, 5, 0, LONG));
    ensure_eq!(notified(0, 0)?, 5, "the own notification");
    memory.holds(200, &data, "a write to the own rank")?;
    ok!(gaspi_write_notify(0, 200, me, 0, 400, 100, 1, 6, 0, LONG));
    ensure_eq!(notified(0, 1)?, 6, "the own notification");
    memory.holds(400, &data, "a write_notify to the own rank")?;
    ok!(gaspi_read(0, 600, me, 0, 400, 100, 0, LONG));
    flush(0)?;
    memory.holds(600, &data, "a read from the own rank")?;
    ok!(gaspi_read_notify(0, 800, me, 0, 600, 100, 2, 0, LONG));
    ensure_eq!(notified(0, 2)?, 1, "the notification of a read");
    memory.holds(800, &data, "a read_notify from the own rank")?;
    flush(0)
}

/// Every rank writes to the next one, in rounds: several writes, then a notification. Each round has other data.
pub(super) fn rounds(
    ctx: &Ctx,
    rounds: u32,
    sizes: impl Fn(&mut Random) -> Vec<usize>,
    post: impl Fn(&mut Random, &[(u64, u64, u64)], u16, u32) -> Verdict,
) -> Verdict {
    let len = 1 << 17;
    let source = segment(0, len)?;
    let target = segment(1, len)?;
    let mut here = ctx.random(100 + u64::from(ctx.rank));
    let mut there = ctx.random(100 + u64::from(left(ctx)));
    let mut choices = ctx.random(5);
    for round in 1..=rounds {
        // Both ends draw the same numbers.
        let draw = |random: &mut Random| {
            let mut at = 0;
            let mut parts = Vec::new();
            for size in sizes(random) {
                let gap = random.below(9) as usize;
                parts.push(((at + gap) as u64, (at + 8 - gap) as u64, size as u64));
                at += size + 16;
            }
            let data = parts
                .iter()
                .map(|part| random_bytes(random, part.2 as usize));
            let data: Vec<Vec<u8>> = data.collect();
            (parts, data)
        };
        let (parts, data) = draw(&mut here);
        for (part, data) in parts.iter().zip(&data) {
            source.store(part.0 as usize, data);
        }
        post(&mut choices, &parts, right(ctx), round)?;
        ensure_eq!(notified(1, 0)?, round, "the notification's value");
        let (parts, data) = draw(&mut there);
        for (i, (part, data)) in parts.iter().zip(&data).enumerate() {
            let what = format!("round {round}, write {i} of {}", parts.len());
            target.holds(part.1 as usize, data, &what)?;
        }
        for_all(0..8, flush)?;
        // The next round overwrites the target.
        barrier()?;
    }
    Ok(())
}

pub(super) fn few_small(random: &mut Random) -> Vec<usize> {
    (0..1 + random.below(8))
        .map(|_| 1 + random.below(300) as usize)
        .collect()
}

fn notify_after_writes(ctx: &Ctx) -> Verdict {
    rounds(ctx, 12, few_small, |random, parts, to, round| {
        let queue = random.below(8) as u8;
        for (from, at, size) in parts {
            ok!(gaspi_write(0, *from, to, 1, *at, *size, queue, LONG));
        }
        done!(gaspi_notify(1, to, 0, round, queue, LONG))
    })
}

fn notify_after_large_writes(ctx: &Ctx) -> Verdict {
    let sizes = |random: &mut Random| vec![40_000 + random.below(10_000) as usize, 3, 50_000];
    rounds(ctx, 4, sizes, |_, parts, to, round| {
        for (from, at, size) in parts {
            ok!(gaspi_write(0, *from, to, 1, *at, *size, 2, LONG));
        }
        done!(gaspi_notify(1, to, 0, round, 2, LONG))
    })
}

fn notify_per_destination(ctx: &Ctx) -> Verdict {
    let n = ctx.size as usize;
    let writes = 10usize;
    let source = segment(0, 8 * writes * n * 4)?;
    let target = segment(1, 8 * writes * n)?;
    barrier()?;
    for round in 1..=4u64 {
        let base = (round as usize - 1) * 8 * writes * n;
        for i in 0..writes {
            for rank in others(ctx) {
                let at = base + 8 * (i * n + rank as usize);
                source.set(at, round << 32 | (i as u64) << 8 | u64::from(ctx.rank));
                let to = 8 * (i * n + ctx.rank as usize) as u64;
                ok!(gaspi_write(0, at as u64, rank, 1, to, 8, 1, LONG));
            }
        }
        for rank in others(ctx) {
            ok!(gaspi_notify(1, rank, ctx.rank, round as u32, 1, LONG));
        }
        for rank in others(ctx) {
            let value = notified(1, u32::from(rank))?;
            ensure_eq!(value, round as u32, "the notification of rank {rank}");
            for i in 0..writes {
                let seen = target.get(8 * (i * n + rank as usize));
                let expected = round << 32 | (i as u64) << 8 | u64::from(rank);
                ensure_eq!(seen, expected, "write {i} of rank {rank} in {round}");
            }
        }
        barrier()?;
    }
    flush(1)
}

fn write_notify_carries_data(ctx: &Ctx) -> Verdict {
    let one = |random: &mut Random| vec![1 + random.below(9000) as usize];
    rounds(ctx, 16, one, |random, parts, to, round| {
        let (from, at, size) = parts[0];
        let queue = random.below(8) as u8;
        post::write_notify(0, from, to, 1, at, size, 0, round).ok(queue, LONG)
    })
}

fn first_with_test(ctx: &Ctx) -> Verdict {
    // Each request is the first one to its segment.
    for_all(0..5, |id| segment(id, 4096))?;
    barrier()?;
    let (to, mut old) = (right(ctx), 0);
    ok!(gaspi_write(0, 0, to, 0, 8, 8, 0, TEST));
    ok!(gaspi_read(1, 0, to, 1, 8, 8, 0, TEST));
    ok!(gaspi_notify(2, to, 3, 1, 0, TEST));
    ok!(gaspi_write_notify(3, 0, to, 3, 8, 8, 3, 1, 0, TEST));
    ok!(gaspi_atomic_fetch_add(4, 64, to, 1, &mut old, LONG));
    for rank in 0..ctx.size as u16 {
        let code = c!(gaspi_atomic_fetch_add(9, 0, rank, 1, &mut old, TEST));
        must_fail(code, "an atomic operation without a segment")?;
    }
    flush(0)?;
    barrier()
}

fn read_notify_carries_data(ctx: &Ctx) -> Verdict {
    let (len, n) = (50_000usize, 12u32);
    let source = segment(0, len)?;
    let target = segment(1, len * 2)?;
    source.store(0, &bytes_of(ctx, u64::from(ctx.rank), len));
    barrier()?;
    let mut random = ctx.random(40 + u64::from(ctx.rank));
    let mut posted = Vec::new();
    let mut at = 0;
    for id in 0..n {
        let size = 1 + random.below(8000) as usize;
        let from = random.below((len - size) as u64) as usize;
        let peer = random.below(u64::from(ctx.size)) as u16;
        let queue = random.below(8) as u8;
        post::read_notify(1, at as u64, peer, 0, from as u64, size as u64, id).ok(queue, LONG)?;
        posted.push((at, peer, from, size));
        at += size;
    }
    for _ in 0..n {
        let (id, value) = taken(1, 0, n)?;
        ensure_eq!(value, 1, "the notification of a read");
        let (at, peer, from, size) = posted[id as usize];
        let (all, what) = (
            bytes_of(ctx, peer.into(), len),
            format!("read {id} from {peer}"),
        );
        target.holds(at, &all[from..from + size], &what)?;
    }
    barrier()?;
    (0..8).try_for_each(flush)
}

fn nothing_to_transfer(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 100)?;
    memory.fill(9);
    barrier()?;
    let peer = right(ctx);
    for offset in [0, 1, 50, 100] {
        ok!(gaspi_write(0, offset, peer, 0, 100 - offset, 0, 0, LONG));
        ok!(gaspi_read(0, offset, peer, 0, 100 - offset, 0, 0, LONG));
    }
    ok!(gaspi_write_notify(0, 100, peer, 0, 100, 0, 4, 44, 0, LONG));
    ensure_eq!(notified(0, 4)?, 44, "the notification of an empty write");
    ok!(gaspi_read_notify(0, 100, peer, 0, 100, 0, 5, 0, LONG));
    ensure_eq!(notified(0, 5)?, 1, "the notification of an empty read");
    flush(0)?;
    post::write(0, 101, peer, 0, 0, 0).gives(GASPI_ERR_INV_LOC_OFF, 0, LONG)?;
    post::write(0, 0, peer, 0, 101, 0).gives(GASPI_ERR_INV_REM_OFF, 0, LONG)?;
    barrier()?;
    memory.all(0, 100, 9, "a segment after empty transfers")
}

const MOST: usize = 100_003;

fn largest_transfer(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 3 * MOST)?;
    let data = bytes_of(ctx, u64::from(ctx.rank), MOST + 1);
    memory.store(0, &data);
    barrier()?;
    let size = MOST as u64;
    post::write_notify(0, 0, right(ctx), 0, size + 10, size, 0, 1).ok(0, LONG)?;
    gives! { GASPI_ERR_INV_COMMSIZE:
        gaspi_write_notify(0, 0, right(ctx), 0, size + 10, size + 1, 1, 1, 0, LONG);
        gaspi_write(0, 0, right(ctx), 0, size + 10, size + 1, 0, LONG);
    }
    notified(0, 0)?;
    let theirs = bytes_of(ctx, u64::from(left(ctx)), MOST + 1);
    memory.holds(MOST + 10, &theirs[..MOST], "the largest write")?;
    memory.all(2 * MOST + 10, 10, 0, "behind it")?;
    flush(0)?;
    barrier()?;
    post::read(0, size + 10, right(ctx), 0, 0, size + 1).gives(GASPI_ERR_INV_COMMSIZE, 0, LONG)?;
    memory.holds(MOST + 10, &theirs[..MOST], "the target of a refused read")?;
    ok!(gaspi_read(0, size + 10, right(ctx), 0, 0, size, 0, LONG));
    flush(0)?;
    let theirs = bytes_of(ctx, u64::from(right(ctx)), MOST + 1);
    memory.holds(MOST + 10, &theirs[..MOST], "the largest read")
}

fn many_megabytes(ctx: &Ctx) -> Verdict {
    let len = 24usize << 20;
    let source = segment(0, len)?;
    let target = segment(1, len)?;
    let step = 4096;
    for at in (0..len).step_by(step) {
        source.set(at, at as u64 ^ 0xabcd ^ u64::from(ctx.rank));
        source.set(at + step - 8, at as u64 + u64::from(ctx.rank));
    }
    barrier()?;
    let check = |from: u16| -> Verdict {
        for at in (0..len).step_by(step) {
            target.shows(at, at as u64 ^ 0xabcd ^ u64::from(from), "a word")?;
            target.shows(at + step - 8, at as u64 + u64::from(from), "a word")?;
        }
        Ok(())
    };
    post::write_notify(0, 0, right(ctx), 1, 0, len as u64, 0, 1).ok(0, LONG)?;
    notified(1, 0)?;
    check(left(ctx))?;
    flush(0)?;
    barrier()?;
    post::read_notify(1, 0, right(ctx), 0, 0, len as u64, 1).ok(0, LONG)?;
    notified(1, 1)?;
    check(right(ctx))?;
    flush(0)?;
    barrier()
}

fn source_is_free_after_wait(ctx: &Ctx) -> Verdict {
    let (rounds, size) = (40usize, 600usize);
    let source = segment(0, size)?;
    let target = segment(1, rounds * size)?;
    barrier()?;
    for round in 0..rounds {
        source.fill(round as u8 + 1);
        post::write(0, 0, right(ctx), 1, (round * size) as u64, size as u64).ok(0, LONG)?;
        flush(0)?;
        source.fill(0xee);
    }
    ok!(gaspi_notify(1, right(ctx), 0, 1, 0, LONG));
    notified(1, 0)?;
    for round in 0..rounds {
        let what = format!("write {round}");
        target.all(round * size, size, round as u8 + 1, &what)?;
    }
    flush(0)
}

fn read_after_wait(ctx: &Ctx) -> Verdict {
    let (n, size) = (20usize, 500usize);
    let source = segment(0, size)?;
    let target = segment(1, n * size)?;
    source.fill(ctx.rank as u8 + 1);
    barrier()?;
    let mut random = ctx.random(u64::from(ctx.rank));
    for round in 0..5 {
        target.fill(0);
        let mut peers = Vec::new();
        for i in 0..n {
            let peer = random.below(u64::from(ctx.size)) as u16;
            post::read(1, (i * size) as u64, peer, 0, 0, size as u64).ok(5, LONG)?;
            peers.push(peer);
        }
        flush(5)?;
        for (i, peer) in peers.iter().enumerate() {
            let what = format!("round {round}, read {i} from rank {peer}");
            target.all(i * size, size, *peer as u8 + 1, &what)?;
        }
    }
    barrier()
}

fn read_sees_what_was_notified(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    for round in 1..=15u64 {
        memory.set(0, round * 10 + u64::from(ctx.rank));
        ok!(gaspi_notify(0, right(ctx), 0, 1, 0, LONG));
        notified(0, 0)?;
        ok!(gaspi_read(0, 8, left(ctx), 0, 0, 8, 1, LONG));
        flush(1)?;
        let expected = round * 10 + u64::from(left(ctx));
        ensure_eq!(memory.get(8), expected, "the word read in round {round}");
        barrier()?;
    }
    flush(0)
}

fn all_to_all(ctx: &Ctx) -> Verdict {
    let n = ctx.size;
    let (per, size) = (24u32, 40usize);
    let count = (n * per) as usize;
    let source = segment(0, count * size)?;
    let target = segment(1, count * size)?;
    let block = |from: u32, to: u32, i: u32| {
        bytes_of(ctx, 1 + u64::from(from * 10_000 + to * 1000 + i), size)
    };
    for to in 0..n {
        for i in 0..per {
            source.store((to * per + i) as usize * size, &block(ctx.rank, to, i));
        }
    }
    barrier()?;
    let mut random = ctx.random(u64::from(ctx.rank));
    let all = (0..n).flat_map(|to| (0..per).map(move |i| (to, i)));
    let mut work: Vec<(u32, u32)> = all.collect();
    for i in (1..work.len()).rev() {
        work.swap(i, random.below(i as u64 + 1) as usize);
    }
    for (to, i) in work {
        let from = (to * per + i) as u64 * size as u64;
        let slot = ctx.rank * per + i;
        let (to, at, size) = (to as u16, u64::from(slot) * size as u64, size as u64);
        let write = post::write_notify(0, from, to, 1, at, size, slot, slot + 1);
        write.ok(random.below(8) as u8, LONG)?;
    }
    let mut seen = vec![false; count];
    for _ in 0..count {
        let (slot, value) = taken(1, 0, count as u32)?;
        ensure_eq!(value, slot + 1, "the value of notification {slot}");
        let again = std::mem::replace(&mut seen[slot as usize], true);
        ensure!(!again, "notification {slot} came twice");
        let expected = block(slot / per, ctx.rank, slot % per);
        target.holds(slot as usize * size, &expected, &format!("slot {slot}"))?;
    }
    barrier()?;
    none_notified(1, 0, 65_536)?;
    (0..8).try_for_each(flush)
}

fn chain_of_ranks(ctx: &Ctx) -> Verdict {
    let len = 3000usize;
    let memory = segment(0, len)?;
    barrier()?;
    for round in 1..=8u32 {
        let data = bytes_of(ctx, u64::from(round), len);
        if ctx.rank == 0 {
            memory.store(0, &data);
        } else {
            ensure_eq!(notified(0, 0)?, round, "the notification");
            memory.holds(0, &data, &format!("round {round}"))?;
        }
        post::write_notify(0, 0, right(ctx), 0, 0, len as u64, 0, round).ok(0, LONG)?;
        flush(0)?;
        if ctx.rank == 0 {
            ensure_eq!(notified(0, 0)?, round, "the notification, once around");
            memory.holds(0, &data, &format!("round {round}, once around"))?;
        }
    }
    barrier()
}
