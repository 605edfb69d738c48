//! Transitions of queue pairs.

use unipgas_verbs_sys::*;

use crate::api::{api, zeroed};
use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn transitions_need_their_attributes_and_their_order() {
    alone("", || {
        let side = Side::new(PairOptions::DEFAULT);
        let peer = side.address();
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        let all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        for missing in [IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS] {
            assert_eq!(side.modify(&attr, all & !missing), libc::EINVAL);
        }
        assert_eq!(side.modify(&attr, all | IBV_QP_TIMEOUT), libc::EINVAL);
        attr.port_num = 2;
        assert_eq!(side.modify(&attr, all), libc::EINVAL);
        assert_eq!(side.ready_to_receive(&peer), libc::EINVAL);
        assert_eq!(side.ready_to_send(), libc::EINVAL);
        assert_eq!(side.recv(1, 0, 8), libc::EINVAL);
        assert_eq!(side.init(), 0);
        assert_eq!(side.recv(1, 0, 8), 0);
        assert_eq!(side.ready_to_send(), libc::EINVAL);
        assert_eq!(side.post(&wr(1, IBV_WR_SEND, 0, 8)), libc::EINVAL);
        assert_eq!(side.ready_to_receive(&peer), 0);
        assert_eq!(side.post(&wr(1, IBV_WR_SEND, 0, 8)), libc::EINVAL);
        assert_eq!(side.init(), libc::EINVAL);
        let too_much = Side {
            options: PairOptions {
                rd_atomic: 17,
                ..side.options
            },
            ..side
        };
        assert_eq!(too_much.ready_to_send(), libc::EINVAL);
        assert_eq!(side.ready_to_send(), 0);
        assert_eq!(side.state(), IBV_QPS_RTS);
        side.start(&wr(1, IBV_WR_SEND, 0, 8));
        assert_eq!(side.ends().1, IBV_WC_SUCCESS);
        assert_eq!(side.ends().1, IBV_WC_SUCCESS);
    });
}

#[test]
fn an_error_flushes_all_in_order() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        for id in 1..=3 {
            assert_eq!(other.recv(id, 0, 8), 0);
        }
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!(other.modify(&attr, IBV_QP_STATE), 0);
        for id in 1..=3 {
            assert_eq!(other.ends(), (id, IBV_WC_WR_FLUSH_ERR));
        }
        assert_eq!(other.recv(4, 0, 8), 0);
        assert_eq!(other.ends(), (4, IBV_WC_WR_FLUSH_ERR));
        other.start(&wr(5, IBV_WR_SEND, 0, 8));
        assert_eq!(other.ends(), (5, IBV_WC_WR_FLUSH_ERR));
        // After RESET both sides can connect again.
        for side in [&one, &other] {
            attr.qp_state = IBV_QPS_RESET;
            assert_eq!(side.modify(&attr, IBV_QP_STATE), 0);
        }
        one.connect(&other.address());
        other.connect(&one.address());
        one.run(&wr(6, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0));
    });
}

#[test]
fn what_is_in_use_is_not_destroyed() {
    alone("", || {
        let side = Side::new(PairOptions::with(|options| options.shared = true));
        // SAFETY:
        // - none of the objects is destroyed, since each is in use.
        unsafe {
            assert_eq!((api().ibv_destroy_cq)(side.cq), libc::EBUSY);
            assert_eq!((api().ibv_destroy_srq)(side.srq), libc::EBUSY);
            assert_eq!((api().ibv_dealloc_pd)(side.pd), libc::EBUSY);
            assert_eq!((api().ibv_destroy_comp_channel)(side.channel), libc::EBUSY);
        }
        side.destroy();
    });
}

#[test]
fn a_peer_may_be_ready_later() {
    alone("retry_ms=100000", || {
        let options = PairOptions::with(|options| options.timeout = 20);
        let (one, other) = (Side::new(options), Side::new(options));
        one.connect(&other.address());
        one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0));
        let before = crate::api::count(c"retries");
        while crate::api::count(c"retries") < before + 2 {
            std::thread::yield_now();
        }
        other.connect(&one.address());
        assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
    });
}

#[test]
fn numbers_of_messages_must_fit() {
    alone("retry_ms=20", || {
        let (one, other) = Side::apart();
        one.connect(&other.address());
        let mut wrong = one.address();
        wrong.psn += 1;
        other.connect(&wrong);
        one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0));
        assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
    });
}

#[test]
fn a_first_packet_establishes_a_connection() {
    alone("", || {
        let (one, other) = Side::apart();
        one.connect(&other.address());
        assert_eq!(other.init(), 0);
        assert_eq!(other.ready_to_receive(&one.address()), 0);
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
        for _ in 0..2 {
            one.run(&request);
        }
        let mut event: ibv_async_event = zeroed();
        // SAFETY:
        // - the context is open.
        let error = unsafe { (api().ibv_get_async_event)(other.context, &raw mut event) };
        assert_eq!(error, 0);
        assert_eq!(event.event_type, IBV_EVENT_COMM_EST);
        assert_eq!(event.element, other.qp.cast());
        // The queue pair is not destroyed before its event is acknowledged.
        let element = event.element.expose_provenance();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut event = ibv_async_event {
                    element: std::ptr::with_exposed_provenance_mut(element),
                    event_type: IBV_EVENT_COMM_EST,
                };
                // SAFETY:
                // - the event is acknowledged once.
                unsafe { (api().ibv_ack_async_event)(&raw mut event) };
            });
            other.destroy();
        });
    });
}
