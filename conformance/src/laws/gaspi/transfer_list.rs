//! §8.4: writing and reading by lists.

use super::kit::*;
use super::post::Parts;
use super::transfer::{few_small, rounds};
use crate::kit::bytes_of;

laws! {
    notify_after_lists: "notify.not-overtaking.lists", "§8.4", 3, [gaspi_write_list, gaspi_write_notify, gaspi_notify] + ordering,
        "a notification overtakes neither write_list nor write_notify of its queue to the same rank";
    write_list_notify_carries_data: "write_list_notify.own-data", "§8.4.3", 3, [gaspi_write_list_notify, gaspi_notify_waitsome] + ordering,
        "when the notification of gaspi_write_list_notify is there, the data of all elements is";
    read_list_notify_carries_data: "read_list_notify.own-data", "§8.4.6", 3, [gaspi_read_list_notify, gaspi_notify_waitsome] + ordering,
        "when the notification of gaspi_read_list_notify is there, the data of all elements is, and the value is 1";
    read_notifies_where_told: "read_list_notify.segment", "§8.4.6", 2, [gaspi_read_list_notify, gaspi_read_notify],
        "the local notification is set in the segment that is named for it";
    lists_are_writes: "write_list.data", "§8.4.2", 2, [gaspi_write_list, gaspi_notify] + ordering,
        "gaspi_write_list does what as many calls of gaspi_write do, over several segments";
    lists_are_reads: "read_list.data", "§8.4.5", 2, [gaspi_read_list, gaspi_wait] + ordering,
        "gaspi_read_list does what as many calls of gaspi_read do";
    longest_list: "list.longest", "§8.4.2", 2, [gaspi_write_list_notify, gaspi_read_list, gaspi_rw_list_elem_max],
        "lists may have gaspi_rw_list_elem_max elements";
}

fn notify_after_lists(ctx: &Ctx) -> Verdict {
    rounds(ctx, 8, few_small, |_, parts, to, round| {
        let (first, rest) = parts.split_at(1);
        let (from, at, size) = first[0];
        post::write_notify(0, from, to, 1, at, size, 9, round).ok(3, LONG)?;
        if !rest.is_empty() {
            Parts::new(0, 1, rest).write(to).ok(3, LONG)?;
        }
        done!(gaspi_notify(1, to, 0, round, 3, LONG))
    })
}

fn write_list_notify_carries_data(ctx: &Ctx) -> Verdict {
    rounds(ctx, 10, few_small, |random, parts, to, round| {
        let (list, queue) = (Parts::new(0, 1, parts), random.below(8) as u8);
        list.write_notify(to, 1, 0, round).ok(queue, LONG)
    })
}

fn read_list_notify_carries_data(ctx: &Ctx) -> Verdict {
    let len = 20_000usize;
    let source = segment(0, len)?;
    let target = segment(1, len)?;
    let all = (0..ctx.size).map(|rank| bytes_of(ctx, rank.into(), len));
    let all: Vec<Vec<u8>> = all.collect();
    source.store(0, &all[ctx.rank as usize]);
    barrier()?;
    let mut random = ctx.random(90 + u64::from(ctx.rank));
    for round in 0..8u32 {
        target.fill(0);
        let peer = random.below(u64::from(ctx.size)) as u16;
        let mut at = 0;
        let mut parts = Vec::new();
        for _ in 0..1 + random.below(12) {
            let size = 1 + random.below(1000);
            at += size + 1;
            parts.push((at - size, random.below(len as u64 - size), size));
        }
        let list = Parts::new(1, 0, &parts);
        list.read_notify(peer, 0, round).ok(2, LONG)?;
        ensure_eq!(notified(0, round)?, 1, "the notification of reads");
        for (at, from, size) in &parts {
            let expected = &all[peer as usize][*from as usize..(*from + *size) as usize];
            let what = format!("an element read from rank {peer}");
            target.holds(*at as usize, expected, &what)?;
            target.all(*at as usize - 1, 1, 0, "the byte between two elements")?;
        }
        flush(2)?;
    }
    barrier()
}

fn read_notifies_where_told(ctx: &Ctx) -> Verdict {
    for_all(0..3, |id| segment(id, 64))?;
    let list = Parts::new(0, 1, &[(0, 0, 8)]);
    list.read_notify(right(ctx), 2, 7).ok(0, LONG)?;
    ensure_eq!(notified(2, 7)?, 1, "the notification");
    ok!(gaspi_read_notify(1, 0, right(ctx), 2, 0, 8, 9, 0, LONG));
    ensure_eq!(notified(1, 9)?, 1, "the notification at the reader");
    flush(0)?;
    barrier()?;
    for_all(0..3, |segment| none_notified(segment, 0, 100))?;
    barrier()
}

