//! Faults on demand.

use std::ptr::null_mut;

use unipgas_verbs_sys::*;

use crate::api::{api, errno, inject, zeroed};
use crate::process::{alone, alone_with, two};
use crate::requests::*;
use crate::side::*;

fn port_state(side: &Side) -> u32 {
    let mut port: ibv_port_attr = zeroed();
    // SAFETY:
    // - the context is open.
    let error = unsafe { (api().ibv_query_port)(side.context, 1, &raw mut port) };
    assert_eq!(error, 0);
    port.state
}

#[test]
fn a_port_goes_down_and_up() {
    alone("retry_ms=100000", || {
        let patient = PairOptions::with(|options| options.timeout = 20);
        let (one, other) = Side::pair(patient, patient);
        let (hasty, _peer) = Side::plain_pair();
        inject(c"port_down");
        let event = one.event();
        assert_eq!(
            (event.event_type, event.element.addr()),
            (IBV_EVENT_PORT_ERR, 1)
        );
        assert_eq!(port_state(&one), IBV_PORT_DOWN);
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
        one.start(&request);
        hasty.start(&request);
        assert_eq!(hasty.ends(), (1, IBV_WC_RETRY_EXC_ERR));
        assert!(one.poll().is_none());
        inject(c"port_up");
        assert_eq!(one.event().event_type, IBV_EVENT_PORT_ACTIVE);
        assert_eq!(port_state(&one), IBV_PORT_ACTIVE);
        assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
    });
}

#[test]
fn a_fatal_error_of_a_device_ends_all() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        assert_eq!(other.recv(1, 0, 8), 0);
        assert_eq!(other.recv(2, 0, 8), 0);
        inject(c"device_fatal");
        assert_eq!(other.event().event_type, IBV_EVENT_DEVICE_FATAL);
        assert_eq!(other.ends(), (1, IBV_WC_WR_FLUSH_ERR));
        assert_eq!(other.ends(), (2, IBV_WC_WR_FLUSH_ERR));
        assert_eq!(other.state(), IBV_QPS_ERR);
        assert_eq!(one.post(&wr(1, IBV_WR_SEND, 0, 8)), libc::EIO);
        assert_eq!(one.recv(1, 0, 8), libc::EIO);
        assert!(one.make_qp().is_null());
        one.destroy();
        other.destroy();
    });
}

#[test]
fn a_fatal_error_comes_after_a_number_of_requests() {
    let environment = [("FAKE_VERBS_FAULT", "after_wrs=3:device_fatal")];
    alone_with("", &environment, || {
        let (one, other) = Side::plain_pair();
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
        for _ in 0..2 {
            one.run(&request);
        }
        one.start(&request);
        assert_eq!(one.post(&request), libc::EIO);
        assert_eq!(one.event().event_type, IBV_EVENT_DEVICE_FATAL);
    });
}

#[test]
fn addresses_change() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let gid = || {
            let mut gid = ibv_gid([0; 16]);
            // SAFETY:
            // - the context is open.
            let error = unsafe { (api().ibv_query_gid)(one.context, 1, 0, &raw mut gid) };
            assert_eq!(error, 0);
            gid
        };
        let before = (one.lid(), gid());
        inject(c"gid_change");
        assert_eq!(one.event().event_type, IBV_EVENT_GID_CHANGE);
        assert_ne!(gid(), before.1);
        inject(c"lid_change");
        assert_eq!(one.event().event_type, IBV_EVENT_LID_CHANGE);
        assert_ne!(one.lid(), before.0);
        // The old one leads nowhere.
        one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0));
        assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
    });
}

#[test]
fn single_objects_fail() {
    alone("", || {
        let options = PairOptions::with(|options| options.shared = true);
        let side = Side::new(options);
        side.connect(&side.address());
        inject(c"qp_fatal");
        assert_eq!(side.state(), IBV_QPS_ERR);
        assert_eq!(side.event().event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
        let event = side.event();
        assert_eq!(event.event_type, IBV_EVENT_QP_FATAL);
        assert_eq!(event.element, side.qp.cast());
        inject(c"create_qp_fails=1");
        assert!(side.make_qp().is_null());
        assert_eq!(errno(), libc::ENOMEM);
        assert!(!side.make_qp().is_null());
        inject(c"reg_fails=2");
        let memory = side.memory.as_ptr().cast_mut().cast();
        // SAFETY:
        // - the domain is not freed.
        let register = || unsafe { (api().ibv_reg_mr)(side.pd, memory, 8, 0) };
        assert!(register().is_null() && register().is_null());
        assert_eq!(errno(), libc::ENOMEM);
        assert!(!register().is_null());
        // SAFETY:
        // - it is a C string.
        let unknown = unsafe { (api().fake_verbs_inject)(c"rain".as_ptr()) };
        assert_eq!(unknown, libc::EINVAL);
    });
}

#[test]
fn one_who_is_silent_is_lost_to_its_peers() {
    two(
        "",
        |mut stream, _| {
            let one = Side::new(PairOptions::default());
            let peer = one.exchange(&mut stream);
            one.connect(&peer);
            let [_] = stream.hear();
            let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0);
            one.run(&request);
            stream.say([2]);
            let [_] = stream.hear();
            one.start(&request);
            assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
            stream.say([3]);
        },
        |mut stream| {
            let other = Side::new(PairOptions::default());
            let peer = other.exchange(&mut stream);
            other.connect(&peer);
            stream.say([1]);
            let [_] = stream.hear();
            inject(c"silence");
            assert_eq!(port_state(&other), IBV_PORT_ACTIVE);
            stream.say([2]);
            other.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0));
            assert_eq!(other.ends(), (1, IBV_WC_RETRY_EXC_ERR));
            let [_] = stream.hear();
        },
    );
}

#[test]
fn events_can_be_asked_for_without_blocking() {
    alone("", || {
        let side = Side::new(PairOptions::default());
        let mut event: ibv_async_event = zeroed();
        // SAFETY:
        // - the context is open.
        unsafe {
            let fd = (*side.context).async_fd;
            assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
            assert_eq!(
                (api().ibv_get_async_event)(side.context, &raw mut event),
                -1
            );
            assert_eq!(errno(), libc::EAGAIN);
            let mut cq = null_mut();
            let mut context = null_mut();
            let fd = (*side.channel).fd;
            assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
            let got = (api().ibv_get_cq_event)(side.channel, &raw mut cq, &raw mut context);
            assert_eq!((got, errno()), (-1, libc::EAGAIN));
        }
    });
}
