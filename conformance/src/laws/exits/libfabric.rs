//! Ends of processes in calls of libfabric.

use std::sync::OnceLock;

use super::{Way, each_call, end_in};
use crate::laws::libfabric::job::{Job, opened};
use crate::laws::libfabric::kit::*;
use crate::laws::libfabric::station::Plan;

laws! {
    beside: "exit.beside", "fi_domain(3): threading", 1, [cq_sread, cntr_wait, write, tsend, trecv, cq_read, fetch_atomic] + bare,
        "a process ends by exit while another thread of it waits in a call, or calls without a pause";
    handler: "exit.handler", "fi_domain(3): threading", 1, [cq_sread, cntr_wait, write, tsend, trecv, cq_read, fetch_atomic] + bare,
        "a process ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "fi_domain(3): threading", 1, [cq_sread, cntr_wait, write, tsend, trecv, cq_read, fetch_atomic] + bare,
        "a process ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "libfabric.job.ends";

fn beside(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Beside, CALLS.len() as u64)
}

fn handler(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Handler, CALLS.len() as u64)
}

fn at_once(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::AtOnce, CALLS.len() as u64)
}

/// The objects that the calls use. They live until the process ends.
struct Opened(Job<'static>);

// SAFETY:
// - threads may share its objects (FI_THREAD_SAFE).
unsafe impl Send for Opened {}
// SAFETY:
// - as above.
unsafe impl Sync for Opened {}

static OPENED: OnceLock<Opened> = OnceLock::new();

fn with_job(work: impl FnOnce(&Job<'static>)) {
    if let Some(Opened(job)) = OPENED.get() {
        work(job);
    }
}

fn take(job: &Job<'_>) {
    while job.tx.read().0 > 0 {}
    while job.rx.read().0 > 0 {}
}

const CALLS: [fn(); 6] = [
    || {
        with_job(|job| {
            let mut entry = blank();
            call!(obj job.rx.0, sread((&raw mut entry).cast(), 1, std::ptr::null(), -1));
        });
    },
    || {
        with_job(|job| {
            call!(obj job.station.counters[0], wait(u64::MAX / 2, -1));
        });
    },
    || {
        with_job(|job| {
            let (address, at, key) = job.place(1, 256);
            call!(rma job.ep, write(job.memory.base.cast(), 64, null_mut(), address, at, key, null_mut()));
            take(job);
        });
    },
    || {
        with_job(|job| {
            let (address, from) = (job.peer(1).address, job.memory.base.cast());
            call!(tagged job.ep, send(from, 64, null_mut(), address, 7, null_mut()));
            take(job);
        });
    },
    || {
        with_job(|job| {
            let to = job.memory.at(1024).cast();
            call!(tagged job.ep, recv(to, 64, null_mut(), u64::MAX, 7, 0, null_mut()));
            let (address, from) = (job.peer(0).address, job.memory.base.cast());
            call!(tagged job.ep, send(from, 64, null_mut(), address, 7, null_mut()));
            take(job);
        });
    },
    || {
        with_job(|job| {
            let (address, at, key) = job.place(1, 512);
            let (one, mut old) = (1u64, 0u64);
            call!(atomic job.ep, readwrite((&raw const one).cast(), 1, null_mut(), (&raw mut old).cast(), null_mut(), address, at, key, UINT64, SUM, null_mut()));
            // The result lies in this frame: the frame must outlive the operation.
            while job.tx.read().0 == AGAIN {}
        });
    },
];

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    let plan = Plan::DEFAULT.wait(FI_WAIT_UNSPEC).counters(&[FI_WRITE]);
    let ctx: &'static Ctx = Box::leak(Box::new(ctx.clone()));
    OPENED.get_or_init(|| Opened(opened(ctx, &plan, 4096).expect("an endpoint of a law")));
    end_in(ctx, &CALLS)
}
