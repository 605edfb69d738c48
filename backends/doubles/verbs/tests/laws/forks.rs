//! Child processes of a process that uses a device.

use unipgas_verbs_sys::*;

use crate::api::api;
use crate::process::{ProcessPipe, alone, with_others};
use crate::requests::*;
use crate::side::*;

#[test]
fn a_process_is_dead_though_its_child_lives() {
    with_others(
        |others| {
            let mut child = others.begin(&[]);
            let stream = &mut child.wire;
            let one = Side::new(PairOptions::DEFAULT);
            let peer = one.exchange(stream);
            one.connect(&peer);
            stream.hear_number();
            let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0);
            one.run(&request);
            stream.say_number(1);
            let grandchild = stream.hear_number();
            child.ends();
            one.start(&request);
            assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
            // SAFETY:
            // - the grandchild only waits for this signal.
            assert_eq!(unsafe { libc::kill(grandchild as i32, libc::SIGKILL) }, 0);
        },
        |mut stream| {
            let other = Side::new(PairOptions::DEFAULT);
            let peer = other.exchange(&mut stream);
            other.connect(&peer);
            stream.say_number(1);
            stream.hear_number();
            // SAFETY:
            // - the child only waits, and the parent ends immediately.
            unsafe {
                match libc::fork() {
                    0 => loop {
                        libc::pause();
                    },
                    child => {
                        stream.say_number(child as u64);
                        libc::_exit(0);
                    }
                }
            }
        },
    );
}

#[test]
fn what_a_process_has_seen_before_its_end_is_acknowledged() {
    alone("", || {
        let parent = Side::new(PairOptions::DEFAULT);
        for round in 0..40 {
            let (mut here, mut there) = ProcessPipe::pair();
            // SAFETY:
            // - the child opens another device, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let side = Side::new(PairOptions::DEFAULT);
                let peer = side.exchange(&mut there);
                side.connect(&peer);
                there.say_number(1);
                side.wait_for(9, 7);
                if round % 2 == 0 {
                    // SAFETY:
                    // - the child does not use its objects again.
                    unsafe { (api().ibv_close_device)(side.context) };
                }
                // SAFETY:
                // - only this thread of the child calls exit, which runs the exit handlers.
                unsafe { libc::exit(0) };
            }
            let side = parent.beside(PairOptions::DEFAULT);
            let peer = side.exchange(&mut here);
            side.connect(&peer);
            here.hear_number();
            side.put(0, &[7]);
            let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 72);
            side.start(&request);
            // The child may end before these requests arrive.
            let behind = wr(2, IBV_WR_RDMA_WRITE, 0, 4096).to(&peer, 80);
            for _ in 0..30 {
                side.start(&behind);
            }
            assert_eq!(side.ends(), (1, IBV_WC_SUCCESS));
            for _ in 0..30 {
                side.ends();
            }
            side.destroy();
            // SAFETY:
            // - the child is waited for once.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        }
    });
}

/// A fork holds the library's locks. They are free in the child, even if other threads of the parent wait for them.
#[test]
fn threads_fork_at_once() {
    alone("", || {
        let _side = Side::new(PairOptions::DEFAULT);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        // SAFETY:
                        // - the child ends at once.
                        let status = unsafe {
                            match libc::fork() {
                                0 => libc::_exit(0),
                                child => {
                                    let mut status = 1;
                                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                                    status
                                }
                            }
                        };
                        assert_eq!(status, 0);
                    }
                });
            }
        });
    });
}
