//! Order, as far as verbs keep it.

use unipgas_verbs_sys::*;

use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn writes_are_visible_in_order_and_words_are_whole() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let peer = other.address();
        let rounds = 2000;
        std::thread::scope(|scope| {
            let memory = other.memory;
            scope.spawn(move || {
                let read = |at: usize| memory[at].load(std::sync::atomic::Ordering::SeqCst);
                let mut last = 0;
                while last < rounds {
                    let (after, before) = (read(501), read(500));
                    let tail = read(101);
                    assert!(
                        before >= after,
                        "the later write is there, but not the earlier"
                    );
                    // Words of one message are written in ascending order.
                    assert!(read(100) >= tail);
                    assert_eq!(before >> 32, before & 0xffff_ffff);
                    last = after & 0xffff_ffff;
                    std::thread::yield_now();
                }
            });
            for round in 1..=rounds {
                // In a place that is free, as the last ones may not be read yet.
                let word = round << 32 | round;
                let at = (round as usize % 16) * 2;
                one.put(at, &[word, word]);
                let local = 8 * at as u64;
                let requests = [
                    wr(1, IBV_WR_RDMA_WRITE, local, 16).to(&peer, 800).flags(0),
                    wr(2, IBV_WR_RDMA_WRITE, local, 8).to(&peer, 4000).flags(0),
                    wr(3, IBV_WR_RDMA_WRITE, local, 8).to(&peer, 4008),
                ];
                for request in &requests {
                    one.start(request);
                }
                assert_eq!(one.ends(), (3, IBV_WC_SUCCESS));
            }
        });
    });
}

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

/// What a read gets that a write follows.
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
        // Without it a write may overtake a read, and does so in time.
        while read_before_write(0, 10).iter().all(|old| *old) {}
    });
}
