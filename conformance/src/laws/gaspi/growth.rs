//! §5.3.4, §6.4.1, §7.3.1, §8.5: a deleted object takes no memory, here or at its users, over many repetitions. Threads that use it
//! meanwhile get a correct result or an error.

use std::sync::atomic::{AtomicBool, Ordering};

use super::kit::*;
use crate::growth::stays_small;

laws! {
    own_segments: "growth.own-segments", "§7.3.1", 1, [gaspi_segment_alloc, gaspi_segment_delete, gaspi_write, gaspi_wait],
        "a process that allocates a segment, writes to it and deletes it, thousands of times, does not grow";
    peers_segments: "growth.peers-segments", "§7.3.1", 2,
        [gaspi_segment_alloc, gaspi_segment_register, gaspi_segment_delete, gaspi_write, gaspi_wait],
        "a process that writes to thousands of segments of another one, one after the other, does not grow, and each gets its word";
    groups: "growth.groups", "§6.4.1", 2, [gaspi_group_create, gaspi_group_commit, gaspi_group_delete, gaspi_barrier],
        "processes that form groups and delete them, hundreds of times, do not grow";
    queues: "growth.queues", "§8.5", 1, [gaspi_queue_create, gaspi_queue_delete, gaspi_connect, gaspi_write],
        "a process that creates queues and deletes them, and connects, tens of thousands of times, does not grow";
    lives: "growth.lives", "§5.1, §5.3.4", 2, [gaspi_proc_init, gaspi_proc_term, gaspi_segment_create] + bare,
        "processes that are initialised and terminated again and again do not grow";
    meanwhile: "growth.meanwhile", "§3.4, §6.4.1, §7.3.1", 2,
        [gaspi_segment_alloc, gaspi_segment_delete, gaspi_group_delete, gaspi_write, gaspi_atomic_fetch_add, gaspi_barrier],
        "threads write to a segment that is deleted and made again, and meet in a group that others delete: each call succeeds or says what is missing";
}

/// KiB. A leak of each created object is larger.
const MOST: u64 = 768;

fn own_segments(_ctx: &Ctx) -> Verdict {
    stays_small(8000, MOST, |nth| {
        let id = (nth % 7) as u8;
        ok!(gaspi_segment_alloc(id, 64 + nth % 4096, 0));
        ok!(gaspi_write(id, 0, 0, id, 8, 8, 0, LONG));
        ok!(gaspi_wait(0, LONG));
        done!(gaspi_segment_delete(id))
    })
}

fn peers_segments(ctx: &Ctx) -> Verdict {
    /// Segments at a time.
    const SEGMENTS: u8 = 100;
    segment(200, 8)?.set(0, 77);
    stays_small(80, MOST, |nth| {
        if ctx.rank == 0 {
            for id in 0..SEGMENTS {
                let size = 64 + 8 * (nth % 500 + u64::from(id));
                ok!(gaspi_segment_alloc(id, size, 0));
                ok!(gaspi_segment_register(id, 1, LONG));
            }
        }
        ctx.sync();
        if ctx.rank == 1 {
            for id in 0..SEGMENTS {
                ok!(gaspi_write(200, 0, 0, id, 56, 8, 0, LONG));
            }
            ok!(gaspi_wait(0, LONG));
        }
        ctx.sync();
        if ctx.rank == 0 {
            for id in 0..SEGMENTS {
                ensure_eq!(memory(id, 64)?.get(56), 77, "the word in segment {id}");
                ok!(gaspi_segment_delete(id));
            }
        }
        Ok(())
    })
}

fn groups(_ctx: &Ctx) -> Verdict {
    stays_small(800, MOST, |_| {
        let group = group_of(&[0, 1])?;
        ok!(gaspi_barrier(group, LONG));
        done!(gaspi_group_delete(group))
    })
}

fn queues(_ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    stays_small(10_000, MOST, |_| {
        let queue = new_queue()?;
        ok!(gaspi_connect(0, LONG));
        ok!(gaspi_write(0, 0, 0, 0, 8, 8, queue, LONG));
        done!(gaspi_queue_delete(queue))
    })
}

fn lives(_ctx: &Ctx) -> Verdict {
    stays_small(80, MOST, |_| {
        ok!(gaspi_proc_init(LONG));
        segment(0, 64)?;
        ok!(gaspi_write(0, 0, 0, 0, 8, 8, 0, LONG));
        ok!(gaspi_write(0, 0, 1, 0, 8, 8, 0, LONG));
        ok!(gaspi_wait(0, LONG));
        barrier()?;
        done!(gaspi_proc_term(LONG))
    })
}

fn meanwhile(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    let done = AtomicBool::new(false);
    let writers = || {
        threads(3, |nth| {
            let other = (1 - ctx.rank) as u16;
            let queue = nth as u8;
            while !done.load(Ordering::Relaxed) {
                let mut before = 0;
                for rank in [other, ctx.rank as u16] {
                    for code in [
                        c!(gaspi_write(0, 0, rank, 1, 8, 8, queue, LONG)),
                        c!(gaspi_atomic_fetch_add(1, 16, rank, 1, &mut before, LONG)),
                    ] {
                        one_of(code, &[SUCCESS, GASPI_ERR_INV_SEG], "a call")?;
                    }
                }
                let code = c!(gaspi_wait(queue, LONG));
                // On an asynchronous backend an operation may fail: its segment is deleted.
                if code != SUCCESS {
                    ensure_eq!(code, ERROR, "gaspi_wait");
                    repeat("gaspi_queue_purge", || c!(gaspi_queue_purge(queue, LONG)))?;
                }
            }
            Ok(())
        })
    };
    let maker = || -> Verdict {
        let rounds = if ctx.is_quick() { 600u64 } else { 60 };
        for nth in 0..rounds {
            ok!(gaspi_segment_alloc(1, 64 + 8 * (nth % 100), 0));
            ok!(gaspi_segment_register(1, (1 - ctx.rank) as u16, LONG));
            std::thread::yield_now();
            ok!(gaspi_segment_delete(1));
            let group = group_of(&[ctx.rank as u16])?;
            std::thread::scope(|scope| {
                let meets = scope.spawn(|| c!(gaspi_barrier(group, LONG)));
                let deleted = loop {
                    let code = c!(gaspi_group_delete(group));
                    if code != GASPI_ERR_ACTIVE_COLL {
                        break code;
                    }
                };
                let met = meets.join().unwrap_or(ERROR);
                ensure_eq!(deleted, SUCCESS, "gaspi_group_delete");
                let allowed = [SUCCESS, GASPI_ERR_INV_GROUP, GASPI_ERR_ACTIVE_COLL];
                one_of(met, &allowed, "a barrier of a group that is being deleted")
            })?;
        }
        Ok(())
    };
    let verdict = std::thread::scope(|scope| {
        let writers = scope.spawn(writers);
        let made = maker();
        done.store(true, Ordering::Relaxed);
        let wrote = writers.join().unwrap_or(Err("a thread panicked".into()));
        made.and(wrote)
    });
    ctx.sync();
    verdict
}
