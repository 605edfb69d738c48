//! Children of a process that uses a device.

use unipgas_verbs_sys::*;

use crate::api::{api, errno};
use crate::process::{alone, two};
use crate::requests::*;
use crate::side::*;

/// Gives the status with which the child ends.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY:
    // - the child calls the library only, and ends.
    unsafe {
        match libc::fork() {
            0 => libc::exit(body()),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    }
}

#[test]
fn a_child_ends_well_and_its_parent_goes_on() {
    alone(
        "forks::a_child_ends_well_and_its_parent_goes_on",
        "",
        || {
            let (one, other) = Side::pair(Options::default(), Options::default());
            let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
            for destroys in [false, true] {
                assert_eq!(one.post(&request), 0);
                let status = in_child(|| {
                    if destroys {
                        // SAFETY:
                        // - in a child these do nothing.
                        unsafe {
                            (api().ibv_destroy_qp)(one.qp);
                            (api().ibv_destroy_cq)(one.cq);
                            (api().ibv_dereg_mr)(one.mr);
                            (api().ibv_dealloc_pd)(one.pd);
                            (api().ibv_close_device)(one.context);
                        }
                    }
                    i32::from(one.post(&request) == 0)
                });
                assert_eq!(status, 0);
                assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
            }
            // It may open the device for itself.
            let status = in_child(|| {
                let (one, other) = Side::pair(Options::default(), Options::default());
                let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
                let posted = one.post(&request) == 0 && one.ends() == (1, IBV_WC_SUCCESS);
                i32::from(!posted)
            });
            assert_eq!(status, 0, "{}", errno());
            assert_eq!(one.post(&request), 0);
            assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
        },
    );
}

#[test]
fn a_process_is_dead_though_its_child_lives() {
    two(
        "forks::a_process_is_dead_though_its_child_lives",
        "",
        |mut stream, child| {
            let one = Side::new(Options::default());
            let peer = one.exchange(&mut stream);
            one.connect(&peer);
            let [_] = stream.hear();
            let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0);
            assert_eq!(one.post(&request), 0);
            assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
            stream.say([1]);
            let [grandchild] = stream.hear();
            child.wait().unwrap();
            assert_eq!(one.post(&request), 0);
            assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
            // SAFETY:
            // - it waits until it is killed.
            assert_eq!(unsafe { libc::kill(grandchild as i32, libc::SIGKILL) }, 0);
        },
        |mut stream| {
            let other = Side::new(Options::default());
            let peer = other.exchange(&mut stream);
            other.connect(&peer);
            stream.say([1]);
            let [_] = stream.hear();
            // SAFETY:
            // - the child only waits; the parent ends without anything else.
            unsafe {
                match libc::fork() {
                    0 => loop {
                        libc::pause();
                    },
                    child => {
                        stream.say([child as u64]);
                        libc::_exit(0);
                    }
                }
            }
        },
    );
}
