//! What each operation does, within a context, between contexts and between processes.

use std::ffi::CStr;

use unipgas_verbs_sys::*;

use crate::api::{api, count};
use crate::process::{alone, alone_with, two};
use crate::requests::*;
use crate::side::*;

/// All operations between two sides; the second one need not do anything but post a buffer each time.
fn everything(one: &Side, other: &Side) {
    let peer = other.address();
    one.put(0, &[11, 12, 13, 14]);
    one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 20).to(&peer, 80));
    let wc = one.wait();
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode),
        (1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE)
    );
    assert_eq!([10, 11, 12, 13].map(|at| other.word(at)), [11, 12, 13, 0]);

    assert_eq!(other.recv(100, 0, 8), 0);
    let mut request = wr(2, IBV_WR_RDMA_WRITE_WITH_IMM, 8, 16).to(&peer, 160);
    request.imm = 0x1234_5678;
    one.run(&request);
    let wc = other.wait();
    assert_eq!((wc.wr_id, wc.opcode), (100, IBV_WC_RECV_RDMA_WITH_IMM));
    assert_eq!(
        (wc.wc_flags, wc.imm_data, wc.byte_len),
        (IBV_WC_WITH_IMM, 0x1234_5678, 16)
    );
    assert_eq!([20, 21].map(|at| other.word(at)), [12, 13]);

    assert_eq!(other.recv(101, 320, 64), 0);
    let mut request = wr(3, IBV_WR_SEND_WITH_IMM, 0, 8);
    request.local = vec![(24, 8), (0, 0), (0, 8), (8, 8)];
    request.imm = 7;
    one.run(&request);
    let wc = other.wait();
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (101, IBV_WC_RECV, 24));
    assert_eq!(
        (wc.imm_data, wc.qp_num, wc.src_qp),
        (7, peer.qp, one.address().qp)
    );
    assert_eq!([40, 41, 42].map(|at| other.word(at)), [14, 11, 12]);

    other.put(50, &[51, 52, 53]);
    one.start(&wr(4, IBV_WR_RDMA_READ, 480, 24).to(&peer, 400));
    let wc = one.wait();
    assert_eq!(
        (wc.wr_id, wc.opcode, wc.byte_len),
        (4, IBV_WC_RDMA_READ, 24)
    );
    assert_eq!([60, 61, 62].map(|at| one.word(at)), [51, 52, 53]);

    let mut add = wr(5, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&peer, 400);
    add.operand = 9;
    one.start(&add);
    let wc = one.wait();
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (5, IBV_WC_FETCH_ADD, 8));
    assert_eq!((one.word(0), other.word(50)), (51, 60));

    let mut swap = wr(6, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8).to(&peer, 400);
    (swap.operand, swap.swap) = (60, 77);
    one.start(&swap);
    assert_eq!(one.wait().opcode, IBV_WC_COMP_SWAP);
    assert_eq!((one.word(0), other.word(50)), (60, 77));
    one.run(&swap);
    assert_eq!((one.word(0), other.word(50)), (77, 77));

    // Longer than a packet.
    let big: Vec<u64> = (0..40_000).map(|n| n * 3 + 1).collect();
    one.put(1000, &big);
    let len = 8 * big.len() as u32;
    one.run(&wr(7, IBV_WR_RDMA_WRITE, 8000, len).to(&peer, 8000));
    assert!((0..big.len()).all(|at| other.word(1000 + at) == big[at]));
    one.run(&wr(8, IBV_WR_RDMA_READ, 8000, len).to(&peer, 8008));
    assert!((1..big.len()).all(|at| one.word(999 + at) == big[at]));

    // Nothing at all needs no key.
    one.run(&wr(9, IBV_WR_RDMA_WRITE, 0, 0));
    one.run(&wr(10, IBV_WR_RDMA_READ, 0, 0));
}

const BIG: PairOptions = PairOptions {
    words: 50_000,
    ..PairOptions::DEFAULT
};

#[test]
fn within_a_context() {
    alone("", || {
        let one = Side::new(BIG);
        let other = one.beside(BIG);
        one.connect(&other.address());
        other.connect(&one.address());
        everything(&one, &other);
        // A queue pair may be its own peer.
        let own = one.beside(BIG);
        own.connect(&own.address());
        own.run(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&own.address(), 8));
        let context = one.context;
        one.destroy();
        other.destroy();
        own.destroy();
        // SAFETY:
        // - all of it is destroyed.
        assert_eq!(unsafe { (api().ibv_close_device)(context) }, 0);
    });
}

#[test]
fn between_contexts() {
    alone("", || {
        let (one, other) = Side::pair(
            BIG,
            PairOptions {
                shared: true,
                ..BIG
            },
        );
        everything(&one, &other);
        assert_ne!(one.address().qp >> 12, other.address().qp >> 12);
    });
}

