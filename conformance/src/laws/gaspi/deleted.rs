//! The end of a segment, group, queue or connection while other threads are in calls that use it. The specification leaves most of this
//! undefined; the headers define it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::in_progress::{CALLS, CREATED, Needs, WAITS, Wait};
use super::kit::*;

laws! {
    waiting: "deleted.waiting", "§7.3.1, §6.4.1, §3.10", 2,
        [gaspi_segment_delete, gaspi_group_delete, gaspi_notify_waitsome, gaspi_passive_receive, gaspi_passive_send, gaspi_barrier, gaspi_allreduce,
         gaspi_allreduce_user, gaspi_group_commit, gaspi_segment_create, gaspi_segment_use, gaspi_threads_sync_all],
        "a call that waits ends with an error when another thread deletes its segment or group, or the deletion is refused and the call goes on";
    busy: "deleted.busy", "§7.3.1, §8.5.2, §5.4.2", 2,
        [gaspi_segment_delete, gaspi_queue_delete, gaspi_disconnect, gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_read_notify,
         gaspi_write_list, gaspi_read_list, gaspi_write_list_notify, gaspi_read_list_notify, gaspi_operation_submit, gaspi_request_wait,
         gaspi_atomic_fetch_add, gaspi_atomic_compare_swap, gaspi_wait, gaspi_notify_waitsome, gaspi_notify_reset, gaspi_segment_ptr,
         gaspi_queue_purge, gaspi_connect, gaspi_segment_register, gaspi_queue_create, gaspi_segment_alloc],
        "segments, queues and connections end and come again while other threads use them: each call ends well, with a timeout or an error";
    disconnected: "deleted.disconnected", "§5.4.2, §9.2.1, §11.2.1", 2,
        [gaspi_disconnect, gaspi_connect, gaspi_passive_send, gaspi_barrier, gaspi_allreduce, gaspi_allreduce_user, gaspi_threads_sync_all],
        "a call that waits for a rank goes on when another thread disconnects from it and connects again";
}

/// Runs `end` and `then` while another thread is in `call`. Gives the codes of `end` and `call`.
pub(super) fn beside(
    ctx: &Ctx,
    name: &str,
    call: impl Fn() -> i32 + Sync,
    end: impl FnOnce() -> i32,
    then: impl FnOnce(i32) -> Verdict,
) -> Result<(i32, i32), String> {
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            begun.store(true, Ordering::Release);
            call()
        });
        while !begun.load(Ordering::Acquire) {
            pause(1);
        }
        pause(ctx.random(0).below(20));
        let ended = end();
        then(ended)?;
        let waited = waits.join().map_err(|_| format!("{name}: a panic"))?;
        Ok((ended, waited))
    })
}

fn waiting(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    if ctx.rank == 0 {
        for (name, _, call) in WAITS
            .iter()
            .filter(|(_, needs, _)| *needs == Needs::Segment)
        {
            ok!(gaspi_segment_alloc(1, 4096, 0));
            let delete = || c!(gaspi_segment_delete(1));
            let (ended, waited) = beside(ctx, name, || call(1, ALL), delete, |_| Ok(()))?;
            ensure_eq!(ended, SUCCESS, "gaspi_segment_delete beside {name}");
            must_fail(waited, name)?;
        }
    }
    for (name, _, call) in WAITS.iter().filter(|(_, needs, _)| *needs == Needs::Group) {
        let creates = name.starts_with("gaspi_segment");
        for of_segment in [false, true].into_iter().take(1 + usize::from(creates)) {
            group_or_segment(ctx, name, *call, of_segment)?;
            if creates {
                // The deletion or an error may have ended it.
                let _ = c!(gaspi_segment_delete(CREATED));
            }
            barrier()?;
        }
    }
    Ok(())
}

/// Deletes the group of a call in progress, or the segment that the call creates.
fn group_or_segment(ctx: &Ctx, name: &str, call: Wait, of_segment: bool) -> Verdict {
    let group = uncommitted([0, 1])?;
    if name != "gaspi_group_commit" {
        ok!(gaspi_group_commit(group, LONG));
    }
    if ctx.rank != 0 {
        ctx.sync();
        if notified(0, 0)? == 2 {
            ensure_eq!(call(1, group), SUCCESS, "{name} of the other member");
        }
        return done!(gaspi_group_delete(group));
    }
    let delete = || match of_segment {
        true => c!(gaspi_segment_delete(CREATED)),
        false => c!(gaspi_group_delete(group)),
    };
    // The notification's value: 2 if the other member must join, else 1. A creation goes on to its end.
    let then = |ended: i32| {
        ctx.sync();
        let value = 1 + u32::from(ended != SUCCESS || of_segment);
        ok!(gaspi_notify(0, 1, 0, value, 0, LONG));
        flush(0)
    };
    let (ended, waited) = beside(ctx, name, || call(1, group), delete, then)?;
    match ended {
        SUCCESS => must_fail(waited, name)?,
        _ => ensure_eq!(waited, SUCCESS, "{name}, before the object is deleted"),
    }
    if of_segment || ended != SUCCESS {
        ok!(gaspi_group_delete(group));
    }
    Ok(())
}

