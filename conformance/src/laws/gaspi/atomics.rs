//! §10: global atomics.

use std::sync::atomic::Ordering;

use super::kit::*;

laws! {
    sums_are_complete: "atomic.fetch_add", "§10.2.1", 4, [gaspi_atomic_fetch_add] + ordering,
        "concurrent fetch-adds are each done once: all old values differ, and the sum is whole";
    add_wraps: "atomic.fetch_add.values", "§10.2.1", 2, [gaspi_atomic_fetch_add, gaspi_atomic_max],
        "the old value comes back; values use the whole range up to gaspi_atomic_max and wrap there";
    swap_if_equal: "atomic.compare_swap", "§10.2.2", 2, [gaspi_atomic_compare_swap],
        "the value is replaced if it equals the comparator, and kept if not; the old value comes back";
    locks_exclude with_segment(32): "atomic.compare_swap.lock", "§10.2.2", 4, [gaspi_atomic_compare_swap, gaspi_atomic_fetch_add] + ordering,
        "a lock made of compare-swap lets one process in at a time, and each one in the end";
    swaps_are_complete with_segment(8): "atomic.compare_swap.count", "§10.2.2", 4, [gaspi_atomic_compare_swap] + ordering,
        "counting by compare-swap loses nothing";
    unaligned: "atomic.unaligned", "§10.2.1", 2, [gaspi_atomic_fetch_add, gaspi_atomic_compare_swap],
        "an offset that is no multiple of 8 is refused, and nothing changes";
    at_the_end with_segment(28): "atomic.bounds", "§10.2.1", 2, [gaspi_atomic_fetch_add, gaspi_atomic_compare_swap],
        "the last 8 bytes of a segment can be used, and nothing behind them";
    own_rank: "atomic.self", "§10.2.1", 2, [gaspi_atomic_fetch_add, gaspi_atomic_compare_swap],
        "the own rank is a rank like any other";
    beside_the_cpu with_segment(8): "atomic.cpu", "§10.1", 3, [gaspi_atomic_fetch_add] + ordering,
        "the owner's own atomic instructions and the peers' global atomics do not lose each other's work";
    in_memory_of_the_program: "atomic.bound-memory", "§7.2.4", 3, [gaspi_atomic_fetch_add, gaspi_atomic_compare_swap, gaspi_segment_use] + ordering,
        "global atomics work on memory of the program as on memory of the library";
    of_threads with_segment(8): "atomic.threads", "§10.1", 2, [gaspi_atomic_fetch_add] + ordering,
        "threads of several processes add to one value";
    with_timeouts with_segment(8): "atomic.timeout", "§10.2.1", 3, [gaspi_atomic_fetch_add] + ordering,
        "an operation that timed out is completed by a later call, and done once";
    neighbours: "atomic.neighbours", "§10.1", 2, [gaspi_atomic_fetch_add],
        "an atomic changes its 8 bytes and no others";
    after_recreation: "atomic.recreated", "§7.2.1", 2, [gaspi_atomic_fetch_add, gaspi_segment_delete],
        "atomics find a segment that was made again under the same name, and larger";
}

/// Number of repetitions. Fast backends need more: an operation takes nanoseconds, and the ranks must overlap.
fn many(ctx: &Ctx, at_least: u64) -> u64 {
    at_least * if ctx.is_quick() { 50 } else { 1 }
}

fn sums_are_complete(ctx: &Ctx) -> Verdict {
    let each = many(ctx, 60);
    let total = each * u64::from(ctx.size);
    let memory = segment(0, 8 + 8 * total as usize)?;
    barrier()?;
    for _ in 0..each {
        let old = add(0, 0, 0, 1)?;
        ensure!(old < total, "old value {old} of at most {total}");
        add(0, 8 + 8 * old, 0, 1)?;
    }
    barrier()?;
    if ctx.rank == 0 {
        ensure_eq!(memory.get(0), total, "the sum");
        for old in 0..total as usize {
            memory.shows(8 + 8 * old, 1, "how often an old value was given")?;
        }
    }
    barrier()
}

