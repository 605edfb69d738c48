//! The calls of RCCE and iRCCE that are in progress when another thread of the UE calls RCCE_finalize, or the UE ends.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::kit::*;

/// Memory of the own MPB, private memory, a flag, and two requests. Calls do not allocate: an exit that interrupts malloc waits for its lock (signal-safety(7)).
static PLACES: [AtomicPtr<u8>; 5] = [const { AtomicPtr::new(null_mut()) }; 5];
const LEN: usize = 100_000;

/// The UE that the calls of UE 0 need.
const OTHER: i32 = 1;

fn place<T>(nth: usize) -> *mut T {
    PLACES[nth].load(Ordering::Relaxed).cast()
}

fn mpb() -> *mut u8 {
    place(0)
}

fn private() -> *mut c_char {
    place(1)
}

fn flag() -> *mut i32 {
    place(2)
}

fn requests() -> (Send, Recv) {
    (Send(place(3)), Recv(place(4)))
}

/// Makes what the calls use, at both UEs. UE 1 takes its lock.
pub(crate) fn prepare(ctx: &Ctx) -> Verdict {
    let (send, receive) = (Send::new().0.cast(), Recv::new().0.cast());
    let private = Bytes::filled(LEN, 3).raw();
    let made = [
        c!(RCCE_malloc_gory(64)),
        private,
        new_flag()?.cast(),
        send,
        receive,
    ];
    for (place, made) in PLACES.iter().zip(made) {
        place.store(made, Ordering::Relaxed);
    }
    if ctx.rank as i32 == OTHER {
        ok!(RCCE_acquire_lock(OTHER));
    }
    barrier()
}

/// A wait for a list of one receive.
fn listed(wait: impl FnOnce(*mut iRCCE_WAIT_LIST) -> i32) -> i32 {
    let (mut list, (_, request)) = (MaybeUninit::uninit(), requests());
    c!(iRCCE_init_wait_list(list.as_mut_ptr()));
    c!(iRCCE_irecv(private(), 64, OTHER, request.0));
    c!(iRCCE_add_recv_to_wait_list(list.as_mut_ptr(), request.0));
    wait(list.as_mut_ptr())
}

fn received(source: i32) -> i32 {
    let (_, request) = requests();
    c!(iRCCE_irecv(private(), 64, source, request.0));
    c!(iRCCE_irecv_wait(request.0))
}

type Call = (&'static str, fn() -> i32);

/// Calls of UE 0 that end only after a call of UE 1.
pub(crate) const WAITS: [Call; 22] = [
    ("RCCE_recv", || c!(RCCE_recv(private(), 64, OTHER))),
    ("RCCE_send", || c!(RCCE_send(private(), LEN, OTHER))),
    ("iRCCE_srecv", || c!(iRCCE_srecv(private(), 64, OTHER))),
    ("iRCCE_ssend", || {
        c!(iRCCE_ssend(private(), LEN as isize, OTHER))
    }),
    ("iRCCE_mrecv", || c!(iRCCE_mrecv(private(), 64, OTHER))),
    ("iRCCE_probe", || c!(iRCCE_probe(OTHER, null_mut()))),
    ("iRCCE_isend_wait", || {
        let (request, _) = requests();
        c!(iRCCE_isend(private(), LEN as isize, OTHER, request.0));
        c!(iRCCE_isend_wait(request.0))
    }),
    ("iRCCE_irecv_wait", || received(OTHER)),
    ("iRCCE_irecv_wait of any source", || received(ANY_SOURCE)),
    ("iRCCE_wait_all", || listed(|list| c!(iRCCE_wait_all(list)))),
    ("iRCCE_wait_any", || {
        listed(|list| c!(iRCCE_wait_any(list, null_mut(), null_mut())))
    }),
    ("RCCE_barrier", || c!(RCCE_barrier(null_mut()))),
    ("iRCCE_barrier", || c!(iRCCE_barrier(null_mut()))),
    ("RCCE_bcast", || {
        c!(RCCE_bcast(private(), 64, OTHER, world()))
    }),
    ("iRCCE_bcast", || {
        c!(iRCCE_bcast(private(), 64, OTHER, world()))
    }),
    ("RCCE_reduce", || {
        let into = private().wrapping_add(64);
        c!(RCCE_reduce(private(), into, 4, INT, SUM, 0, world()))
    }),
    ("RCCE_allreduce", || {
        let into = private().wrapping_add(64);
        c!(RCCE_allreduce(private(), into, 4, INT, SUM, world()))
    }),
    ("RCCE_comm_split", || {
        let mut comm = MaybeUninit::uninit();
        c!(RCCE_comm_split(Some(halves), null_mut(), comm.as_mut_ptr()))
    }),
    ("RCCE_wait_until", || c!(RCCE_wait_until(flag(), 1))),
    ("iRCCE_wait_until", || c!(iRCCE_wait_until(flag(), 1))),
    ("iRCCE_wait_tagged", || {
        c!(iRCCE_wait_tagged(flag(), 1, null_mut(), 0))
    }),
    ("RCCE_acquire_lock", || c!(RCCE_acquire_lock(OTHER))),
];

/// Calls of UE 0 that end by themselves.
pub(crate) const CALLS: [Call; 12] = [
    ("RCCE_put to the own MPB", || {
        c!(RCCE_put(mpb(), private().cast(), 64, 0))
    }),
    ("RCCE_put", || {
        c!(RCCE_put(mpb(), private().cast(), 64, OTHER))
    }),
    ("RCCE_get", || {
        c!(RCCE_get(private().cast(), mpb(), 64, OTHER))
    }),
    ("RCCE_flag_write", || {
        c!(RCCE_flag_write(&mut flag(), 0, OTHER))
    }),
    ("RCCE_flag_read", || {
        c!(RCCE_flag_read(flag(), &mut 0, OTHER))
    }),
    ("RCCE_test_flag", || c!(RCCE_test_flag(flag(), 1, &mut 0))),
    ("RCCE_recv_test", || {
        c!(RCCE_recv_test(private(), 64, OTHER, &mut 0))
    }),
    ("iRCCE_iprobe", || {
        c!(iRCCE_iprobe(OTHER, null_mut(), &mut 0))
    }),
    ("iRCCE_isend_push", || c!(iRCCE_isend_push())),
    ("RCCE_send to itself", || {
        let (send, receive) = requests();
        c!(iRCCE_irecv(private(), 64, 0, receive.0));
        c!(iRCCE_isend(private().wrapping_add(64), 64, 0, send.0));
        c!(iRCCE_isend_wait(send.0)).max(c!(iRCCE_irecv_wait(receive.0)))
    }),
    ("RCCE_flag_alloc", || {
        let mut flag = null_mut();
        match c!(RCCE_flag_alloc(&mut flag)) {
            SUCCESS => c!(RCCE_flag_free(&mut flag)),
            code => code,
        }
    }),
    ("RCCE_release_lock", || match c!(RCCE_acquire_lock(0)) {
        SUCCESS => c!(RCCE_release_lock(0)),
        code => code,
    }),
];
