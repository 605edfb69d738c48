//! Threads in VCQs that share a CQ.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::{alone, dies};

/// Two threads poll one VCQ each, `rounds` times or until the program ends.
fn poll_both(one: utofu_vcq_hdl_t, other: utofu_vcq_hdl_t, rounds: u64) {
    std::thread::scope(|scope| {
        for handle in [one, other] {
            scope.spawn(move || {
                for _ in 0..rounds {
                    let mut told = cbdata(0);
                    call!(utofu_poll_tcq(handle, 0, &mut told));
                }
            });
        }
    });
}

#[test]
fn two_threads_in_one_vcq() {
    dies("yield=1", "two threads use VCQs that share CQ", || {
        let a = create(0, 0).unwrap();
        poll_both(a, a, u64::MAX);
    });
}

#[test]
fn two_threads_in_two_vcqs_of_a_cq() {
    dies(
        "yield=1",
        "utofu_poll_tcq: two threads use VCQs that share CQ",
        || {
            poll_both(create(0, 0).unwrap(), create(0, 0).unwrap(), u64::MAX);
        },
    );
}

#[test]
fn threads_keep_apart_or_ask_for_safety() {
    alone("yield=1", || {
        let safe = create(0, UTOFU_VCQ_FLAG_THREAD_SAFE).unwrap();
        poll_both(safe, safe, 1000);
        poll_both(safe, create(0, 0).unwrap(), 1000);
        poll_both(create(1, 0).unwrap(), create(2, 0).unwrap(), 1000);
    });
}

#[test]
fn two_threads_in_one_gate() {
    dies("yield=1", "two threads use VBG 0x", || {
        let mut ids = [0; 2];
        ok!(utofu_alloc_vbg(0, 2, 0, ids.as_mut_ptr()));
        let gate = ids[0];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    loop {
                        call!(utofu_poll_barrier(gate, 0));
                    }
                });
            }
        });
    });
}