fn add_wraps(ctx: &Ctx) -> Verdict {
    let max = got!(gaspi_atomic_max());
    ensure_eq!(max, u64::MAX, "gaspi_atomic_max");
    let memory = segment(0, 8)?;
    barrier()?;
    let peer = right(ctx);
    ensure_eq!(add(0, 0, peer, max)?, 0, "the first old value");
    ensure_eq!(add(0, 0, peer, 0)?, max, "after adding the maximum");
    ensure_eq!(add(0, 0, peer, 5)?, max, "the old value");
    ensure_eq!(add(0, 0, peer, max - 1)?, 4, "the value that has wrapped");
    ensure_eq!(add(0, 0, peer, 0)?, 2, "the value after adding -2");
    barrier()?;
    equal!(memory.get(0), 2, "what the owner sees")
}

fn swap_if_equal(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 16)?;
    memory.set(8, 10);
    barrier()?;
    let peer = right(ctx);
    ensure_eq!(swap(0, 8, peer, 11, 99)?, 10, "of a failed swap");
    ensure_eq!(
        swap(0, 8, peer, 10, 20)?,
        10,
        "the result of a matching swap"
    );
    ensure_eq!(swap(0, 8, peer, 10, 30)?, 20, "of a failed swap");
    ensure_eq!(swap(0, 8, peer, 20, u64::MAX)?, 20, "the old value");
    ensure_eq!(swap(0, 8, peer, u64::MAX, 0)?, u64::MAX, "the old value");
    ensure_eq!(swap(0, 8, peer, 0, 7)?, 0, "the old value");
    barrier()?;
    equal!((memory.get(0), memory.get(8)), (0, 7), "what is there")
}

fn locks_exclude(ctx: &Ctx, memory: Memory) -> Verdict {
    let me = u64::from(ctx.rank) + 1;
    for _ in 0..12 {
        let mut looks = Looks::new();
        while swap(0, 0, 0, 0, me)? != 0 {
            looks.again();
        }
        ensure_eq!(add(0, 8, 0, 1)?, 0, "processes inside the lock");
        add(0, 16, 0, 1)?;
        ensure_eq!(add(0, 8, 0, u64::MAX)?, 1, "processes inside the lock");
        ensure_eq!(swap(0, 0, 0, me, 0)?, me, "the lock's holder");
    }
    sum_at(ctx, 0, &memory, 16, 12 * u64::from(ctx.size))
}

fn swaps_are_complete(ctx: &Ctx, memory: Memory) -> Verdict {
    let each = many(ctx, 40);
    let mut known = 0;
    for _ in 0..each {
        loop {
            let old = swap(0, 0, 1, known, known + 3)?;
            if old == known {
                known += 3;
                break;
            }
            known = old;
        }
    }
    sum_at(ctx, 1, &memory, 0, 3 * each * u64::from(ctx.size))
}

fn unaligned(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.fill(0x21);
    barrier()?;
    for offset in [1, 2, 3, 4, 7, 9, 12, 63] {
        for rank in 0..ctx.size as u16 {
            let mut old = 5;
            gives! { GASPI_ERR_UNALIGN_OFF:
                gaspi_atomic_fetch_add(0, offset, rank, 1, &mut old, LONG);
                gaspi_atomic_compare_swap(0, offset, rank, 0x2121_2121_2121_2121, 1, &mut old, LONG);
            }
            ensure_eq!(old, 5, "the old value of a refused operation");
        }
    }
    barrier()?;
    memory.all(0, 64, 0x21, "a segment after refused atomics")
}