fn disconnected(ctx: &Ctx) -> Verdict {
    segment(1, 4096)?;
    for (name, needs, call) in WAITS {
        let sends = name == "gaspi_passive_send";
        // The commit and the creations need another group or segment for each round.
        let repeats = !name.contains("commit") && !name.starts_with("gaspi_segment");
        let meets = needs == Needs::Group && repeats;
        if !sends && !meets {
            continue;
        }
        if ctx.rank == 0 {
            let apart = || {
                let both = || match c!(gaspi_disconnect(1, LONG)) {
                    SUCCESS => c!(gaspi_connect(1, LONG)),
                    code => code,
                };
                (0..5).map(|_| both()).find(|code| *code != SUCCESS)
            };
            let end = || apart().unwrap_or(SUCCESS);
            let then = |_| {
                ctx.sync();
                Ok(())
            };
            let codes = beside(ctx, name, || call(1, ALL), end, then)?;
            ensure_eq!(codes, (SUCCESS, SUCCESS), "gaspi_connect, and {name}");
        } else {
            ctx.sync();
            let code = match sends {
                true => received(1, 64, 8, BLOCK),
                false => call(1, ALL),
            };
            ensure_eq!(code, SUCCESS, "{name} of the other rank");
        }
        barrier()?;
    }
    Ok(())
}

/// The queue of the calls. It is deleted and created again.
static QUEUE: AtomicU32 = AtomicU32::new(0);

fn queue() -> u8 {
    QUEUE.load(Ordering::Relaxed) as u8
}

fn busy(ctx: &Ctx) -> Verdict {
    segment(1, 4096)?;
    QUEUE.store(new_queue()?.into(), Ordering::Relaxed);
    barrier()?;
    if ctx.rank == 0 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Without the call that closes the connection, too.
            let calls = CALLS.iter().filter(|(name, _)| *name != "gaspi_disconnect");
            let callers = calls.map(|(name, call)| {
                let stop = &stop;
                let caller = scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if call(1, queue(), TEST) == QUEUE_FULL {
                            c!(gaspi_wait(queue(), 20));
                        }
                    }
                });
                (name, caller)
            });
            let callers: Vec<_> = callers.collect();
            let ended = end_again_and_again(ctx);
            stop.store(true, Ordering::Relaxed);
            for (name, caller) in callers {
                caller.join().map_err(|_| format!("{name}: a panic"))?;
            }
            ended
        })?;
        // The segment, the queue and the connection work as before.
        ok!(gaspi_queue_purge(queue(), LONG));
        post::write_notify(1, 0, 1, 1, 64, 8, 9, 1).ok(queue(), LONG)?;
        flush(queue())?;
    } else {
        notified(1, 9)?;
    }
    barrier()
}

fn end_again_and_again(ctx: &Ctx) -> Verdict {
    for round in 0..if ctx.is_quick() { 30 } else { 8 } {
        pause(ctx.random(round).below(4));
        let mut looks = Looks::for_the("end of a queue");
        match round % 3 {
            0 => {
                ok!(gaspi_segment_delete(1));
                pause(1);
                ok!(gaspi_segment_alloc(1, 4096, 0));
                ok!(gaspi_segment_register(1, 1, LONG));
            }
            1 => {
                while c!(gaspi_queue_delete(queue())) != SUCCESS {
                    // Requests are in flight.
                    looks.again();
                    if c!(gaspi_wait(queue(), 20)) != SUCCESS {
                        c!(gaspi_queue_purge(queue(), LONG));
                    }
                }
                pause(1);
                QUEUE.store(new_queue()?.into(), Ordering::Relaxed);
            }
            _ => {
                ok!(gaspi_disconnect(1, LONG));
                pause(1);
                ok!(gaspi_connect(1, LONG));
            }
        }
    }
    Ok(())
}
