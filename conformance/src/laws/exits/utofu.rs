//! Ends of processes in calls of uTofu.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Way, each_call, end_in};
use crate::laws::utofu::freed::{CALLS, COMMANDS, Call, OF_GATES, circuit};
use crate::laws::utofu::kit::*;

laws! {
    beside: "exit.beside", "§2.5", 1,
        [put, put_piggyback8, put_stride, get, get_stride, armw4, armw8, cswap4, cswap8, nop, post_toq, poll_tcq, poll_mrq, reg_mem, dereg_mem,
         create_vcq, free_vcq, barrier, poll_barrier, reduce_uint64, poll_reduce_uint64] + bare,
        "a process ends by exit while another thread of it communicates and polls, or makes VCQs";
    handler: "exit.handler", "§2.5", 1, [put, get, armw8, poll_tcq, poll_mrq, create_vcq, free_vcq] + bare,
        "a process ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "§2.5", 1, [put, get, armw8, poll_tcq, poll_mrq, create_vcq, free_vcq] + bare,
        "a process ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "utofu.job.ends";

fn beside(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Beside, NUMBER)
}

fn handler(ctx: &Ctx) -> Verdict {
    // Without the last parts, which allocate: an exit that interrupts malloc waits for its lock (signal-safety(7)).
    each_call(ctx, JOB, Way::Handler, NUMBER - 2)
}

fn at_once(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::AtOnce, NUMBER)
}

/// The VCQ.
static HDL: AtomicUsize = AtomicUsize::new(0);
/// A gate of a circuit of this process.
static GATE: AtomicU64 = AtomicU64::new(0);

/// Parts of the commands, calls of gates, other calls, and the making of a VCQ.
const NUMBER: u64 = 5;
const PART: usize = COMMANDS.len() / 2;

fn with_vcq(calls: &[Call]) {
    let hdl = HDL.load(Ordering::Relaxed);
    let peer = vcq_of(1, TNI, 0).unwrap_or_default();
    let own = vcq_of(0, TNI, 0).and_then(|id| stadd_of(id, STAG));
    let queue = Queue { hdl, id: 0 };
    for call in calls {
        call(hdl, own.clone().unwrap_or_default(), peer);
        while queue.poll_tcq().0 != NOT_FOUND {}
        while queue.poll_mrq().0 != NOT_FOUND {}
    }
}

fn call(nth: usize) {
    match nth {
        0 => with_vcq(&COMMANDS[..PART]),
        1 => with_vcq(&COMMANDS[PART..]),
        2 => OF_GATES.iter().for_each(|call| {
            call(GATE.load(Ordering::Relaxed));
        }),
        3 => with_vcq(&CALLS),
        _ => {
            if let Ok(queue) = Queue::create(TNI, 0) {
                let _ = queue.free();
            }
        }
    }
}

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, THREAD_SAFE)?;
    queue.register_as(Memory::new(4096), STAG)?;
    HDL.store(queue.hdl, Ordering::Relaxed);
    GATE.store(circuit()?[0], Ordering::Relaxed);
    end_in(ctx, NUMBER as usize, call)
}
