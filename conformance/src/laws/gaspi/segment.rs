//! §7: segments.

use super::kit::*;

laws! {
    alloc_is_local: "segment.alloc", "§7.2.1", 2,
        [gaspi_segment_alloc, gaspi_segment_ptr, gaspi_segment_num, gaspi_segment_list, gaspi_segment_delete],
        "gaspi_segment_alloc needs no other rank; stores and loads reach the whole segment";
    register_shows_to_one: "segment.register", "§7.2.2", 3, [gaspi_segment_alloc, gaspi_segment_register],
        "a segment is accessible to the ranks that it is registered with";
    unregistered_is_refused: "segment.unregistered", "§8.2.1", 2,
        [gaspi_segment_alloc, gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_read_notify, gaspi_write_list,
         gaspi_write_list_notify, gaspi_read_list, gaspi_read_list_notify, gaspi_atomic_fetch_add, gaspi_atomic_compare_swap],
        "requests for a segment that is not registered with this rank are refused, and nothing is written";
    register_after_use: "segment.register.later", "§7.2.2", 2, [gaspi_segment_register],
        "an operation that is refused before the registration is accepted after it";
    as_many_as_promised: "segment.max", "§7.4.1", 1, [gaspi_segment_max, gaspi_segment_alloc, gaspi_segment_num, gaspi_segment_avail_local],
        "gaspi_segment_max segments can be had at a time, and not one more";
    names_are_listed: "segment.list", "§7.4.2", 1, [gaspi_segment_list, gaspi_segment_num, gaspi_segment_avail_local],
        "gaspi_segment_list gives the names of the segments there are, each once";
    sizes_differ_by_rank: "segment.sizes", "§7.1", 3, [gaspi_segment_size, gaspi_segment_create],
        "segments of one name may differ in size; each one's bounds count";
    addresses: "segment.address", "§7.5", 2, [gaspi_segment_ptr, gaspi_write, gaspi_read],
        "a buffer lies at the segment's pointer plus the offset, at both ends";
    policies: "segment.policy", "§4.2.4", 1, [gaspi_segment_alloc],
        "GASPI_MEM_INITIALIZED gives zeros, also where memory had been used before";
}

pub(super) fn list() -> Result<Vec<u8>, String> {
    let num = got!(gaspi_segment_num());
    let mut ids = vec![0xee; num as usize + 1];
    ok!(gaspi_segment_list(num, ids.as_mut_ptr()));
    ensure_eq!(ids.pop(), Some(0xee), "the entry behind the list");
    ids.sort();
    Ok(ids)
}

fn alloc_is_local(ctx: &Ctx) -> Verdict {
    if ctx.rank == 0 {
        let lengths = [1usize, 7, 8, 4096, 4097, 1_000_003];
        for (id, len) in (0u8..).zip(lengths) {
            ok!(gaspi_segment_alloc(id, len as u64, 0));
            memory(id, len)?.fill(0xa0 + id);
        }
        for (id, len) in (0u8..).zip(lengths) {
            memory(id, len)?.all(0, len, 0xa0 + id, "a segment")?;
            let size = got!(gaspi_segment_size(id, 0));
            ensure_eq!(size, len as u64, "gaspi_segment_size");
        }
        ensure_eq!(list()?, vec![0, 1, 2, 3, 4, 5], "gaspi_segment_list");
    } else {
        ensure_eq!(list()?, Vec::<u8>::new(), "segment_list at another rank");
    }
    barrier()
}

fn register_shows_to_one(ctx: &Ctx) -> Verdict {
    let source = segment(1, 64)?;
    source.fill(ctx.rank as u8 + 1);
    if ctx.rank == 0 {
        ok!(gaspi_segment_alloc(0, 64, 0));
        ok!(gaspi_segment_register(0, 1, LONG));
        ok!(gaspi_segment_register(0, 1, LONG));
    }
    barrier()?;
    if ctx.rank == 1 {
        ok!(gaspi_write_notify(1, 0, 0, 0, 8, 8, 0, 1, 0, LONG));
    } else if ctx.rank == 2 {
        post::write_notify(1, 0, 0, 0, 8, 8, 0, 1).gives(GASPI_ERR_INV_SEG, 0, LONG)?;
        gives!(GASPI_ERR_INV_SEG, gaspi_write(1, 0, 0, 0, 8, 8, 0, LONG));
        let mut size = 0;
        gives!(GASPI_ERR_INV_SEG, gaspi_segment_size(0, 0, &mut size));
    } else {
        let memory = memory(0, 64)?;
        notified(0, 0)?;
        memory.all(8, 8, 2, "what rank 1 wrote")?;
        memory.all(0, 8, 0, "before it")?;
        memory.all(16, 48, 0, "behind it")?;
    }
    barrier()
}

