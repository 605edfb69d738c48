//! §3.9: a call that has timed out has no effect on a call with other arguments. A later call completes it.

use super::kit::*;

laws! {
    reductions: "timeout.other.reductions", "§11.3.1, §11.4.1, §3.10", 2,
        [gaspi_allreduce, gaspi_allreduce_user, gaspi_barrier, gaspi_group_commit] + ordering,
        "a reduction that is continued with other buffers has the first call's elements and the last call's place; meanwhile other groups meet";
    commits: "timeout.other.commits", "§6.3.3, §7.2.3", 3, [gaspi_group_commit, gaspi_segment_create, gaspi_segment_size] + ordering,
        "after a commit that has timed out another group is committed, and has a segment, before the first";
    sizes: "timeout.other.sizes", "§7.2.3", 2, [gaspi_segment_create, gaspi_segment_size, gaspi_segment_ptr],
        "a creation that is repeated with another size gives that size, or an error";
    segments: "timeout.other.segments", "§7.2.3, §7.2.5", 3, [gaspi_segment_use, gaspi_segment_create, gaspi_segment_ptr, gaspi_write],
        "a creation that is repeated with other memory gives that memory, or an error; one with another group is for its members";
    atomics with_segment(64): "timeout.other.atomics", "§10.2", 2, [gaspi_atomic_fetch_add, gaspi_atomic_compare_swap] + ordering,
        "an atomic operation that has timed out writes no result later; others are done meanwhile, and it is done once";
    reads: "timeout.other.reads", "§8.2.2, §8.2.3", 2, [gaspi_read, gaspi_wait] + ordering,
        "after a timed-out gaspi_wait each read writes only its place, and after a successful one nothing";
    connections configured(|config| config.build_infrastructure = 0): "timeout.other.connections", "§5.4.1", 3,
        [gaspi_connect, gaspi_disconnect, gaspi_segment_register, gaspi_write_notify] + bare,
        "a connection or registration that has timed out is made by a later call, after one to another rank; likewise it is closed";
    messages with_segment(256): "timeout.other.messages", "§9.2.1", 2, [gaspi_passive_send, gaspi_passive_receive] + ordering,
        "a message with a timed-out send and the next message come once each";
}

const SENTINEL: u64 = 0x5a5a_5a5a_5a5a_5a5a;
const ROUNDS: u64 = 10;

type Reduce<'a> = &'a dyn Fn(&u64, &mut u64, u8, u64) -> i32;

fn sum(from: &u64, to: &mut u64, group: u8, timeout: u64) -> i32 {
    post::allreduce(from, to, 1, SUM, 5).code(group, timeout)
}

operation! { plus(one, two, result, _, num, _) {
    for nth in 0..num as usize {
        // SAFETY:
        // - contract of the callback: each pointer leads to `num` elements of 8 bytes.
        unsafe {
            let at = |pointer: *mut u8| pointer.cast::<u64>().add(nth);
            let sum = at(one).read_unaligned() + at(two).read_unaligned();
            at(result).write_unaligned(sum);
        }
    }
    SUCCESS
} }

fn user_sum(from: &u64, to: &mut u64, group: u8, timeout: u64) -> i32 {
    post::allreduce_user(from, to, 1, 8, Some(plus), null_mut()).code(group, timeout)
}

fn reductions(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let other = group_of(&[0, 1])?;
    for round in 0..ROUNDS {
        for reduce in [&sum as Reduce<'_>, &user_sum] {
            let mine = round * 100 + u64::from(ctx.rank) + 1;
            let all = round * 200 + 3;
            if ctx.rank == 1 {
                // Rank 1 joins after the calls of rank 0 have timed out.
                notified(0, 0)?;
                barrier_of(other)?;
                let mut result = 0;
                repeat("the reduction", || reduce(&mine, &mut result, ALL, LONG))?;
                ensure_eq!(result, all, "the sum at rank 1");
            } else {
                let (mut first, mut early) = (mine, SENTINEL);
                ensure_eq!(reduce(&first, &mut early, ALL, TEST), TIMEOUT, "alone");
                first = SENTINEL;
                ensure_eq!(reduce(&first, &mut early, ALL, 1), TIMEOUT, "alone");
                ok!(gaspi_notify(0, 1, 0, 1, 0, LONG));
                flush(0)?;
                barrier_of(other)?;
                let mut late = SENTINEL;
                repeat("the reduction", || reduce(&first, &mut late, ALL, LONG))?;
                ensure_eq!(late, all, "the sum of what the first call has passed");
                ensure_eq!(early, SENTINEL, "the place of a call that has timed out");
            }
            barrier()?;
        }
    }
    Ok(())
}

fn barrier_of(group: u8) -> Verdict {
    done!(gaspi_barrier(group, LONG))
}

