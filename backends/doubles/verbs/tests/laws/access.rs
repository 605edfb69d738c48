//! Forbidden accesses fail as with a device.

use unipgas_verbs_sys::*;

use crate::process::alone;
use crate::requests::*;
use crate::side::*;

fn pair(other: PairOptions) -> (Side, Side) {
    Side::pair(PairOptions::DEFAULT, other)
}

/// The request fails with `status` at the requester. Requests behind it are flushed, signaled or not, and so are later ones.
fn fails(request: Wr, status: u32, one: &Side) {
    let peer = one.address();
    one.start(&request.flags(0));
    let behind = wr(901, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 0);
    let first = one.post(&behind.clone().flags(0));
    let second = one.post(&Wr {
        id: 902,
        ..behind.clone()
    });
    assert_eq!((first, second), (0, 0));
    assert_eq!(one.ends(), (900, status));
    assert_eq!(one.ends(), (901, IBV_WC_WR_FLUSH_ERR));
    assert_eq!(one.ends(), (902, IBV_WC_WR_FLUSH_ERR));
    assert_eq!(one.state(), IBV_QPS_ERR);
    one.start(&Wr { id: 903, ..behind });
    assert_eq!(one.ends(), (903, IBV_WC_WR_FLUSH_ERR));
}

#[test]
fn keys_ranges_and_rights_are_checked() {
    alone("", || {
        type Change = fn(&mut Wr, &SideAddress);
        let changes: [Change; 6] = [
            |wr, _| wr.rkey ^= 0x100,
            // The local key.
            |wr, _| wr.rkey &= !1,
            |wr, peer| wr.remote = peer.base - 1,
            |wr, peer| wr.remote = peer.base + 8 * 1024 - 7,
            |wr, _| wr.remote = u64::MAX - 3,
            |wr, _| wr.remote = 0,
        ];
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            for change in changes {
                let (one, other) = Side::plain_pair();
                let mut request = wr(900, opcode, 0, 8).to(&other.address(), 0);
                change(&mut request, &other.address());
                fails(request, IBV_WC_REM_ACCESS_ERR, &one);
                assert_eq!(other.event().event_type, IBV_EVENT_QP_ACCESS_ERR);
                assert_eq!(other.state(), IBV_QPS_ERR);
            }
        }
    });
}

#[test]
fn rights_of_regions_and_of_queue_pairs_are_checked() {
    alone("", || {
        for (opcode, right) in [
            (IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE),
            (IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ),
            (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC),
            (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC),
        ] {
            for (access, qp_access) in [(ALL & !right, ALL), (ALL, ALL & !right)] {
                let (one, other) = pair(PairOptions::with(|options| {
                    options.access = access;
                    options.qp_access = qp_access;
                }));
                let request = wr(900, opcode, 0, 8).to(&other.address(), 8);
                fails(request, IBV_WC_REM_ACCESS_ERR, &one);
            }
        }
    });
}

#[test]
fn atomics_must_be_aligned() {
    alone("", || {
        for opcode in [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP] {
            let (one, other) = Side::plain_pair();
            let request = wr(900, opcode, 0, 8).to(&other.address(), 4);
            fails(request, IBV_WC_REM_INV_REQ_ERR, &one);
            assert_eq!(other.event().event_type, IBV_EVENT_QP_REQ_ERR);
        }
    });
}

#[test]
fn local_keys_are_checked_when_their_turn_comes() {
    alone("", || {
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND] {
            let (one, other) = Side::plain_pair();
            let read = wr(1, IBV_WR_RDMA_READ, 0, 8).to(&other.address(), 0);
            one.start(&read);
            let mut request = wr(900, opcode, 0, 8).to(&other.address(), 0);
            request.lkey = Some(12);
            let own = one.address();
            one.start(&request);
            one.start(&wr(2, IBV_WR_RDMA_WRITE, 0, 8).to(&own, 0));
            assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
            assert_eq!(one.ends(), (900, IBV_WC_LOC_PROT_ERR));
            assert_eq!(one.ends(), (2, IBV_WC_WR_FLUSH_ERR));
        }
    });
}

