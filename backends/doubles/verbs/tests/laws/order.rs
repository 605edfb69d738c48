//! The order of operations that verbs guarantee.

use unipgas_verbs_sys::*;

use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn completions_are_in_order_though_reads_are_late() {
    alone("late=7", || {
        let (one, other) = Side::plain_pair();
        let peer = other.address();
        for _ in 0..20 {
            for id in 0..30 {
                let opcode = match id % 3 {
                    0 => IBV_WR_RDMA_READ,
                    1 => IBV_WR_RDMA_WRITE,
                    _ => IBV_WR_ATOMIC_FETCH_AND_ADD,
                };
                one.start(&wr(id, opcode, 8 * id, 8).to(&peer, 8 * id));
            }
            for id in 0..30 {
                assert_eq!(one.ends(), (id, IBV_WC_SUCCESS));
            }
        }
    });
}

/// For each round: whether a read that a write follows gets the old value.
fn read_before_write(flags: u32, rounds: u64) -> Vec<bool> {
    let (one, other) = Side::plain_pair();
    let peer = other.address();
    (1..=rounds)
        .map(|round| {
            other.put(0, &[1]);
            one.put(1, &[2]);
            one.start(&wr(round, IBV_WR_RDMA_READ, 0, 8).to(&peer, 0));
            let write = wr(0, IBV_WR_RDMA_WRITE, 8, 8).to(&peer, 0);
            one.start(&write.flags(IBV_SEND_SIGNALED | flags));
            assert_eq!(one.ends(), (round, IBV_WC_SUCCESS));
            assert_eq!(one.ends(), (0, IBV_WC_SUCCESS));
            one.word(0) == 1
        })
        .collect()
}

#[test]
fn a_fence_waits_for_reads() {
    alone("late=3", || {
        assert!(
            read_before_write(IBV_SEND_FENCE, 100)
                .iter()
                .all(|old| *old)
        );
        // Without a fence, a write may overtake a read. Eventually one does.
        while read_before_write(0, 10).iter().all(|old| *old) {}
    });
}