fn unregistered_is_refused(ctx: &Ctx) -> Verdict {
    let own = segment(1, 256)?;
    own.fill(7);
    if ctx.rank == 0 {
        ok!(gaspi_segment_alloc(0, 256, 0));
        memory(0, 256)?.fill(3);
    }
    barrier()?;
    if ctx.rank == 1 {
        let (mine, theirs, zeros, eights) = ([1u8; 2], [0u8; 2], [0u64; 2], [8u64; 2]);
        let (mine, theirs) = (mine.as_ptr(), theirs.as_ptr());
        let (zeros, eights) = (zeros.as_ptr(), eights.as_ptr());
        let mut old = 99;
        gives! { GASPI_ERR_INV_SEG:
            gaspi_write(1, 0, 0, 0, 0, 8, 0, LONG);
            gaspi_read(1, 0, 0, 0, 0, 8, 0, LONG);
            gaspi_notify(0, 0, 0, 1, 0, LONG);
            gaspi_write_notify(1, 0, 0, 0, 0, 8, 0, 1, 0, LONG);
            gaspi_read_notify(1, 0, 0, 0, 0, 8, 0, 0, LONG);
            gaspi_write_list(2, mine, zeros, 0, theirs, zeros, eights, 0, LONG);
            gaspi_read_list(2, mine, zeros, 0, theirs, zeros, eights, 0, LONG);
            gaspi_write_list_notify(2, mine, zeros, 0, theirs, zeros, eights, 0, 0, 1, 0, LONG);
            gaspi_write_list_notify(2, mine, zeros, 0, mine, zeros, eights, 0, 0, 1, 0, LONG);
            gaspi_read_list_notify(2, mine, zeros, 0, theirs, zeros, eights, 1, 0, 0, LONG);
            gaspi_atomic_fetch_add(0, 0, 0, 1, &mut old, LONG);
            gaspi_atomic_compare_swap(0, 0, 0, 3, 1, &mut old, LONG);
        }
        ensure_eq!(queue_size(0)?, 0, "requests in the queue after refusals");
        own.all(0, 256, 7, "the local segment after refused reads")?;
        none_notified(1, 0, 10)?;
    }
    barrier()?;
    if ctx.rank == 0 {
        memory(0, 256)?.all(0, 256, 3, "the unregistered segment")?;
        own.all(0, 256, 7, "the place of one part of a list")?;
        none_notified(0, 0, 10)?;
    }
    barrier()
}

fn register_after_use(ctx: &Ctx) -> Verdict {
    segment(1, 64)?.fill(9);
    if ctx.rank == 0 {
        ok!(gaspi_segment_alloc(0, 64, 0));
    }
    barrier()?;
    if ctx.rank == 1 {
        post::write_notify(1, 0, 0, 0, 0, 64, 3, 1).gives(GASPI_ERR_INV_SEG, 0, LONG)?;
    }
    barrier()?;
    if ctx.rank == 0 {
        ok!(gaspi_segment_register(0, 1, LONG));
    }
    barrier()?;
    if ctx.rank == 1 {
        ok!(gaspi_write_notify(1, 0, 0, 0, 0, 64, 3, 1, 0, LONG));
    } else {
        notified(0, 3)?;
        memory(0, 64)?.all(0, 64, 9, "data written after the registration")?;
    }
    barrier()
}

