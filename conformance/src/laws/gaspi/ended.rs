//! The end of a process while other threads are in calls.

use std::sync::atomic::{AtomicBool, Ordering};

use super::deleted::beside;
use super::in_progress::{CALLS, WAITS};
use super::kit::*;

laws! {
    waiting: "term.waiting", "§5.3.4, §4.2.1", 2,
        [gaspi_proc_term, gaspi_passive_receive, gaspi_passive_send, gaspi_notify_waitsome, gaspi_barrier, gaspi_allreduce, gaspi_allreduce_user,
         gaspi_group_commit, gaspi_segment_create, gaspi_segment_use, gaspi_threads_sync_all] + bare,
        "gaspi_proc_term ends the calls in which other threads wait, with an error, and frees nothing before";
    busy: "term.busy", "§5.3.4", 2,
        [gaspi_proc_term, gaspi_write, gaspi_read, gaspi_notify, gaspi_write_notify, gaspi_read_notify, gaspi_write_list, gaspi_read_list,
         gaspi_write_list_notify, gaspi_read_list_notify, gaspi_operation_submit, gaspi_request_wait, gaspi_atomic_fetch_add, gaspi_atomic_compare_swap,
         gaspi_wait, gaspi_notify_waitsome, gaspi_notify_reset, gaspi_segment_ptr, gaspi_queue_purge, gaspi_connect, gaspi_disconnect,
         gaspi_segment_register, gaspi_queue_create, gaspi_segment_alloc] + bare,
        "gaspi_proc_term while other threads call without a pause: each call ends well or with an error, later ones with an error, and writes nothing later";
}

/// `GASPI_ERR_NOINIT`.
const NOINIT: i32 = 6;
/// Queues of the calls.
const QUEUES: u8 = 8;

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
    for (name, _, wait) in WAITS {
        ok!(gaspi_proc_init(LONG));
        segment(0, 4096)?;
        if ctx.rank == 0 {
            let end = || c!(gaspi_proc_term(BLOCK));
            let (ended, waited) = beside(ctx, name, || wait(0, ALL), end, |_| Ok(()))?;
            ensure_eq!(ended, SUCCESS, "gaspi_proc_term beside {name}");
            must_fail(waited, name)?;
        }
        after_rank_0(ctx)?;
    }
    Ok(())
}

fn busy(ctx: &Ctx) -> Verdict {
    for round in 0..if ctx.is_quick() { 12 } else { 4 } {
        ok!(gaspi_proc_init(LONG));
        segment(0, 4096)?;
        if ctx.rank == 0 {
            let ended = AtomicBool::new(false);
            threads(CALLS.len() + 1, |nth| {
                let Some((name, call)) = CALLS.get(nth) else {
                    pause(ctx.random(round).below(10));
                    let code = c!(gaspi_proc_term(BLOCK));
                    ended.store(true, Ordering::Release);
                    ensure_eq!(code, SUCCESS, "gaspi_proc_term");
                    return Ok(());
                };
                let queue = nth as u8 % QUEUES;
                loop {
                    let is_over = ended.load(Ordering::Acquire);
                    match call(0, queue, BLOCK) {
                        code if is_over => return must_fail(code, name),
                        QUEUE_FULL => drop(c!(gaspi_wait(queue, BLOCK))),
                        _ => {}
                    }
                }
            })?;
            let mut rank = 0;
            ensure_eq!(c!(gaspi_proc_rank(&mut rank)), NOINIT, "after the end");
        }
        after_rank_0(ctx)?;
    }
    Ok(())
}
