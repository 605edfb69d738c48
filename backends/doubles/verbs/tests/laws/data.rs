//! The time at which an operation reads its bytes, and the accesses that are atomic.

use unipgas_verbs_sys::*;

use crate::api::count;
use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn inline_data_are_copied_and_others_are_not() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        for (flags, seen) in [(IBV_SEND_INLINE, 1), (0, 2)] {
            one.put(0, &[1]);
            let before = count(c"rnr");
            let request = wr(1, IBV_WR_SEND, 0, 8).flags(IBV_SEND_SIGNALED | flags);
            one.start(&request);
            // The peer has no buffer: the data are read again when the message is resent.
            while count(c"rnr") == before {
                std::thread::yield_now();
            }
            one.put(0, &[2]);
            let before = count(c"rnr");
            while count(c"rnr") < before + 2 {
                std::thread::yield_now();
            }
            assert_eq!(other.recv(1, 80, 8), 0);
            assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
            assert_eq!(other.ends(), (1, IBV_WC_SUCCESS));
            assert_eq!(other.word(10), seen);
        }
    });
}

#[test]
fn atomics_of_glob_are_atomic_towards_the_cpu() {
    alone("atomics=glob", || {
        let (one, other) = Side::plain_pair();
        let mut add = wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&other.address(), 8);
        add.operand = 1;
        for _ in 0..1000 {
            one.start(&add);
            let mut own = 0;
            while one.poll().is_none() {
                other.memory[1].fetch_add(1 << 32, std::sync::atomic::Ordering::SeqCst);
                own += 1;
            }
            other.memory[1].fetch_sub(own << 32, std::sync::atomic::Ordering::SeqCst);
        }
        assert_eq!(other.word(1), 1000);
    });
}

#[test]
fn atomics_of_hca_are_not_atomic_towards_the_cpu() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let mut add = wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&other.address(), 8);
        add.operand = 1;
        let (mut added, mut own) = (0, 0);
        // Eventually an update is lost.
        while other.word(1) == added + own {
            one.start(&add);
            added += 1;
            while one.poll().is_none() {
                other.memory[1].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                own += 1;
            }
        }
        // Operations of the device are atomic with respect to each other.
        other.put(1, &[0]);
        for _ in 0..100 {
            one.run(&add);
        }
        assert_eq!(other.word(1), 100);
    });
}