fn lists_are_writes(ctx: &Ctx) -> Verdict {
    let segments = (0..4).map(|id| segment(id, 4096));
    let segments: Vec<Memory> = segments.collect::<Result<_, _>>()?;
    let mut random = ctx.random(2);
    for round in 1..=6u32 {
        let num = 1 + random.below(40) as usize;
        let mut model = vec![vec![0u8; 4096]; 2];
        let mut list = Parts::default();
        let data: Vec<Vec<u8>> = (0..2).map(|_| random_bytes(&mut random, 4096)).collect();
        let mut next = [0u64; 2];
        for _ in 0..num {
            let (from, to) = (random.below(2) as u8, random.below(2) as u8);
            // Targets do not overlap: the elements of a list have no order.
            let size = random.below(80);
            let at = next[usize::from(to)];
            let source = random.below(4096 - size);
            next[usize::from(to)] += size + random.below(4);
            model[usize::from(to)][at as usize..][..size as usize]
                .copy_from_slice(&data[usize::from(from)][source as usize..][..size as usize]);
            list.push((from, source), (2 + to, at), size);
        }
        if ctx.rank == 0 {
            segments[0].store(0, &data[0]);
            segments[1].store(0, &data[1]);
            list.write(1).ok(0, LONG)?;
            ok!(gaspi_notify(2, 1, 3, round, 0, LONG));
            flush(0)?;
        } else {
            ensure_eq!(notified(2, 3)?, round, "the notification");
            for (i, model) in model.iter().enumerate() {
                let what = format!("target segment {i} of a list of {num}");
                segments[2 + i].holds(0, model, &what)?;
                segments[2 + i].fill(0);
            }
        }
        barrier()?;
    }
    Ok(())
}

fn lists_are_reads(ctx: &Ctx) -> Verdict {
    let source = segment(0, 4096)?;
    let target = segment(1, 4096)?;
    let data = |rank: u16| bytes_of(ctx, rank.into(), 4096);
    source.store(0, &data(ctx.rank as u16));
    barrier()?;
    let theirs_data = data(right(ctx));
    let mut random = ctx.random(77);
    for _ in 0..6 {
        target.fill(0);
        let mut model = vec![0u8; 4096];
        let num = 1 + random.below(40) as usize;
        let mut list = Parts::default();
        let mut at = 0;
        for _ in 0..num {
            let size = random.below(90);
            let from = random.below(4096 - size);
            model[at as usize..][..size as usize]
                .copy_from_slice(&theirs_data[from as usize..][..size as usize]);
            list.push((1, at), (0, from), size);
            at += size + random.below(5);
        }
        list.read(right(ctx)).ok(4, LONG)?;
        flush(4)?;
        target.holds(0, &model, &format!("a list of {num} reads"))?;
    }
    barrier()
}

fn longest_list(ctx: &Ctx) -> Verdict {
    let most = got!(gaspi_rw_list_elem_max());
    let n = most as usize;
    let source = segment(0, 16 * n)?;
    let target = segment(1, 16 * n)?;
    for i in 0..n {
        source.set(16 * i, 3 * i as u64 + u64::from(ctx.rank));
    }
    barrier()?;
    // Backwards at the target, and back.
    let end = 16 * (n as u64 - 1);
    let offsets = (0..n as u64).map(|i| 16 * i);
    let parts: Vec<_> = offsets.map(|at| (at, end - at, 8)).collect();
    let list = Parts::new(0, 1, &parts);
    list.write_notify(right(ctx), 1, 0, 1).ok(0, LONG)?;
    notified(1, 0)?;
    for i in 0..n {
        let expected = 3 * i as u64 + u64::from(left(ctx));
        target.shows(16 * (n - 1 - i), expected, "an element")?;
        ensure_eq!(target.get(16 * i + 8), 0, "the bytes behind element {i}");
    }
    flush(0)?;
    barrier()?;
    let mut list = Parts::default();
    for (from, at, size) in parts {
        list.push((1, at), (0, from), size);
    }
    list.read(right(ctx)).ok(0, LONG)?;
    flush(0)?;
    for i in 0..n {
        let expected = 3 * i as u64 + u64::from(right(ctx));
        target.shows(16 * (n - 1 - i), expected, "an element read")?;
    }
    barrier()
}