fn as_many_as_promised(_: &Ctx) -> Verdict {
    let max = got!(gaspi_segment_max());
    for round in 0..2 {
        let mut made = Vec::new();
        for i in 0..max {
            let id = got!(gaspi_segment_avail_local());
            ensure!(!made.contains(&id), "avail_local gave {id}, in use");
            let code = c!(gaspi_segment_alloc(id, 100, 0));
            ensure_eq!(code, SUCCESS, "segment {} of {max} in round {round}", i + 1);
            made.push(id);
        }
        ensure_eq!(got!(gaspi_segment_num()), max, "gaspi_segment_num");
        let free = (0..=255u8).find(|id| !made.contains(id));
        if let Some(free) = free {
            gives!(GASPI_ERR_MANY_SEG, gaspi_segment_alloc(free, 100, 0));
        }
        for id in made {
            memory(id, 100)?.fill(id);
            ok!(gaspi_segment_delete(id));
        }
    }
    Ok(())
}

fn names_are_listed(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(0);
    let mut there: Vec<u8> = Vec::new();
    for _ in 0..200 {
        let id = random.next() as u8;
        if let Some(at) = there.iter().position(|known| *known == id) {
            ok!(gaspi_segment_delete(id));
            there.remove(at);
        } else if there.len() < 100 {
            ok!(gaspi_segment_alloc(id, 16, 0));
            there.push(id);
        }
        let free = got!(gaspi_segment_avail_local());
        ensure!(!there.contains(&free), "avail_local gave {free}, in use");
    }
    there.sort();
    ensure_eq!(list()?, there, "gaspi_segment_list");
    // A list that is shorter than the number of segments.
    let mut some = [0xee; 4];
    ok!(gaspi_segment_list(3, some.as_mut_ptr()));
    ensure_eq!(some[3], 0xee, "the entry behind a list of 3");
    ensure!(some[..3].iter().all(|id| there.contains(id)), "{some:?}");
    Ok(())
}

fn sizes_differ_by_rank(ctx: &Ctx) -> Verdict {
    let len = |rank: u32| 64 * (u64::from(rank) + 1);
    let memory = segment(0, len(ctx.rank) as usize)?;
    memory.fill(1 + ctx.rank as u8);
    barrier()?;
    for rank in 0..ctx.size {
        let size = got!(gaspi_segment_size(0, rank as u16));
        ensure_eq!(size, len(rank), "gaspi_segment_size of rank {rank}");
    }
    let to = right(ctx);
    let end = len(u32::from(to));
    post::write(0, 0, to, 0, end - 7, 8).gives(GASPI_ERR_INV_REM_OFF, 0, LONG)?;
    ok!(gaspi_write_notify(0, 0, to, 0, end - 8, 8, 0, 1, 0, LONG));
    notified(0, 0)?;
    let end = len(ctx.rank) as usize;
    memory.all(end - 8, 8, 1 + left(ctx) as u8, "what the neighbour wrote")?;
    memory.all(0, end - 8, 1 + ctx.rank as u8, "what nobody wrote")?;
    barrier()
}

fn addresses(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 4096)?;
    let bytes = |rank: u16| -> Vec<u8> {
        let byte = |at: usize| (at as u8).wrapping_mul(7).wrapping_add(rank as u8);
        (0..4096).map(byte).collect()
    };
    memory.store(0, &bytes(ctx.rank as u16));
    barrier()?;
    let (peer, theirs) = (right(ctx), bytes(right(ctx)));
    let target = segment(1, 4096)?;
    let mut random = ctx.random(5);
    for _ in 0..50 {
        let (from, to) = (random.below(4096), random.below(4096));
        let size = 1 + random.below(4096 - from.max(to));
        ok!(gaspi_read(1, to, peer, 0, from, size, 0, LONG));
        flush(0)?;
        let read = &theirs[from as usize..(from + size) as usize];
        target.holds(to as usize, read, "what was read")?;
    }
    barrier()
}

fn policies(_: &Ctx) -> Verdict {
    for round in 0..5 {
        for policy in [1u32, 0] {
            ok!(gaspi_segment_alloc(0, 50_000, policy));
            let memory = memory(0, 50_000)?;
            if policy == 1 {
                memory.all(0, 50_000, 0, "GASPI_MEM_INITIALIZED")?;
            }
            memory.fill(0xff - round);
            ok!(gaspi_segment_delete(0));
        }
    }
    Ok(())
}
