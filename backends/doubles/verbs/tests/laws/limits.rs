//! Limits of a device, and features that it lacks.

use std::ptr::null_mut;

use unipgas_verbs_sys::*;

use crate::api::{api, errno, zeroed};
use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn requests_are_refused_at_once() {
    alone("atomics=none", || {
        let (one, other) = Side::plain_pair();
        let peer = other.address();
        let good = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0);
        let mut lists = good.clone();
        lists.local = vec![(0, 8); 5];
        let long = wr(1, IBV_WR_RDMA_WRITE, 0, 65).to(&peer, 0);
        let inline = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
        for wrong in [
            lists,
            long.flags(inline),
            wr(1, IBV_WR_RDMA_READ, 0, 8).to(&peer, 0).flags(inline),
            wr(1, 99, 0, 8),
            wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&peer, 0),
        ] {
            assert_eq!(one.post(&wrong), libc::EINVAL);
        }
        one.run(&good);
    });
}

#[test]
fn of_a_list_those_before_the_refused_one_are_taken() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let peer = other.address();
        let mut list: [ibv_send_wr; 3] = [zeroed(), zeroed(), zeroed()];
        let mut sge = ibv_sge {
            addr: one.address().base,
            length: 8,
            // SAFETY:
            // - the region is not deregistered.
            lkey: unsafe { (*one.mr).lkey },
        };
        let at = list.as_mut_ptr();
        for (index, raw) in list.iter_mut().enumerate() {
            raw.wr_id = index as u64;
            raw.sg_list = &raw mut sge;
            raw.num_sge = if index == 1 { -1 } else { 1 };
            raw.send_flags = IBV_SEND_SIGNALED;
            raw.wr.remote_addr = peer.base;
            raw.wr.rkey_or_compare_add = peer.rkey.into();
            if index < 2 {
                raw.next = at.wrapping_add(index + 1);
            }
        }
        let mut bad = null_mut();
        // SAFETY:
        // - the queue pair is not destroyed, and the requests form a list.
        let error = unsafe {
            let post = (*one.context).ops.post_send.unwrap();
            post(one.qp, at, &raw mut bad)
        };
        assert_eq!((error, bad), (libc::EINVAL, at.wrapping_add(1)));
        assert_eq!(one.ends(), (0, IBV_WC_SUCCESS));
        one.run(&wr(7, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0));
    });
}

#[test]
fn objects_are_refused() {
    let config =
        "max_qp=2,max_qp_wr=32,max_cqe=100,max_srq=1,max_srq_wr=16,max_mr=2,inline=8,max_sge=4";
    alone(config, || {
        let options = PairOptions::with(|options| {
            options.send_wr = 32;
            options.recv_wr = 16;
            options.cqe = 100;
            options.inline = 8;
            options.shared = true;
        });
        let side = Side::new(options);
        let with = |options: PairOptions| Side {
            options,
            ..side.copy()
        };
        for wrong in [
            PairOptions {
                inline: 9,
                ..options
            },
            PairOptions {
                send_wr: 33,
                ..options
            },
        ] {
            assert!(with(wrong).make_qp().is_null());
            assert_eq!(errno(), libc::EINVAL);
        }
        assert!(!side.make_qp().is_null());
        assert!(side.make_qp().is_null());
        assert_eq!(errno(), libc::ENOMEM);
        let mut attr: ibv_device_attr = zeroed();
        let memory = side.memory.as_ptr().cast_mut().cast();
        let mut srq: ibv_srq_init_attr = zeroed();
        srq.attr.max_wr = 1;
        // SAFETY:
        // - the context is open, and the domain is not freed.
        unsafe {
            assert!((api().ibv_create_cq)(side.context, 101, null_mut(), null_mut(), 0).is_null());
            assert!((api().ibv_create_srq)(side.pd, &raw mut srq).is_null());
            assert!(!(api().ibv_reg_mr)(side.pd, memory, 8, 0).is_null());
            assert!((api().ibv_reg_mr)(side.pd, memory, 8, 0).is_null());
            assert_eq!(errno(), libc::ENOMEM);
            assert_eq!((api().ibv_query_device)(side.context, &raw mut attr), 0);
        }
        assert_eq!(
            (attr.max_qp, attr.max_qp_wr, attr.max_cqe, attr.max_mr),
            (2, 32, 100, 2)
        );
        assert_eq!((attr.max_srq, attr.max_srq_wr, attr.max_sge), (1, 16, 4));
    });
}

#[test]
fn there_may_be_no_shared_queues_and_no_such_memory() {
    alone("max_srq=0", || {
        let side = Side::new(PairOptions::DEFAULT);
        let mut srq: ibv_srq_init_attr = zeroed();
        srq.attr.max_wr = 1;
        let memory = side.memory.as_ptr().cast_mut().cast();
        let nowhere = std::ptr::without_provenance_mut(1 << 20);
        // SAFETY:
        // - the domain is not freed.
        unsafe {
            assert!((api().ibv_create_srq)(side.pd, &raw mut srq).is_null());
            let register = |at, access: u32| {
                let mr = (api().ibv_reg_mr)(side.pd, at, 8, access as i32);
                assert!(mr.is_null());
                errno()
            };
            assert_eq!(register(nowhere, 0), libc::EFAULT);
            assert_eq!(register(memory, IBV_ACCESS_REMOTE_WRITE), libc::EINVAL);
            assert_eq!(register(memory, IBV_ACCESS_REMOTE_ATOMIC), libc::EINVAL);
            assert_eq!(register(memory, IBV_ACCESS_ON_DEMAND), libc::EOPNOTSUPP);
        }
    });
}

fn devices() -> i32 {
    let mut count = -1;
    // SAFETY:
    // - the list is freed once.
    unsafe {
        let list = (api().ibv_get_device_list)(&raw mut count);
        assert!(!list.is_null());
        (api().ibv_free_device_list)(list);
    }
    count
}

#[test]
fn what_is_unknown_gives_no_devices() {
    alone("colour=red", || {
        assert_eq!(devices(), 0);
    });
}
