//! The end of a segment, group, queue or connection while other threads are in calls that use it. The specification leaves most of this
//! undefined; the headers define it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::kit::*;

laws! {
    waiting: "deleted.waiting", "§7.3.1, §6.4.1, §3.10", 2,
        [gaspi_segment_delete, gaspi_group_delete, gaspi_notify_waitsome, gaspi_passive_receive, gaspi_passive_send, gaspi_barrier, gaspi_allreduce, gaspi_group_commit],
        "a call that waits ends with an error when another thread deletes its segment or group, or the deletion is refused and the call goes on";
    busy: "deleted.busy", "§7.3.1, §8.5.2, §5.4.2", 2,
        [gaspi_segment_delete, gaspi_queue_delete, gaspi_disconnect, gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_atomic_fetch_add, gaspi_wait, gaspi_notify_waitsome, gaspi_notify_reset],
        "segments, queues and connections end and come again while other threads use them: each call ends well, with a timeout or an error";
    disconnected: "deleted.disconnected", "§5.4.2, §9.2.1, §11.2.1", 2,
        [gaspi_disconnect, gaspi_connect, gaspi_passive_send, gaspi_barrier, gaspi_allreduce],
        "a call that waits for a rank goes on when another thread disconnects from it and connects again";
}

type Call = fn(u8) -> i32;

/// Calls that use segment 1 and do not end by themselves.
const OF_SEGMENTS: [(&str, Call); 4] = [
    ("gaspi_notify_waitsome of one", |_| waitsome(1, 0, 1, BLOCK)),
    ("gaspi_notify_waitsome of many", |_| {
        waitsome(1, 0, 1000, BLOCK)
    }),
    ("gaspi_passive_receive", |_| received(1, 64, 8, BLOCK)),
    ("gaspi_passive_send", |_| {
        c!(gaspi_passive_send(1, 0, 1, 8, BLOCK))
    }),
];

/// Calls that wait for the other member of a group.
const OF_GROUPS: [(&str, Call); 3] = [
    ("gaspi_barrier", |group| c!(gaspi_barrier(group, BLOCK))),
    ("gaspi_allreduce", |group| summed(group, BLOCK)),
    ("gaspi_group_commit", |group| {
        c!(gaspi_group_commit(group, BLOCK))
    }),
];

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
    for (name, call) in OF_SEGMENTS {
        if ctx.rank == 0 {
            ok!(gaspi_segment_alloc(1, 4096, 0));
            let delete = || c!(gaspi_segment_delete(1));
            let (ended, waited) = beside(ctx, name, || call(0), delete, |_| Ok(()))?;
            ensure_eq!(ended, SUCCESS, "gaspi_segment_delete beside {name}");
            must_fail(waited, name)?;
        }
    }
    for (name, call) in OF_GROUPS {
        let group = uncommitted([0, 1])?;
        if name != "gaspi_group_commit" {
            ok!(gaspi_group_commit(group, LONG));
        }
        if ctx.rank == 0 {
            let delete = || c!(gaspi_group_delete(group));
            // The notification's value: 2 if the other member must join, else 1.
            let then = |ended: i32| {
                ctx.sync();
                let value = 1 + u32::from(ended != SUCCESS);
                ok!(gaspi_notify(0, 1, 0, value, 0, LONG));
                flush(0)
            };
            let (ended, waited) = beside(ctx, name, || call(group), delete, then)?;
            match ended {
                SUCCESS => must_fail(waited, name)?,
                _ => {
                    ensure_eq!(waited, SUCCESS, "{name}, whose group is not deleted");
                    ok!(gaspi_group_delete(group));
                }
            }
        } else {
            ctx.sync();
            if notified(0, 0)? == 2 {
                ensure_eq!(call(group), SUCCESS, "{name} of the other member");
            }
            ok!(gaspi_group_delete(group));
        }
        barrier()?;
    }
    Ok(())
}

fn disconnected(ctx: &Ctx) -> Verdict {
    segment(1, 4096)?;
    let group_calls = OF_GROUPS.map(|(name, call)| (name, call, call));
    let sends: (_, Call, Call) = (OF_SEGMENTS[3].0, OF_SEGMENTS[3].1, |_| {
        received(1, 64, 8, BLOCK)
    });
    // Without the commit: it needs another group.
    for (name, call, answer) in [sends, group_calls[0], group_calls[1]] {
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
            let codes = beside(ctx, name, || call(ALL), end, then)?;
            ensure_eq!(codes, (SUCCESS, SUCCESS), "gaspi_connect, and {name}");
        } else {
            ctx.sync();
            ensure_eq!(answer(ALL), SUCCESS, "{name} of the other rank");
        }
        barrier()?;
    }
    Ok(())
}

/// The queue of [`CALLS`]. It is deleted and created again.
static QUEUE: AtomicU32 = AtomicU32::new(0);

fn queue() -> u8 {
    QUEUE.load(Ordering::Relaxed) as u8
}

/// Calls that end by themselves. They use segment 1 at both ends and [`queue`].
const CALLS: [fn() -> i32; 7] = [
    || c!(gaspi_write(1, 0, 1, 1, 64, 64, queue(), TEST)),
    || c!(gaspi_read(1, 128, 1, 1, 64, 200, queue(), TEST)),
    || c!(gaspi_notify(1, 1, 5, 1, queue(), TEST)),
    || post::write_notify(1, 0, 1, 1, 64, 2048, 6, 1).code(queue(), TEST),
    || {
        let mut old = 0;
        c!(gaspi_atomic_fetch_add(1, 3072, 1, 1, &mut old, 20))
    },
    || {
        let (mut first, mut old) = (0, 0);
        match c!(gaspi_notify_waitsome(1, 0, 8, &mut first, 1)) {
            SUCCESS => c!(gaspi_notify_reset(1, first, &mut old)),
            code => code,
        }
    },
    || c!(gaspi_wait(queue(), 20)),
];

fn busy(ctx: &Ctx) -> Verdict {
    segment(1, 4096)?;
    QUEUE.store(new_queue()?.into(), Ordering::Relaxed);
    barrier()?;
    if ctx.rank == 0 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let callers = CALLS.map(|call| {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if call() == QUEUE_FULL {
                            c!(gaspi_wait(queue(), 20));
                        }
                    }
                })
            });
            let ended = end_again_and_again(ctx);
            stop.store(true, Ordering::Relaxed);
            for (nth, caller) in callers.into_iter().enumerate() {
                caller.join().map_err(|_| format!("call {nth}: a panic"))?;
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