#[test]
fn with_glob_and_ethernet_off_by_lateness() {
    alone("atomics=glob,late=5", || {
        let (one, other) = Side::pair(BIG, BIG);
        everything(&one, &other);
    });
}

#[test]
fn between_processes() {
    two(
        "",
        |mut stream, _| {
            let one = Side::new(PairOptions::default());
            let peer = one.exchange(&mut stream);
            one.connect(&peer);
            stream.say([1]);
            let [_] = stream.hear();
            for round in 1..500 {
                one.put(0, &[round]);
                one.run(&wr(round, IBV_WR_RDMA_WRITE, 0, 8).to(&peer, 64));
                one.wait_for(9, round);
            }
            let mut add = wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&peer, 80);
            add.operand = 1;
            for _ in 0..100 {
                one.run(&add);
            }
            assert_eq!(one.word(0), 99);
            let [sum] = stream.hear();
            assert_eq!(sum, 200);
        },
        |mut stream| {
            let other = Side::new(PairOptions::default());
            let peer = other.exchange(&mut stream);
            other.connect(&peer);
            stream.say([1]);
            let [_] = stream.hear();
            for round in 1..500 {
                other.wait_for(8, round);
                other.run(&wr(round, IBV_WR_RDMA_WRITE, 64, 8).to(&peer, 72));
            }
            other.wait_for(10, 100);
            let mut add = wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&other.address(), 80);
            add.operand = 1;
            let own = other.twin();
            own.connect(&own.address());
            for _ in 0..100 {
                own.run(&add);
            }
            stream.say([other.word(10)]);
        },
    );
}

#[test]
fn inline_data_are_copied_and_others_are_not() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        for (flags, seen) in [(IBV_SEND_INLINE, 1), (0, 2)] {
            one.put(0, &[1]);
            let before = count(c"rnr");
            let request = wr(1, IBV_WR_SEND, 0, 8).flags(IBV_SEND_SIGNALED | flags);
            one.start(&request);
            // There is no buffer: it is sent again, from where it is now.
            while count(c"rnr") == before {
                std::thread::yield_now();
            }
            one.put(0, &[2]);
            let before = count(c"rnr");
            while count(c"rnr") < before + 2 {
                std::thread::yield_now();
            }
            assert_eq!(other.recv(1, 80, 8), 0);
            assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
            assert_eq!(other.ends(), (1, IBV_WC_SUCCESS));
            assert_eq!(other.word(10), seen);
        }
    });
}

#[test]
fn atomics_of_glob_are_atomic_towards_the_cpu() {
    alone("atomics=glob", || {
        let (one, other) = Side::plain_pair();
        let mut add = wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&other.address(), 8);
        add.operand = 1;
        for _ in 0..1000 {
            one.start(&add);
            let mut own = 0;
            while one.poll().is_none() {
                other.memory[1].fetch_add(1 << 32, std::sync::atomic::Ordering::SeqCst);
                own += 1;
            }
            other.memory[1].fetch_sub(own << 32, std::sync::atomic::Ordering::SeqCst);
        }
        assert_eq!(other.word(1), 1000);
    });
}

#[test]
fn atomics_of_hca_are_not_atomic_towards_the_cpu() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let mut add = wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8).to(&other.address(), 8);
        add.operand = 1;
        let (mut added, mut own) = (0, 0);
        // In time something is lost.
        while other.word(1) == added + own {
            one.start(&add);
            added += 1;
            while one.poll().is_none() {
                other.memory[1].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                own += 1;
            }
        }
        // Among themselves they are.
        other.put(1, &[0]);
        for _ in 0..100 {
            one.run(&add);
        }
        assert_eq!(other.word(1), 100);
    });
}

#[test]
fn all_is_counted() {
    let file = std::env::temp_dir().join(format!("fake-verbs-counts-{}", std::process::id()));
    let path = file.to_str().unwrap().to_owned();
    let environment = [("FAKE_VERBS_COUNTS", path.as_str())];
    let mut is_outside = true;
    alone_with("", &environment, || {
        is_outside = false;
        let (one, other) = Side::plain_pair();
        let inline = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
        let request = wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0);
        for flags in [0, IBV_SEND_SIGNALED, inline] {
            one.start(&request.clone().flags(flags));
        }
        assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
        assert_eq!(one.ends(), (1, IBV_WC_SUCCESS));
        assert_eq!(other.recv(1, 0, 8), 0);
        let expected: &[(&CStr, u64)] = &[
            (c"doorbells", 3),
            (c"wr.write", 3),
            (c"wr.inline", 1),
            (c"wr.signaled", 2),
            (c"wr.read", 0),
            (c"completions", 2),
            (c"recv_posted", 1),
            (c"rnr", 0),
            (c"mr", 2),
            (c"qp", 2),
        ];
        for (name, value) in expected {
            assert_eq!(count(name), *value, "{name:?}");
        }
    });
    if is_outside {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(line["wr.write"], 3);
        assert_eq!(line["completions"], 2);
    }
}
