//! Peers that have ended, or never existed.

use unipgas_verbs_sys::*;

use crate::api::api;
use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn a_queue_pair_that_is_not_there_does_not_answer() {
    alone("", || {
        let never = |change: fn(&mut SideAddress)| {
            let one = Side::new(PairOptions::DEFAULT);
            let mut peer = one.beside(PairOptions::DEFAULT).address();
            change(&mut peer);
            one.connect(&peer);
            one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0));
            one.start(&wr(2, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0));
            assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
            assert_eq!(one.ends(), (2, IBV_WC_WR_FLUSH_ERR));
        };
        // The peer's queue pair is not ready.
        never(|_| {});
        // The queue pair does not exist, nor does the NIC.
        never(|peer| peer.qp ^= 0x800);
        never(|peer| peer.qp = 0x000_005);
        // The queue pair exists, but at another address.
        let (one, other) = Side::apart();
        let mut wrong = other.address();
        wrong.lid += 1;
        one.connect(&wrong);
        other.connect(&one.address());
        one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&wrong, 0));
        assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
    });
}

#[test]
fn a_queue_pair_that_was_destroyed_does_not_answer() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
        one.run(&request);
        let context = other.context;
        other.destroy();
        one.start(&request);
        assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
        // A closed device does not answer either.
        let (one, other) = Side::plain_pair();
        // SAFETY:
        // - the program does not use its objects again.
        unsafe {
            assert_eq!((api().ibv_close_device)(other.context), 0);
            assert_eq!((api().ibv_close_device)(context), 0);
        }
        one.start(&request);
        assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
    });
}

#[test]
fn without_a_timeout_it_tries_for_ever() {
    alone("retry_ms=1", || {
        let options = PairOptions::with(|options| options.timeout = 0);
        let one = Side::new(options);
        let peer = one.beside(options).address();
        one.connect(&peer);
        let before = crate::api::count(c"retries");
        one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0));
        while crate::api::count(c"retries") < before + 5 {
            std::thread::yield_now();
        }
        assert!(one.poll().is_none());
    });
}
