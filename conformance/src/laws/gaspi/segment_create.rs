//! §7.2: segments that all members of a group create and use.

use super::kit::*;

laws! {
    create_is_for_all: "segment.create", "§7.2.3", 4, [gaspi_segment_create] + ordering,
        "when gaspi_segment_create returns, the segments of all members can be used";
    create_for_a_group: "segment.create.group", "§7.2.3", 4, [gaspi_segment_create],
        "gaspi_segment_create over a group makes the segment accessible to its members alone";
    create_continues: "segment.create.timeout", "§7.2.3", 3, [gaspi_segment_create] + ordering,
        "after GASPI_TIMEOUT the segment cannot be used; a later call completes the creation";
    use_continues: "segment.use.timeout", "§7.2.5", 3, [gaspi_segment_use],
        "gaspi_segment_use after GASPI_TIMEOUT is completed by a later call";
    use_is_for_all: "segment.use", "§7.2.5", 3, [gaspi_segment_use] + ordering,
        "gaspi_segment_use makes memory of every member a segment for all";
}

fn create_is_for_all(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(u64::from(ctx.rank));
    if random.below(2) == 0 {
        pause(random.below(4));
    }
    let slot = 16;
    let memory = segment(7, slot * (ctx.size as usize + 1))?;
    let own = slot * ctx.size as usize;
    memory.set(own, 1000 + u64::from(ctx.rank));
    // Directly after the creation, to all ranks and the own one.
    for rank in 0..ctx.size as u16 {
        let at = slot * ctx.rank as usize;
        post::write_notify(7, own as u64, rank, 7, at as u64, 8, ctx.rank, 1).ok(0, LONG)?;
    }
    for rank in 0..ctx.size {
        notified(7, rank)?;
        let expected = 1000 + u64::from(rank);
        memory.shows(slot * rank as usize, expected, "what a rank wrote")?;
    }
    Ok(())
}

fn create_for_a_group(ctx: &Ctx) -> Verdict {
    let source = segment(1, 64)?;
    source.fill(ctx.rank as u8 + 1);
    let inside = ctx.rank.is_multiple_of(2);
    let peer = (ctx.rank + 2) % 4;
    if inside {
        let group = group_of(&[0, 2])?;
        ok!(gaspi_segment_create(0, 64, group, LONG, 0));
        post::write_notify(1, 0, peer as u16, 0, 0, 64, 0, 1).ok(0, LONG)?;
        notified(0, 0)?;
        memory(0, 64)?.all(0, 64, peer as u8 + 1, "the other member's data")?;
    }
    barrier()?;
    if !inside {
        for rank in [0, 2] {
            gives!(GASPI_ERR_INV_SEG, gaspi_write(1, 0, rank, 0, 0, 8, 0, LONG));
        }
        let mut pointer = null_mut();
        gives!(GASPI_ERR_INV_SEG, gaspi_segment_ptr(0, &mut pointer));
    }
    barrier()?;
    if inside {
        memory(0, 64)?.all(0, 64, peer as u8 + 1, "the segment after refused writes")?;
    }
    barrier()
}

fn create_continues(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(1);
    let late = random.below(u64::from(ctx.size)) as u32;
    let called = segment(0, 8)?;
    let mut pointer = null_mut();
    if ctx.rank == late {
        pause(8);
        count_at_all(ctx)?;
        ok!(gaspi_segment_create(4, 128, ALL, BLOCK, 0));
    } else {
        let mut usable = false;
        let patience = random.below(2) * 2;
        repeat("gaspi_segment_create", || {
            let code = c!(gaspi_segment_create(4, 128, ALL, patience, 0));
            if code == TIMEOUT {
                usable |= c!(gaspi_segment_ptr(4, &mut pointer)) == SUCCESS;
            }
            code
        })?;
        ensure_eq!(called.get(0), 1, "whether rank {late} had created");
        ensure!(!usable, "gaspi_segment_ptr succeeded before the creation");
    }
    let memory = memory(4, 128)?;
    reaches_the_neighbour(ctx, &memory)?;
    let num = got!(gaspi_segment_num());
    equal!(num, 2, "segments after one creation in many calls")
}

/// Writes to the right neighbour's segment 4 with a notification, and checks the write of the left neighbour.
fn reaches_the_neighbour(ctx: &Ctx, memory: &Memory) -> Verdict {
    memory.set(0, 5 + u64::from(ctx.rank));
    post::write_notify(4, 0, right(ctx), 4, 64, 8, 0, 1).ok(0, LONG)?;
    notified(4, 0)?;
    memory.shows(64, 5 + u64::from(left(ctx)), "what the neighbour wrote")
}

fn use_continues(ctx: &Ctx) -> Verdict {
    let own = Memory::new(800);
    if ctx.rank == 1 {
        pause(15);
    }
    let use_it = || c!(gaspi_segment_use(4, own.base, 800, ALL, 1, 0));
    repeat("gaspi_segment_use", use_it)?;
    let memory = memory(4, 800)?;
    ensure_eq!(memory.base, own.base, "the pointer of a segment in use");
    reaches_the_neighbour(ctx, &memory)?;
    barrier()?;
    done!(gaspi_segment_delete(4))
}

fn use_is_for_all(ctx: &Ctx) -> Verdict {
    let memory = Memory::new(5000);
    memory.set(0, 70 + u64::from(ctx.rank));
    ok!(gaspi_segment_use(2, memory.base, 5000, ALL, BLOCK, 0));
    for rank in others(ctx) {
        let at = 8 * (1 + u64::from(ctx.rank));
        post::write_notify(2, 0, rank, 2, at, 8, ctx.rank, 1).ok(0, LONG)?;
    }
    for rank in others(ctx) {
        notified(2, u32::from(rank))?;
        let expected = 70 + u64::from(rank);
        memory.shows(8 * (1 + rank as usize), expected, "what a rank wrote")?;
    }
    add(2, 4992, right(ctx), 3)?;
    flush(0)?;
    barrier()?;
    memory.shows(4992, 3, "an atomic sum in memory of the program")?;
    done!(gaspi_segment_delete(2))
}
