//! Threads in VCQs that share a CQ.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::{alone, dies};

/// Both polled by two threads, `rounds` times or until the program ends.
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

/// No completion is lost or told twice, whoever polls.
#[test]
fn threads_share_a_vcq_that_is_safe() {
    const PUTS: usize = 500;
    alone("yield=1,toq=8,late=1", || {
        let handle = TestVcq::new(0, UTOFU_VCQ_FLAG_THREAD_SAFE).handle;
        let (mut id, mut stadd) = (0, 0);
        let place = memory().cast();
        ok!(utofu_query_vcq_id(handle, &mut id));
        ok!(utofu_reg_mem(handle, place, SIZE, 0, &mut stadd));
        let told = [const { AtomicUsize::new(0) }; 2 * PUTS];
        let noticed = AtomicUsize::new(0);
        let work = |thread: usize| {
            let poll = || {
                let mut number = cbdata(0);
                match call!(utofu_poll_tcq(handle, 0, &mut number)) {
                    UTOFU_ERR_NOT_FOUND => {}
                    code => {
                        assert_eq!(code, UTOFU_SUCCESS);
                        told[number.addr()].fetch_add(1, SeqCst);
                    }
                }
                let mut notice = utofu_mrq_notice::default();
                match call!(utofu_poll_mrq(handle, 0, &mut notice)) {
                    UTOFU_ERR_NOT_FOUND => {}
                    code => {
                        assert_eq!(code, UTOFU_SUCCESS);
                        noticed.fetch_add(1, SeqCst);
                    }
                }
            };
            for number in (0..PUTS).map(|put| 2 * put + thread) {
                let (from, to, flags) = (stadd, stadd + 8 + 8 * number as u64, TCQ | LOCAL);
                let post = || call!(utofu_put(handle, id, from, to, 8, 0, flags, cbdata(number)));
                loop {
                    match post() {
                        UTOFU_ERR_BUSY => poll(),
                        code => break assert_eq!(code, UTOFU_SUCCESS),
                    }
                }
            }
            while noticed.load(SeqCst) < told.len()
                || told.iter().any(|told| told.load(SeqCst) == 0)
            {
                poll();
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let work = &work;
                scope.spawn(move || work(thread));
            }
        });
        assert!(told.iter().all(|told| told.load(SeqCst) == 1));
        assert_eq!(noticed.load(SeqCst), told.len());
        ok!(utofu_dereg_mem(handle, stadd, 0));
        let counts = counts();
        assert_eq!(counts["most"]["toq"], 8);
        assert!(counts["toq_full"].as_u64() > Some(0));
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
