//! Ends of processes in calls of uTofu.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Way, each_call, end_in};
use crate::laws::utofu::kit::*;

laws! {
    beside: "exit.beside", "§2.5", 1, [put, get, armw8, poll_tcq, poll_mrq, create_vcq, free_vcq] + bare,
        "a process ends by exit while another thread of it communicates and polls, or makes VCQs";
    handler: "exit.handler", "§2.5", 1, [put, get, armw8, poll_tcq, poll_mrq, create_vcq, free_vcq] + bare,
        "a process ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "§2.5", 1, [put, get, armw8, poll_tcq, poll_mrq, create_vcq, free_vcq] + bare,
        "a process ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "utofu.job.ends";

fn beside(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Beside, CALLS.len() as u64)
}

fn handler(ctx: &Ctx) -> Verdict {
    // Omits the last call, which allocates: an exit that interrupts malloc waits for its lock (signal-safety(7)).
    each_call(ctx, JOB, Way::Handler, CALLS.len() as u64 - 1)
}

fn at_once(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::AtOnce, CALLS.len() as u64)
}

/// The VCQ, and the two STADDs.
static HDL: AtomicUsize = AtomicUsize::new(0);

fn with_vcq(work: impl FnOnce(Queue, u64, u64)) {
    let hdl = HDL.load(Ordering::Relaxed);
    let peer = vcq_of(1, TNI, 0).unwrap_or_default();
    let own = vcq_of(0, TNI, 0).unwrap_or_default();
    work(Queue { hdl, id: own }, peer, own);
}

fn poll(queue: Queue) {
    while queue.poll_tcq().0 != NOT_FOUND {}
    while queue.poll_mrq().0 != NOT_FOUND {}
}

fn at(vcq: u64) -> u64 {
    stadd_of(vcq, STAG).unwrap_or_default()
}

const CALLS: [fn(); 4] = [
    || {
        with_vcq(|queue, peer, own| {
            post::put(queue.hdl, peer, at(own), at(peer), 512).code(0, TCQ | LOCAL, 1);
            poll(queue);
        });
    },
    || {
        with_vcq(|queue, peer, own| {
            post::get(queue.hdl, peer, at(own), at(peer), 512).code(0, TCQ | LOCAL, 1);
            poll(queue);
        });
    },
    || {
        with_vcq(|queue, peer, _| {
            post::armw8(queue.hdl, peer, ADD, 1, at(peer)).code(0, TCQ | LOCAL, 1);
            poll(queue);
        });
    },
    || {
        if let Ok(queue) = Queue::create(TNI, 0) {
            let _ = queue.free();
        }
    },
];

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, THREAD_SAFE)?;
    queue.register_as(Memory::new(4096), STAG)?;
    HDL.store(queue.hdl, Ordering::Relaxed);
    end_in(ctx, &CALLS)
}