fn at_the_end(ctx: &Ctx, memory: Memory) -> Verdict {
    let peer = right(ctx);
    ensure_eq!(add(0, 16, peer, 9)?, 0, "the old value");
    let mut old = 5;
    for offset in [24, 32, 4096, 1 << 40, u64::MAX - 7] {
        gives! { GASPI_ERR_INV_REM_OFF:
            gaspi_atomic_fetch_add(0, offset, peer, 1, &mut old, LONG);
            gaspi_atomic_compare_swap(0, offset, peer, 0, 1, &mut old, LONG);
        }
    }
    ensure_eq!(old, 5, "the old value of a refused operation");
    barrier()?;
    ensure_eq!(memory.get(16), 9, "the last whole word");
    memory.all(24, 4, 0, "the bytes behind it")
}

fn own_rank(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 8)?;
    let me = ctx.rank as u16;
    ensure_eq!(add(0, 0, me, 4)?, 0, "the old value");
    ensure_eq!(swap(0, 0, me, 4, 6)?, 4, "the old value");
    ensure_eq!(memory.get(0), 6, "the value");
    barrier()
}

fn beside_the_cpu(ctx: &Ctx, memory: Memory) -> Verdict {
    let each = many(ctx, 100);
    for _ in 0..each {
        match ctx.rank {
            0 => memory.word(0).fetch_add(1, Ordering::AcqRel),
            _ => add(0, 0, 0, 1)?,
        };
    }
    sum_at(ctx, 0, &memory, 0, each * u64::from(ctx.size))
}

fn in_memory_of_the_program(ctx: &Ctx) -> Verdict {
    let memory = Memory::new(128);
    ok!(gaspi_segment_use(3, memory.base, 128, ALL, LONG, 0));
    let each = many(ctx, 60);
    for_all(0..each, |_| add(3, 8, 0, 1))?;
    let peer = right(ctx);
    ensure_eq!(swap(3, 16, peer, 0, 5)?, 0, "the old value");
    ensure_eq!(swap(3, 16, peer, 0, 6)?, 5, "the old value");
    sum_at(ctx, 0, &memory, 8, each * u64::from(ctx.size))?;
    ensure_eq!(memory.get(16), 5, "the swapped value");
    ensure_eq!((memory.get(0), memory.get(24)), (0, 0), "the words beside");
    barrier()?;
    ok!(gaspi_segment_delete(3));
    barrier()
}

fn of_threads(ctx: &Ctx, memory: Memory) -> Verdict {
    let each = many(ctx, 40);
    threads(4, |_| for_all(0..each, |_| add(0, 0, 1, 2)))?;
    sum_at(ctx, 1, &memory, 0, 8 * each * u64::from(ctx.size))
}

fn with_timeouts(ctx: &Ctx, memory: Memory) -> Verdict {
    for i in 0..60 {
        let mut old = 0;
        repeat("gaspi_atomic_fetch_add", || {
            c!(gaspi_atomic_fetch_add(0, 0, 0, 1, &mut old, i % 3))
        })?;
    }
    sum_at(ctx, 0, &memory, 0, 60 * u64::from(ctx.size))
}

fn neighbours(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.fill(0x7e);
    memory.set(24, 0);
    barrier()?;
    for _ in 0..10 {
        add(0, 24, right(ctx), u64::MAX / 3)?;
        add(0, 24, right(ctx), u64::MAX - u64::MAX / 3 + 1)?;
    }
    barrier()?;
    ensure_eq!(memory.get(24), 0, "the value");
    memory.all(0, 24, 0x7e, "before the value")?;
    memory.all(32, 32, 0x7e, "behind the value")
}

fn after_recreation(ctx: &Ctx) -> Verdict {
    for round in 1..=4u64 {
        let memory = segment(0, 8 << round)?;
        let at = (8 << round) - 8;
        ensure_eq!(add(0, at, right(ctx), round)?, 0, "old, round {round}");
        ensure_eq!(swap(0, at, right(ctx), round, 50)?, round, "{round}");
        barrier()?;
        ensure_eq!(memory.get(at as usize), 50, "the value in round {round}");
        barrier()?;
        ok!(gaspi_segment_delete(0));
        barrier()?;
    }
    Ok(())
}
