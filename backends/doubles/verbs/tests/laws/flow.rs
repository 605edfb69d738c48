//! Missing buffers, slots, and full queues.

use unipgas_verbs_sys::*;

use crate::api::{api, count, zeroed};
use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn a_message_waits_for_a_buffer_if_it_may() {
    alone("", || {
        for (opcode, shared) in [
            (IBV_WR_SEND, false),
            (IBV_WR_SEND, true),
            (IBV_WR_RDMA_WRITE_WITH_IMM, true),
        ] {
            let options = PairOptions::with(|options| options.shared = shared);
            let (one, other) = Side::pair(PairOptions::DEFAULT, options);
            let before = count(c"rnr");
            for id in [1, 2, 3] {
                one.start(&wr(id, opcode, 0, 8).to(&other.address(), 0));
            }
            // The largest limited number of retries is 6; this exceeds it.
            while count(c"rnr") < before + 10 {
                std::thread::yield_now();
            }
            assert!(one.poll().is_none());
            for id in [1, 2, 3] {
                assert_eq!(other.recv(id, 8, 8), 0);
            }
            for id in [1, 2, 3] {
                assert_eq!(one.ends(), (id, IBV_WC_SUCCESS));
                assert_eq!(other.ends(), (id, IBV_WC_SUCCESS));
            }
        }
    });
}

#[test]
fn a_message_gives_up_waiting_for_a_buffer() {
    alone("", || {
        for rnr_retry in [0, 3] {
            let options = PairOptions::with(|options| options.rnr_retry = rnr_retry);
            let (one, other) = Side::pair(options, PairOptions::DEFAULT);
            let before = count(c"rnr");
            one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0));
            one.start(&wr(2, IBV_WR_SEND, 0, 8));
            one.start(&wr(3, IBV_WR_SEND, 0, 8));
            assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
            assert_eq!(one.ends(), (2, IBV_WC_RNR_RETRY_EXC_ERR));
            assert_eq!(one.ends(), (3, IBV_WC_WR_FLUSH_ERR));
            assert_eq!(count(c"rnr") - before, u64::from(rnr_retry) + 1);
            // The other side does not notice.
            assert_eq!(other.state(), IBV_QPS_RTS);
        }
    });
}

#[test]
fn slots_are_free_when_a_later_completion_is_polled() {
    alone("", || {
        let options = PairOptions::with(|options| options.send_wr = 4);
        let (one, other) = Side::pair(options, PairOptions::DEFAULT);
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 8);
        for word in 1..=3 {
            one.put(0, &[word]);
            one.start(&request.clone().flags(0));
            other.wait_for(1, word);
        }
        one.start(&Wr {
            id: 4,
            ..request.clone()
        });
        // All requests are executed, but no completion is polled.
        assert_eq!(one.post(&request), libc::ENOMEM);
        while count(c"polls") == 0 {
            assert_eq!(one.ends(), (4, IBV_WC_SUCCESS));
        }
        for _ in 0..4 {
            one.start(&request.clone().flags(0));
        }
        // No completion will free these slots.
        assert_eq!(one.post(&request), libc::ENOMEM);
        assert!(one.poll().is_none());
        assert_eq!(one.post(&request), libc::ENOMEM);
    });
}

#[test]
fn receive_queues_are_full_until_completions_are_polled() {
    alone("", || {
        for shared in [false, true] {
            let options = PairOptions::with(|options| {
                options.recv_wr = 2;
                options.shared = shared;
            });
            let (one, other) = Side::pair(PairOptions::DEFAULT, options);
            assert_eq!(
                [1, 2, 3].map(|id| other.recv(id, 0, 8)),
                [0, 0, libc::ENOMEM]
            );
            one.run(&wr(1, IBV_WR_SEND, 0, 8));
            assert_eq!(other.recv(3, 0, 8), libc::ENOMEM);
            assert_eq!(other.ends(), (1, IBV_WC_SUCCESS));
            assert_eq!([3, 4].map(|id| other.recv(id, 0, 8)), [0, libc::ENOMEM]);
        }
    });
}

#[test]
fn a_completion_queue_that_is_full_breaks_its_queue_pairs() {
    alone("", || {
        let options = PairOptions::with(|options| options.cqe = 4);
        let (one, other) = Side::pair(options, PairOptions::DEFAULT);
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 8);
        for _ in 0..4 {
            one.start(&request);
        }
        let mut event: ibv_async_event = zeroed();
        one.start(&request);
        // SAFETY:
        // - the context is open; the event is acknowledged once.
        unsafe {
            assert_eq!((api().ibv_get_async_event)(one.context, &raw mut event), 0);
            (api().ibv_ack_async_event)(&raw mut event);
        }
        assert_eq!(event.event_type, IBV_EVENT_CQ_ERR);
        assert_eq!(event.element, one.cq.cast());
        while one.state() != IBV_QPS_ERR {
            std::thread::yield_now();
        }
        for _ in 0..4 {
            assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
        }
    });
}
