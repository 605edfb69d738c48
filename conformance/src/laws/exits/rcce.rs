//! Ends of processes in calls of RCCE and iRCCE.

use super::{Way, each_call, end_in};
use crate::laws::rcce::in_progress::{CALLS, WAITS, prepare};
use crate::laws::rcce::kit::*;

laws! {
    beside: "exit.beside", "RCCE.h", 1, [RCCE_recv, RCCE_send, RCCE_barrier, iRCCE_barrier, RCCE_bcast, RCCE_allreduce, RCCE_comm_split,
        RCCE_put, RCCE_get, iRCCE_irecv, iRCCE_irecv_wait, iRCCE_wait_all, iRCCE_wait_any, iRCCE_probe, RCCE_wait_until, RCCE_acquire_lock] + bare,
        "a UE ends by exit while another thread of it waits in a call, or calls without a pause";
    handler: "exit.handler", "RCCE.h", 1, [RCCE_recv, RCCE_send, RCCE_barrier, RCCE_put, iRCCE_irecv_wait] + bare,
        "a UE ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "RCCE.h", 1, [RCCE_recv, RCCE_send, RCCE_barrier, RCCE_put, iRCCE_irecv_wait] + bare,
        "a UE ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "rcce.job.ends";

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
const PART: usize = 4;

fn call(nth: usize) {
    match WAITS.get(nth) {
        Some((_, wait)) => drop(wait()),
        None => {
            let calls = CALLS.chunks(PART).nth(nth - WAITS.len());
            for (_, call) in calls.unwrap_or_default() {
                call();
            }
        }
    }
}

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    begin()?;
    prepare(ctx)?;
    end_in(ctx, NUMBER as usize, call)
}
