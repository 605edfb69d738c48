//! §7.3: segments that are deleted and created again.

use super::kit::*;
use super::segment::list;

laws! {
    delete_ends_access: "segment.delete", "§7.3.1", 2, [gaspi_segment_delete, gaspi_segment_ptr, gaspi_segment_num, gaspi_segment_list],
        "a deleted segment is gone here, and requests of peers are refused";
    delete_in_any_order: "segment.delete.order", "§7.3.1", 3, [gaspi_segment_delete],
        "each rank deletes its segments in a different order; the remaining segments still work";
    recreate_with_other_size: "segment.recreate", "§7.2.3", 3, [gaspi_segment_create, gaspi_segment_delete, gaspi_segment_size] + ordering,
        "a name can be used again with another size: peers reach the new segment, its notifications are zero";
    recreate_locally: "segment.recreate.alloc", "§7.2.1", 2, [gaspi_segment_alloc, gaspi_segment_delete, gaspi_segment_register],
        "one rank alone replaces its segment; the peer's next request goes to the new one, once registered";
    churn: "segment.churn", "§7.3.1", 2, [gaspi_segment_create, gaspi_segment_delete],
        "segments can be made and deleted again and again";
}

fn delete_ends_access(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    segment(1, 64)?;
    segment(200, 64)?;
    if ctx.rank == 1 {
        // Makes the peer's segment known here.
        ok!(gaspi_write(0, 0, 0, 1, 0, 8, 0, LONG));
        flush(0)?;
    }
    barrier()?;
    if ctx.rank == 0 {
        ensure_eq!(list()?, vec![0, 1, 200], "segments");
        ok!(gaspi_segment_delete(1));
        ensure_eq!(list()?, vec![0, 200], "segments after deleting 1");
        gives! { GASPI_ERR_INV_SEG:
            gaspi_segment_ptr(1, &mut null_mut());
            gaspi_segment_delete(1);
            gaspi_write(1, 0, 1, 1, 0, 8, 0, LONG);
            gaspi_notify_waitsome(1, 0, 1, &mut 0, TEST);
        }
    }
    barrier()?;
    if ctx.rank == 1 {
        let mut old = 0;
        gives! { GASPI_ERR_INV_SEG:
            gaspi_write(0, 0, 0, 1, 0, 8, 0, LONG);
            gaspi_read(0, 0, 0, 1, 0, 8, 0, LONG);
            gaspi_notify(1, 0, 0, 1, 0, LONG);
            gaspi_atomic_fetch_add(1, 0, 0, 1, &mut old, LONG);
        }
        ok!(gaspi_write_notify(0, 0, 0, 200, 0, 8, 0, 1, 0, LONG));
    } else {
        notified(200, 0)?;
        // Rank 1's own segment of that name still exists.
        ok!(gaspi_notify(1, 1, 2, 1, 0, LONG));
    }
    if ctx.rank == 1 {
        notified(1, 2)?;
    }
    barrier()
}

fn delete_in_any_order(ctx: &Ctx) -> Verdict {
    let n = 6u8;
    for id in 0..n {
        segment(id, 64)?.set(56, 10 * u64::from(ctx.rank) + u64::from(id));
    }
    let mut order: Vec<u8> = (0..n - 1).collect();
    let mut random = ctx.random(u64::from(ctx.rank));
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let keeper = n - 1;
    for (i, id) in order.iter().enumerate() {
        ok!(gaspi_segment_delete(*id));
        let at = 8 * (i % 6) as u64;
        post::write_notify(keeper, 56, right(ctx), keeper, at, 8, i as u32, 1).ok(0, LONG)?;
        notified(keeper, i as u32)?;
        let seen = memory(keeper, 64)?.get(at as usize);
        let expected = 10 * u64::from(left(ctx)) + u64::from(keeper);
        ensure_eq!(seen, expected, "data after {i} deletions");
    }
    ensure_eq!(list()?, vec![keeper], "segments that are left");
    barrier()
}

fn recreate_with_other_size(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(9);
    let mut stamp = 0u8;
    for round in 0..6 {
        let len = 8 + random.below(20_000) as usize;
        let memory = segment(5, len)?;
        memory.all(0, len, 0, "a segment made again")?;
        none_notified(5, 0, 65_536)?;
        barrier()?;
        if round % 2 == 1 {
            let size = got!(gaspi_segment_size(5, right(ctx)));
            ensure_eq!(size, len as u64, "gaspi_segment_size in round {round}");
        }
        stamp += 1;
        memory.store(0, &[stamp]);
        // The last byte is valid, the next one is not.
        post::write_notify(5, 0, right(ctx), 5, len as u64 - 1, 1, 3, 1).ok(0, LONG)?;
        post::write(5, 0, right(ctx), 5, len as u64, 1).gives(GASPI_ERR_INV_REM_OFF, 0, LONG)?;
        notified(5, 3)?;
        memory.all(len - 1, 1, stamp, "what the neighbour wrote")?;
        // A notification without a reset must not exist in the next round.
        ok!(gaspi_notify(5, right(ctx), 4, 1, 0, LONG));
        waited(5, 4, 1, LONG)?;
        flush(0)?;
        barrier()?;
        ok!(gaspi_segment_delete(5));
        barrier()?;
    }
    Ok(())
}

fn recreate_locally(ctx: &Ctx) -> Verdict {
    let source = segment(1, 64)?;
    source.fill(8);
    for round in 0..4u64 {
        let len = 64 << round;
        if ctx.rank == 0 {
            ok!(gaspi_segment_alloc(0, len, 0));
            ok!(gaspi_segment_register(0, 1, LONG));
        }
        barrier()?;
        if ctx.rank == 1 {
            ok!(gaspi_write_notify(1, 0, 0, 0, len - 64, 64, 0, 1, 0, LONG));
        } else {
            notified(0, 0)?;
            memory(0, len as usize)?.all(len as usize - 64, 64, 8, "what the peer wrote")?;
            ok!(gaspi_segment_delete(0));
            ok!(gaspi_segment_alloc(0, 2 * len, 0));
        }
        barrier()?;
        if ctx.rank == 1 {
            // The name exists again, but the segment is not registered with this rank.
            post::write_notify(1, 0, 0, 0, 0, 64, 0, 1).gives(GASPI_ERR_INV_SEG, 0, LONG)?;
        }
        barrier()?;
        if ctx.rank == 0 {
            let len = 2 * len as usize;
            memory(0, len)?.all(0, len, 0, "the unregistered successor")?;
            ok!(gaspi_segment_delete(0));
        }
        barrier()?;
    }
    Ok(())
}

fn churn(ctx: &Ctx) -> Verdict {
    for round in 0..100u64 {
        let id = (round % 3) as u8;
        let memory = segment(id, 100_000)?;
        memory.set(0, round);
        post::write_notify(id, 0, right(ctx), id, 50_000, 8, 0, 1).ok(0, LONG)?;
        notified(id, 0)?;
        ensure_eq!(memory.get(50_000), round, "what the neighbour wrote");
        flush(0)?;
        barrier()?;
        ok!(gaspi_segment_delete(id));
    }
    barrier()
}
