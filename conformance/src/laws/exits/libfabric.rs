//! Ends of processes in calls of libfabric.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Way, each_call, end_in};
use crate::laws::libfabric::collective::Club;
use crate::laws::libfabric::collective_data::{KINDS, deed};
use crate::laws::libfabric::job::{Job, opened};
use crate::laws::libfabric::kit::*;
use crate::laws::libfabric::pages::{ACCESSES, INJECTED, SOURCE};
use crate::laws::libfabric::station::{Plan, close};
use crate::laws::libfabric::words::Words;
use crate::laws::libfabric::{event, poll, wait_set};

laws! {
    beside: "exit.beside", "fi_domain(3): threading", 1,
        [cq_sread, cntr_wait, eq_sread, wait, poll, write, inject_write, writedata, read, atomic, fetch_atomic, compare_atomic, inject, senddata, tinject,
         tsend, trecv, cq_read, mr_reg, barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather] + bare,
        "a process ends by exit while another thread of it waits in a call, or calls without a pause";
    handler: "exit.handler", "fi_domain(3): threading", 1, [cq_sread, cntr_wait, write, tsend, trecv, cq_read, fetch_atomic, barrier, allreduce] + bare,
        "a process ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "fi_domain(3): threading", 1, [cq_sread, cntr_wait, write, tsend, trecv, cq_read, fetch_atomic, barrier, allreduce] + bare,
        "a process ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "libfabric.job.ends";

fn beside(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Beside, CALLS.len() as u64)
}

fn handler(ctx: &Ctx) -> Verdict {
    // Without the last calls, which allocate: an exit that interrupts malloc waits for its lock (signal-safety(7)).
    each_call(ctx, JOB, Way::Handler, CALLS.len() as u64 - 2)
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

/// The other objects that the calls use: an event queue, a wait set, a poll set; an endpoint, its group alone, the group of both ranks, and
/// the endpoint's address.
static OBJECTS: [AtomicUsize; 7] = [const { AtomicUsize::new(0) }; 7];

fn object<T>(nth: usize) -> *mut T {
    OBJECTS[nth].load(Ordering::Relaxed) as *mut T
}

/// Begins a collective operation of each kind, again until `begun` is true for its code.
fn begin_each(alone: bool, begun: impl Fn(isize) -> bool) {
    static mut RESULT: [u64; 2] = [0; 2];
    let own = object::<c_void>(6).addr() as u64;
    let group = object(if alone { 4 } else { 5 });
    for kind in KINDS {
        let buffers = ([1u64; 2].as_ptr(), (&raw mut RESULT).cast());
        let deed = deed(kind, group, (UINT64, SUM), 1).with(own, buffers, 0);
        while !begun(deed.post(object(3))) {}
    }
}

const CALLS: [fn(); 13] = [
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
    || {
        let (events, mut kind, mut room) = (object::<fid_eq>(0), 0, [0u64; 16]);
        call!(obj events, sread(&mut kind, room.as_mut_ptr().cast(), 64, -1, 0));
    },
    || {
        let set = object::<fid_wait>(1);
        call!(obj set, wait(-1));
    },
    || {
        let (set, mut found) = (object::<fid_poll>(2), [null_mut::<c_void>(); 4]);
        call!(obj set, poll(found.as_mut_ptr(), 4));
    },
    || {
        with_job(|job| {
            let place = job.place(1, 256);
            let mut result = 0u64;
            for (nth, (_, post, ..)) in ACCESSES.iter().enumerate() {
                let words = Words::new(job.ep, place).from(SOURCE.as_ptr());
                let words = words.into(&raw mut result).told(1);
                while post(&words) == AGAIN {
                    take(job);
                }
                // The result lies in this frame: the frame must outlive the operation.
                while nth != INJECTED && job.tx.read().0 == AGAIN {}
            }
        });
    },
    || {
        with_job(|job| {
            let (address, from) = (job.peer(1).address, job.memory.base.cast());
            call!(msg job.ep, inject(from, 64, address));
            call!(msg job.ep, senddata(from, 64, null_mut(), 6, address, null_mut()));
            call!(tagged job.ep, inject(from, 64, address, 7));
            take(job);
        });
    },
    // Last: these allocate.
    || {
        with_job(|job| {
            for alone in [true, false] {
                begin_each(alone, |code| {
                    take(job);
                    code != AGAIN || !alone
                });
            }
        });
    },
    || {
        with_job(|job| {
            let registered = job.station.register(job.memory, 91);
            let _ = registered.and_then(|registered| close(registered.mr));
        });
    },
];

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    let caps = Plan::DEFAULT.caps | FI_COLLECTIVE;
    let plan = Plan::DEFAULT.caps(caps).wait(FI_WAIT_UNSPEC);
    let plan = plan.counters(&[FI_WRITE]);
    let ctx: &'static Ctx = Box::leak(Box::new(ctx.clone()));
    let job = opened(ctx, &plan, 8192)?;
    let objects = [
        event::open(&job, FI_WAIT_UNSPEC)?.addr(),
        wait_set::open(&job)?.addr(),
        poll::open(&job)?.addr(),
    ];
    for (place, object) in OBJECTS.iter().zip(objects) {
        place.store(object, Ordering::Relaxed);
    }
    let Opened(job) = OPENED.get_or_init(|| Opened(job));
    let club = Club::open(job, &plan)?;
    let alone = club.group(&[ctx.rank])?;
    let all = club.all()?.addr();
    let own = club.addresses[ctx.rank as usize] as usize;
    let groups = [club.ep.addr(), alone.addr(), all, own];
    for (place, object) in OBJECTS[3..].iter().zip(groups) {
        place.store(object, Ordering::Relaxed);
    }
    if ctx.rank == 0 {
        // Each call ends beside them: the other rank never begins them.
        begin_each(false, |code| code == 0);
    }
    end_in(ctx, CALLS.len(), |nth| CALLS[nth]())
}
