//! Ends of processes in calls of GASPI.

use super::{Way, each_call, end_in};
use crate::laws::gaspi::kit::*;

laws! {
    beside: "exit.beside", "§5.3.4", 1,
        [gaspi_passive_receive, gaspi_passive_send, gaspi_notify_waitsome, gaspi_barrier, gaspi_allreduce, gaspi_group_commit, gaspi_segment_create,
         gaspi_write, gaspi_read, gaspi_wait, gaspi_atomic_fetch_add] + bare,
        "a process ends by exit while another thread of it waits in a call, or calls without a pause";
    handler: "exit.handler", "§5.3.4", 1, [gaspi_passive_receive, gaspi_notify_waitsome, gaspi_barrier, gaspi_write, gaspi_wait] + bare,
        "a process ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "§5.3.4", 1, [gaspi_passive_receive, gaspi_notify_waitsome, gaspi_barrier, gaspi_write, gaspi_wait] + bare,
        "a process ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "gaspi.job.ends";

fn beside(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Beside, CALLS.len() as u64)
}

fn handler(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Handler, CALLS.len() as u64)
}

fn at_once(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::AtOnce, CALLS.len() as u64)
}

const CALLS: [fn(); 10] = [
    || {
        let mut sender = 0;
        c!(gaspi_passive_receive(0, 0, &mut sender, 8, BLOCK));
    },
    || {
        c!(gaspi_passive_send(0, 0, 1, 8, BLOCK));
    },
    || {
        let mut first = 0;
        c!(gaspi_notify_waitsome(0, 7, 1, &mut first, BLOCK));
    },
    || {
        let mut first = 0;
        c!(gaspi_notify_waitsome(0, 0, 1000, &mut first, BLOCK));
    },
    || {
        c!(gaspi_barrier(ALL, BLOCK));
    },
    || {
        let (one, mut all) = (1u64, 0u64);
        post::allreduce(&raw const one, &raw mut all, 1, SUM, 5).code(ALL, BLOCK);
    },
    || {
        let mut group = 0;
        c!(gaspi_group_create(&mut group));
        c!(gaspi_group_add(group, 0));
        c!(gaspi_group_add(group, 1));
        c!(gaspi_group_commit(group, BLOCK));
    },
    || {
        c!(gaspi_segment_create(1, 64, ALL, BLOCK, 0));
    },
    || {
        c!(gaspi_write(0, 0, 1, 0, 64, 64, 0, BLOCK));
        c!(gaspi_read(0, 0, 1, 0, 64, 512, 0, BLOCK));
        c!(gaspi_wait(0, BLOCK));
    },
    || {
        let (mut old, mut first) = (0, 0);
        c!(gaspi_atomic_fetch_add(0, 256, 1, 1, &mut old, BLOCK));
        c!(gaspi_notify_waitsome(0, 0, 8, &mut first, TEST));
    },
];

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    ok!(gaspi_proc_init(LONG));
    segment(0, 4096)?;
    end_in(ctx, &CALLS)
}
