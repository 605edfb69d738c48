//! Ends of processes in calls of GASPI.

use super::{Way, each_call, end_in};
use crate::laws::gaspi::in_progress::{CALLS, WAITS};
use crate::laws::gaspi::kit::*;

laws! {
    beside: "exit.beside", "§5.3.4", 1,
        [gaspi_passive_receive, gaspi_passive_send, gaspi_notify_waitsome, gaspi_barrier, gaspi_allreduce, gaspi_allreduce_user, gaspi_group_commit,
         gaspi_segment_create, gaspi_segment_use, gaspi_threads_sync_all, gaspi_write, gaspi_read, gaspi_wait, gaspi_atomic_fetch_add,
         gaspi_atomic_compare_swap, gaspi_request_wait, gaspi_connect, gaspi_disconnect, gaspi_segment_register, gaspi_queue_create] + bare,
        "a process ends by exit while another thread of it waits in a call, or calls without a pause";
    handler: "exit.handler", "§5.3.4", 1, [gaspi_passive_receive, gaspi_notify_waitsome, gaspi_barrier, gaspi_write, gaspi_wait] + bare,
        "a process ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "§5.3.4", 1, [gaspi_passive_receive, gaspi_notify_waitsome, gaspi_barrier, gaspi_write, gaspi_wait] + bare,
        "a process ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "gaspi.job.ends";

fn beside(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Beside, NUMBER)
}

fn handler(ctx: &Ctx) -> Verdict {
    // Without the last part, which allocates: an exit that interrupts malloc waits for its lock (signal-safety(7)).
    each_call(ctx, JOB, Way::Handler, NUMBER - 1)
}

fn at_once(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::AtOnce, NUMBER)
}

/// Each wait, and the other calls in parts.
const NUMBER: u64 = (WAITS.len() + CALLS.len().div_ceil(PART)) as u64;
const PART: usize = 6;

fn call(nth: usize) {
    match WAITS.get(nth) {
        Some((_, _, wait)) => drop(wait(0, ALL)),
        None => {
            let calls = CALLS.chunks(PART).nth(nth - WAITS.len());
            for (_, call) in calls.unwrap_or_default() {
                call(0, 0, BLOCK);
            }
            c!(gaspi_wait(0, BLOCK));
        }
    }
}

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    segment(0, 4096)?;
    end_in(ctx, NUMBER as usize, call)
}
