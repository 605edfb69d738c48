//! Ends of processes in calls of RCCE and iRCCE.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Way, each_call, end_in};
use crate::laws::rcce::kit::*;

laws! {
    beside: "exit.beside", "RCCE.h", 1, [RCCE_recv, RCCE_send, RCCE_barrier, RCCE_bcast, RCCE_put, RCCE_get, iRCCE_irecv, iRCCE_irecv_wait] + bare,
        "a UE ends by exit while another thread of it waits in a call, or calls without a pause";
    handler: "exit.handler", "RCCE.h", 1, [RCCE_recv, RCCE_send, RCCE_barrier, RCCE_put, iRCCE_irecv_wait] + bare,
        "a UE ends by exit in a handler of a signal that has interrupted a call";
    at_once: "exit.at-once", "RCCE.h", 1, [RCCE_recv, RCCE_send, RCCE_barrier, RCCE_put, iRCCE_irecv_wait] + bare,
        "a UE ends by _exit in a handler of a signal that has interrupted a call";
}

const JOB: &str = "rcce.job.ends";

fn beside(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Beside, CALLS.len() as u64)
}

fn handler(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::Handler, CALLS.len() as u64)
}

fn at_once(ctx: &Ctx) -> Verdict {
    each_call(ctx, JOB, Way::AtOnce, CALLS.len() as u64)
}

/// Memory of the own MPB, and private memory. Calls do not allocate: an exit that interrupts malloc waits for its lock (signal-safety(7)).
static MEMORY: [AtomicPtr<u8>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
const LEN: usize = 100_000;

fn own_mpb() -> *mut u8 {
    MEMORY[0].load(Ordering::Relaxed)
}

fn private() -> *mut u8 {
    MEMORY[1].load(Ordering::Relaxed)
}

const CALLS: [fn(); 7] = [
    || {
        c!(RCCE_recv(private().cast(), 64, 1));
    },
    || {
        c!(RCCE_send(private().cast(), LEN, 1));
    },
    || {
        let _ = barrier();
    },
    || {
        c!(RCCE_bcast(private().cast(), 64, 1, world()));
    },
    || {
        let request = Recv::new();
        c!(iRCCE_irecv(private().cast(), 64, 1, request.0));
        c!(iRCCE_irecv_wait(request.0));
    },
    || {
        c!(RCCE_put(own_mpb(), private(), 64, 0));
        c!(RCCE_get(private(), own_mpb(), 64, 0));
    },
    || {
        c!(RCCE_put(own_mpb(), private(), 64, 1));
        c!(RCCE_get(private(), own_mpb(), 64, 1));
    },
];

pub(super) fn ends(ctx: &Ctx) -> Verdict {
    ok!(RCCE_init(null_mut(), null_mut()));
    ok!(iRCCE_init());
    MEMORY[0].store(c!(RCCE_malloc_gory(64)), Ordering::Relaxed);
    let private = Box::leak(vec![3u8; LEN].into_boxed_slice());
    MEMORY[1].store(private.as_mut_ptr(), Ordering::Relaxed);
    barrier()?;
    end_in(ctx, &CALLS)
}
