//! §5.4.2: closed connections.

use super::kit::*;

laws! {
    closed_and_opened: "disconnect", "§5.4.2", 3,
        [gaspi_disconnect, gaspi_connect, gaspi_write, gaspi_read, gaspi_notify, gaspi_atomic_fetch_add, gaspi_passive_send],
        "a connection that was closed can no longer be used, from the side that has closed it; it can be opened again; others go on";
    from_the_other_side with_segment(64): "disconnect.partner", "§5.4.2, §5.4.1", 3, [gaspi_disconnect, gaspi_connect, gaspi_write_notify],
        "it is enough that one of both closes it: the other one's requests are refused, too, in the end; and that the other one opens it";
    crossed: "disconnect.crossed", "§5.4.1, §5.4.2", 2, [gaspi_disconnect, gaspi_connect, gaspi_write_notify],
        "a rank closes a connection while the other closes and opens it again: the last connect opens it on both sides";
    again with_segment(64): "disconnect.again", "§5.4.2", 2, [gaspi_disconnect],
        "a disconnected rank may be disconnected again, as may the own rank and ranks without a connection";
    what_is_under_way: "disconnect.pending", "§5.4.2", 2, [gaspi_disconnect, gaspi_write, gaspi_connect],
        "requests that were posted before arrive";
    groups_go_on with_segment(64): "disconnect.groups", "§5.4.2, §11", 3, [gaspi_disconnect, gaspi_barrier, gaspi_allreduce],
        "collective operations of groups of which both are members go on";
}

fn refused(what: &str, code: i32) -> Verdict {
    must_fail(code, format!("{what} over a closed connection"))
}

fn all_are_refused(to: u16) -> Verdict {
    let mut old = 0;
    refused("gaspi_write", c!(gaspi_write(0, 0, to, 0, 8, 8, 0, LONG)))?;
    refused("gaspi_read", c!(gaspi_read(0, 0, to, 0, 8, 8, 0, LONG)))?;
    refused("gaspi_notify", c!(gaspi_notify(0, to, 1, 1, 0, LONG)))?;
    let add = c!(gaspi_atomic_fetch_add(0, 16, to, 1, &mut old, LONG));
    refused("gaspi_atomic_fetch_add", add)?;
    let send = c!(gaspi_passive_send(0, 0, to, 8, LONG));
    refused("gaspi_passive_send", send)
}

fn writes(to: u16, id: u32) -> Verdict {
    ok!(gaspi_write_notify(0, 0, to, 0, 8, 8, id, 1, 0, LONG));
    flush(0)
}

fn closed_and_opened(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 64)?;
    memory.set(0, 7);
    barrier()?;
    if ctx.rank == 0 {
        writes(1, 0)?;
        writes(2, 0)?;
        ok!(gaspi_disconnect(1, LONG));
        all_are_refused(1)?;
        writes(2, 1)?;
        ok!(gaspi_connect(1, LONG));
        writes(1, 1)?;
        let old = add(0, 16, 1, 1)?;
        ensure_eq!(old, 0, "the value before the only addition");
    } else {
        notified(0, 0)?;
        notified(0, 1)?;
        ensure_eq!(memory.get(8), 7, "what was written");
    }
    barrier()
}

fn from_the_other_side(ctx: &Ctx, _: Memory) -> Verdict {
    if ctx.rank == 1 {
        writes(0, 0)?;
    }
    barrier()?;
    if ctx.rank == 0 {
        ok!(gaspi_disconnect(1, LONG));
    }
    barrier()?;
    if ctx.rank == 1 {
        all_are_refused(0)?;
        writes(2, 0)?;
        ok!(gaspi_connect(0, LONG));
        writes(0, 1)?;
    }
    barrier()?;
    if ctx.rank == 0 {
        notified(0, 1)?;
        writes(1, 2)?;
    }
    barrier()
}

fn crossed(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let other = (ctx.rank ^ 1) as u16;
    barrier()?;
    for round in 0..200 {
        ok!(gaspi_disconnect(other, LONG));
        if ctx.rank == 0 {
            ok!(gaspi_connect(other, LONG));
        }
        barrier()?;
        if ctx.rank == 1 {
            ok!(gaspi_connect(other, LONG));
        }
        barrier()?;
        writes(other, round)?;
        notified(0, round)?;
        barrier()?;
    }
    Ok(())
}

fn again(ctx: &Ctx, _: Memory) -> Verdict {
    for rank in 0..ctx.size as u16 {
        ok!(gaspi_disconnect(rank, LONG));
        ok!(gaspi_disconnect(rank, TEST));
    }
    gives!(GASPI_ERR_INV_RANK, gaspi_disconnect(ctx.size as u16, LONG));
    gives!(GASPI_ERR_INV_RANK, gaspi_disconnect(u16::MAX, LONG));
    barrier()?;
    for_all(0..ctx.size as u16, |rank| done!(gaspi_connect(rank, LONG)))?;
    barrier()?;
    for_all(0..ctx.size as u16, |rank| writes(rank, ctx.rank))?;
    for_all(0..ctx.size, |rank| notified(0, rank))?;
    barrier()
}

fn what_is_under_way(ctx: &Ctx) -> Verdict {
    const MANY: u64 = 100;
    let memory = segment(0, 16 * MANY as usize)?;
    barrier()?;
    if ctx.rank == 0 {
        for nth in 0..MANY {
            memory.set(8 * nth as usize, nth + 1);
            ok!(gaspi_write(0, 8 * nth, 1, 0, 8 * (MANY + nth), 8, 0, LONG));
        }
        ok!(gaspi_disconnect(1, LONG));
        flush(0)?;
    }
    barrier()?;
    for nth in 0..if ctx.rank == 1 { MANY } else { 0 } {
        let seen = memory.get(8 * (MANY + nth) as usize);
        ensure_eq!(seen, nth + 1, "write {nth}");
    }
    barrier()
}

fn groups_go_on(ctx: &Ctx, _: Memory) -> Verdict {
    for_all(others(ctx), |rank| done!(gaspi_disconnect(rank, LONG)))?;
    for _ in 0..20 {
        barrier()?;
        ensure_eq!(sum_of_all(1)?, u64::from(ctx.size), "the sum");
    }
    Ok(())
}
