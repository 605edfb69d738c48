//! The end of a process while other threads are in calls.

use super::deleted::beside;
use super::kit::*;

laws! {
    waiting: "term.waiting", "§5.3.4, §4.2.1", 2,
        [gaspi_proc_term, gaspi_passive_receive, gaspi_passive_send, gaspi_notify_waitsome, gaspi_barrier, gaspi_allreduce, gaspi_group_commit, gaspi_segment_create] + bare,
        "gaspi_proc_term ends the calls in which other threads wait, with an error, and frees nothing before";
    busy: "term.busy", "§5.3.4", 2,
        [gaspi_proc_term, gaspi_write, gaspi_read, gaspi_notify, gaspi_atomic_fetch_add, gaspi_wait, gaspi_notify_waitsome, gaspi_notify_reset, gaspi_segment_ptr] + bare,
        "gaspi_proc_term while other threads call without a pause: each call ends well or with an error, and writes nothing later";
}

/// `GASPI_ERR_NOINIT`.
const NOINIT: i32 = 6;

type Wait = (&'static str, fn() -> i32);

/// Calls of rank 0 that do not end by themselves.
const WAITS: [Wait; 8] = [
    ("gaspi_passive_receive", || received(0, 0, 8, BLOCK)),
    ("gaspi_passive_send", || {
        c!(gaspi_passive_send(0, 0, 1, 8, BLOCK))
    }),
    ("gaspi_notify_waitsome of one", || waitsome(0, 7, 1, BLOCK)),
    ("gaspi_notify_waitsome of many", || {
        waitsome(0, 0, 1000, BLOCK)
    }),
    ("gaspi_barrier", || c!(gaspi_barrier(ALL, BLOCK))),
    ("gaspi_allreduce", || summed(ALL, BLOCK)),
    ("gaspi_group_commit", || {
        let mut group = 0;
        let added = c!(gaspi_group_create(&mut group))
            | c!(gaspi_group_add(group, 0))
            | c!(gaspi_group_add(group, 1));
        match added {
            SUCCESS => c!(gaspi_group_commit(group, BLOCK)),
            code => code,
        }
    }),
    ("gaspi_segment_create", || {
        c!(gaspi_segment_create(1, 64, ALL, BLOCK, 0))
    }),
];

/// The other ranks call gaspi_proc_term after rank 0.
fn after_rank_0(ctx: &Ctx) -> Verdict {
    ctx.sync();
    if ctx.rank != 0 {
        ok!(gaspi_proc_term(LONG));
    }
    ctx.sync();
    Ok(())
}

fn waiting(ctx: &Ctx) -> Verdict {
    for (name, wait) in WAITS {
        ok!(gaspi_proc_init(LONG));
        segment(0, 4096)?;
        if ctx.rank == 0 {
            let end = || c!(gaspi_proc_term(BLOCK));
            let (ended, waited) = beside(ctx, name, wait, end, |_| Ok(()))?;
            ensure_eq!(ended, SUCCESS, "gaspi_proc_term beside {name}");
            must_fail(waited, name)?;
        }
        after_rank_0(ctx)?;
    }
    Ok(())
}

/// Calls that end by themselves.
const CALLS: [fn() -> i32; 6] = [
    || c!(gaspi_write(0, 0, 1, 0, 64, 64, 0, BLOCK)),
    || c!(gaspi_read(0, 0, 1, 0, 64, 8, 1, BLOCK)),
    || c!(gaspi_notify(0, 1, 5, 1, 2, BLOCK)),
    || {
        let mut old = 0;
        c!(gaspi_atomic_fetch_add(0, 256, 1, 1, &mut old, BLOCK))
    },
    || match waitsome(0, 0, 8, TEST) {
        TIMEOUT => c!(gaspi_notify_reset(0, 3, null_mut())),
        code => code,
    },
    || {
        let (mut base, mut rank) = (null_mut(), 0);
        c!(gaspi_segment_ptr(0, &mut base)).max(c!(gaspi_proc_rank(&mut rank)))
    },
];

fn busy(ctx: &Ctx) -> Verdict {
    for round in 0..if ctx.is_quick() { 12 } else { 4 } {
        ok!(gaspi_proc_init(LONG));
        segment(0, 4096)?;
        if ctx.rank == 0 {
            std::thread::scope(|scope| {
                let calls = CALLS.iter().enumerate().map(|(nth, call)| {
                    scope.spawn(move || {
                        loop {
                            match call() {
                                SUCCESS | TIMEOUT => {}
                                QUEUE_FULL => drop(c!(gaspi_wait(nth as u8, BLOCK))),
                                code => return code,
                            }
                        }
                    })
                });
                let calls: Vec<_> = calls.collect();
                pause(ctx.random(round).below(10));
                ok!(gaspi_proc_term(BLOCK));
                for (nth, call) in calls.into_iter().enumerate() {
                    let code = call.join().map_err(|_| format!("call {nth}: a panic"))?;
                    must_fail(code, format!("call {nth}"))?;
                }
                Ok::<_, String>(())
            })?;
            let mut rank = 0;
            ensure_eq!(c!(gaspi_proc_rank(&mut rank)), NOINIT, "after the end");
        }
        after_rank_0(ctx)?;
    }
    Ok(())
}