#[test]
fn keys_of_another_domain_do_not_count() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let stranger = other.beside(PairOptions::DEFAULT);
        let request = wr(900, IBV_WR_RDMA_WRITE, 0, 8).to(&stranger.address(), 0);
        fails(request, IBV_WC_REM_ACCESS_ERR, &one);
    });
}

#[test]
fn what_is_deregistered_is_not_written() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let request = wr(900, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
        // SAFETY:
        // - the region is deregistered once.
        assert_eq!(unsafe { (crate::api::api().ibv_dereg_mr)(other.mr) }, 0);
        fails(request, IBV_WC_REM_ACCESS_ERR, &one);
    });
}

#[test]
fn a_message_longer_than_its_buffer_fails_on_both_sides() {
    alone("", || {
        for shared in [false, true] {
            let (one, other) = pair(PairOptions::with(|options| options.shared = shared));
            assert_eq!(other.recv(1, 0, 16), 0);
            assert_eq!(other.recv(2, 0, 16), 0);
            fails(wr(900, IBV_WR_SEND, 0, 17), IBV_WC_REM_INV_REQ_ERR, &one);
            assert_eq!(other.ends(), (1, IBV_WC_LOC_LEN_ERR));
            // Buffers of a shared queue stay there for other queue pairs.
            if !shared {
                assert_eq!(other.ends(), (2, IBV_WC_WR_FLUSH_ERR));
            }
            assert_eq!(other.state(), IBV_QPS_ERR);
        }
    });
}

#[test]
fn more_reads_than_agreed_upon_fail() {
    alone("late=1", || {
        let (one, other) = pair(PairOptions::with(|options| options.dest_rd_atomic = 1));
        let read = wr(1, IBV_WR_RDMA_READ, 0, 8).to(&other.address(), 0);
        let mut last = (0, IBV_WC_SUCCESS);
        while last.1 == IBV_WC_SUCCESS {
            for _ in 0..4 {
                one.start(&read);
            }
            for _ in 0..4 {
                last = one.ends();
                if last.1 != IBV_WC_SUCCESS {
                    break;
                }
            }
        }
        assert_eq!(last.1, IBV_WC_REM_INV_REQ_ERR);
        assert_eq!(other.event().event_type, IBV_EVENT_QP_REQ_ERR);
    });
}

#[test]
fn a_requester_keeps_to_its_own_depth() {
    alone("late=1", || {
        let shallow = PairOptions::with(|options| {
            options.rd_atomic = 1;
            options.dest_rd_atomic = 1;
        });
        let (one, other) = Side::pair(shallow, shallow);
        for id in 0..60 {
            let opcode = [IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD][id as usize % 2];
            let request = wr(id, opcode, 0, 8).to(&other.address(), 0);
            one.start(&request);
        }
        for id in 0..60 {
            assert_eq!(one.ends(), (id, IBV_WC_SUCCESS));
        }
        // With max_rd_atomic 0, reads fail.
        let none = PairOptions::with(|options| options.rd_atomic = 0);
        let (one, other) = Side::pair(none, none);
        let request = wr(1, IBV_WR_RDMA_READ, 0, 8).to(&other.address(), 0);
        one.start(&request);
        assert_eq!(one.ends(), (1, IBV_WC_LOC_QP_OP_ERR));
    });
}

#[test]
fn a_buffer_that_may_not_be_written_fails_on_both_sides() {
    alone("", || {
        let (one, other) = pair(PairOptions::with(|options| {
            options.access = IBV_ACCESS_REMOTE_READ
        }));
        assert_eq!(other.recv(1, 0, 16), 0);
        fails(wr(900, IBV_WR_SEND, 0, 8), IBV_WC_REM_OP_ERR, &one);
        assert_eq!(other.ends(), (1, IBV_WC_LOC_PROT_ERR));
        // Without local write access, the memory cannot receive the data of a read.
        let (one, other) = Side::pair(
            PairOptions::with(|options| options.access = IBV_ACCESS_REMOTE_READ),
            PairOptions::DEFAULT,
        );
        let request = wr(900, IBV_WR_RDMA_READ, 0, 8).to(&other.address(), 0);
        fails(request, IBV_WC_LOC_PROT_ERR, &one);
    });
}