fn commits(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    // The members identify a group.
    let of = |last: u16| uncommitted([0, last]);
    let commit = |group: u8, timeout| c!(gaspi_group_commit(group, timeout));
    let create = |id: u8, group, timeout| {
        let size = 64 * u64::from(id);
        c!(gaspi_segment_create(id, size, group, timeout, 0))
    };
    let both = |id: u8, group: u8| {
        repeat("gaspi_group_commit", || commit(group, LONG))?;
        barrier_of(group)?;
        repeat("gaspi_segment_create", || create(id, group, LONG))?;
        let size = got!(gaspi_segment_size(id, 0));
        equal!(size, 64 * u64::from(id), "the size of segment {id}")
    };
    if ctx.rank == 0 {
        let (one, other) = (of(1)?, of(2)?);
        ensure_eq!(commit(one, TEST), TIMEOUT, "gaspi_group_commit alone");
        both(2, other)?;
        ok!(gaspi_notify(0, 1, 0, 1, 0, LONG));
        flush(0)?;
        both(1, one)?;
    } else {
        let group = of(ctx.rank as u16)?;
        if ctx.rank == 1 {
            notified(0, 0)?;
        }
        both(ctx.rank as u8, group)?;
    }
    barrier()
}

fn sizes(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let create = |size: u64, timeout| c!(gaspi_segment_create(1, size, ALL, timeout, 0));
    if ctx.rank == 0 {
        ensure_eq!(create(64, TEST), TIMEOUT, "gaspi_segment_create alone");
        ok!(gaspi_notify(0, 1, 0, 1, 0, LONG));
        flush(0)?;
    } else {
        notified(0, 0)?;
    }
    let wanted = 1 << 20;
    let mut created = create(wanted, if ctx.rank == 0 { 50 } else { LONG });
    if ctx.rank == 0 && created != SUCCESS {
        // The other size has no success: a repetition completes the first call.
        (created, _) = until(|| create(64, LONG))?;
        ensure_eq!(created, SUCCESS, "the first call, repeated");
    } else if ctx.rank == 0 {
        let whole = memory(1, wanted as usize)?;
        whole.fill(7);
        let size = got!(gaspi_segment_size(1, 0));
        ensure_eq!(size, wanted, "the size of the segment");
    }
    barrier()
}

fn segments(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let pair = match ctx.rank {
        2 => None,
        _ => Some(group_of(&[0, 1])?),
    };
    let pages = [Memory::pages(4096)?, Memory::pages(4096)?];
    let used = |nth: usize, timeout| {
        let base = pages[nth].base;
        c!(gaspi_segment_use(1, base, 64, ALL, timeout, 0))
    };
    if ctx.rank == 0 {
        ensure_eq!(used(0, TEST), TIMEOUT, "gaspi_segment_use alone");
    }
    ctx.sync();
    let mut nth = usize::from(ctx.rank == 0);
    let (mut code, _) = until(|| used(nth, if nth == 1 { 50 } else { LONG }))?;
    if code != SUCCESS && nth == 1 {
        // Other memory has no success: a repetition completes the first call.
        nth = 0;
        (code, _) = until(|| used(nth, LONG))?;
    }
    ensure_eq!(code, SUCCESS, "gaspi_segment_use, repeated");
    let pointer = got!(gaspi_segment_ptr(1));
    ensure_eq!(pointer, pages[nth].base, "the memory of the last call");
    if let (0, Some(pair)) = (ctx.rank, pair) {
        gives!(GASPI_TIMEOUT, gaspi_segment_create(2, 64, pair, TEST, 0));
    }
    ctx.sync();
    repeat("gaspi_segment_create", || {
        c!(gaspi_segment_create(2, 64, ALL, LONG, 0))
    })?;
    for_all(others(ctx), |rank| {
        post::write(0, 0, rank, 2, 8, 8).ok(0, LONG)
    })?;
    flush(0)?;
    barrier()?;
    pair.map_or(Ok(()), barrier_of)
}

