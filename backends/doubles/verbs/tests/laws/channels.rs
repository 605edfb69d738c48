//! Completion channels.

use std::ffi::c_void;
use std::ptr::null_mut;

use unipgas_verbs_sys::*;

use crate::api::{api, errno};
use crate::process::alone;
use crate::requests::*;
use crate::side::*;

fn set_nonblocking(fd: i32) {
    // SAFETY:
    // - the descriptor is open.
    let error = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(error, 0);
}

fn is_readable(fd: i32) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY:
    // - the list has one element.
    unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
}

/// Takes and acknowledges the next event, and returns its queue.
fn take(side: &Side) -> Result<*mut ibv_cq, i32> {
    let mut cq = null_mut();
    let mut context: *mut c_void = null_mut();
    // SAFETY:
    // - the channel is not destroyed; each event is acknowledged once.
    unsafe {
        match (api().ibv_get_cq_event)(side.channel, &raw mut cq, &raw mut context) {
            0 => {
                (api().ibv_ack_cq_events)(cq, 1);
                Ok(cq)
            }
            _ => Err(errno()),
        }
    }
}

#[test]
fn there_is_one_event_each_time_it_is_armed() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        // SAFETY:
        // - the channel is not destroyed.
        let fd = unsafe { (*one.channel).fd };
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
        let write = || one.start(&request);
        write();
        one.wait();
        assert!(!is_readable(fd));
        one.arm(false);
        assert!(!is_readable(fd));
        write();
        write();
        // The call blocks until an event arrives.
        assert_eq!(take(&one), Ok(one.cq));
        one.wait();
        one.wait();
        assert!(!is_readable(fd));
        set_nonblocking(fd);
        assert_eq!(take(&one), Err(libc::EAGAIN));
        one.arm(false);
        write();
        while !is_readable(fd) {
            std::thread::yield_now();
        }
        assert_eq!(take(&one), Ok(one.cq));
        assert_eq!(take(&one), Err(libc::EAGAIN));
    });
}

#[test]
fn those_who_wait_for_solicited_ones_get_those_and_errors() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        // SAFETY:
        // - the channel is not destroyed.
        let fd = unsafe { (*other.channel).fd };
        set_nonblocking(fd);
        other.arm(true);
        for (flags, wakes) in [(0, false), (IBV_SEND_SOLICITED, true), (0, false)] {
            assert_eq!(other.recv(1, 0, 8), 0);
            let request = wr(1, IBV_WR_SEND, 0, 8).flags(IBV_SEND_SIGNALED | flags);
            one.run(&request);
            other.wait();
            assert_eq!(is_readable(fd), wakes);
            assert_eq!(take(&other).is_ok(), wakes);
        }
        other.arm(true);
        assert_eq!(other.recv(1, 0, 4), 0);
        one.start(&wr(1, IBV_WR_SEND, 0, 8));
        assert_eq!(other.ends(), (1, IBV_WC_LOC_LEN_ERR));
        assert_eq!(take(&other), Ok(other.cq));
        // Untaken events end with their queue.
        other.destroy();
    });
}