fn atomics(ctx: &Ctx, memory: Memory) -> Verdict {
    if ctx.rank == 0 {
        for round in 1..=ROUNDS * 4 {
            let mut early = SENTINEL;
            let swaps = round % 2 == 0;
            let first = match swaps {
                true => {
                    let old = round - 1;
                    c!(gaspi_atomic_compare_swap(
                        0, 0, 1, old, round, &mut early, TEST
                    ))
                }
                false => c!(gaspi_atomic_fetch_add(0, 0, 1, 1, &mut early, TEST)),
            };
            let old = add(0, 8, 1, 10)?;
            ensure_eq!(old, (round - 1) * 10, "another operation's result");
            ensure_eq!(swap(0, 16, 1, round - 1, round)?, round - 1, "a swap");
            match first {
                SUCCESS => ensure_eq!(early, round - 1, "the first operation"),
                TIMEOUT => {
                    let old = match swaps {
                        true => swap(0, 0, 1, round - 1, round)?,
                        false => add(0, 0, 1, 1)?,
                    };
                    ensure_eq!(old, round - 1, "the operation that has timed out");
                    ensure_eq!(early, SENTINEL, "the place of a call that has timed out");
                }
                code => return Err(format!("GASPI_TEST gave {}", code_name(code))),
            }
        }
    }
    barrier()?;
    if ctx.rank == 1 {
        let sums = [0, 8, 16].map(|at| memory.get(at));
        ensure_eq!(sums, [ROUNDS * 4, ROUNDS * 40, ROUNDS * 4], "the sums");
    }
    barrier()
}

fn reads(ctx: &Ctx) -> Verdict {
    const LEN: usize = 64 << 10;
    let memory = segment(0, 4 * LEN)?;
    memory.fill_range(0, 2 * LEN, ctx.rank as u8 + 1);
    barrier()?;
    for round in 0..ROUNDS {
        memory.fill_range(2 * LEN, 2 * LEN, 0x77);
        let (from, len) = (right(ctx), LEN as u64);
        ok!(gaspi_read(0, 2 * len, from, 0, 0, len, 0, LONG));
        let early = c!(gaspi_wait(0, TEST));
        ensure!(!is_error(early), "gaspi_wait gave {}", code_name(early));
        ok!(gaspi_read(0, 3 * len, from, 0, len, len, 0, LONG));
        flush(0)?;
        memory.all(2 * LEN, 2 * LEN, from as u8 + 1, "both reads")?;
        memory.fill_range(2 * LEN, 2 * LEN, 0x33);
        if round % 2 == 0 {
            barrier()?;
        }
        memory.all(2 * LEN, 2 * LEN, 0x33, "the places of ended reads")?;
    }
    barrier()
}

fn connections(ctx: &Ctx) -> Verdict {
    // Each call times out or not, rank after rank. Then all are repeated in the other order.
    let twice = |name: &str, call: &dyn Fn(u16, u64) -> i32| {
        for_all(0..3, |_| {
            for_all(others(ctx), |rank| {
                one_of(call(rank, TEST), &[SUCCESS, TIMEOUT], name)
            })
        })?;
        let ranks: Vec<_> = others(ctx).collect();
        for_all(ranks.into_iter().rev(), |rank| {
            repeat(name, || call(rank, LONG))
        })
    };
    let connect = |rank, timeout| c!(gaspi_connect(rank, timeout));
    ok!(gaspi_segment_alloc(1, 64, 0));
    twice("gaspi_segment_register", &|rank, timeout| {
        c!(gaspi_segment_register(1, rank, timeout))
    })?;
    twice("gaspi_connect", &connect)?;
    ok!(gaspi_group_commit(ALL, LONG));
    segment(0, 64)?;
    let write_to_all = || {
        for rank in others(ctx) {
            let id = ctx.rank;
            ok!(gaspi_write_notify(0, 0, rank, 1, 8, 8, id, 1, 0, LONG));
        }
        for_all(others(ctx), |rank| notified(1, rank.into()))?;
        flush(0)?;
        barrier()
    };
    write_to_all()?;
    twice("gaspi_disconnect", &|rank, timeout| {
        c!(gaspi_disconnect(rank, timeout))
    })?;
    barrier()?;
    twice("gaspi_connect", &connect)?;
    barrier()?;
    write_to_all()
}

fn messages(ctx: &Ctx, memory: Memory) -> Verdict {
    for round in 1..=ROUNDS {
        let (one, other) = (2 * round, 2 * round + 1);
        if ctx.rank == 0 {
            memory.set(0, one);
            memory.set(64, other);
            gives!(GASPI_TIMEOUT, gaspi_passive_send(0, 0, 1, 8, TEST));
            ctx.sync();
            ok!(gaspi_passive_send(0, 64, 1, 8, LONG));
            ok!(gaspi_passive_send(0, 0, 1, 8, LONG));
        } else {
            ctx.sync();
            let mut seen = [0; 2];
            for value in &mut seen {
                receive(0, 128, 8)?;
                *value = memory.get(128);
            }
            seen.sort_unstable();
            ensure_eq!(seen, [one, other], "the messages");
        }
        barrier()?;
        if ctx.rank == 1 {
            ensure_eq!(received(0, 192, 8, TEST), TIMEOUT, "a message too many");
            memory.shows(192, 0, "the place of a receive that has timed out")?;
        }
        barrier()?;
    }
    barrier()
}
