//! Much at a time.

use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;

use unipgas_verbs_sys::*;

use crate::process::{alone, two};
use crate::requests::*;
use crate::side::*;

/// Steps of a generator.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

const SUM: u64 = 8 * 4000;

/// Reads, writes, sends and atomic operations on one connection, as many as there is room for; gives what was added.
fn storm(side: &Side, peer: &SideAddress, rounds: u64, seed: u64) -> u64 {
    let mut state = seed | 1;
    let mut words = HashMap::new();
    let (mut posted, mut done, mut added) = (0, 0, 0);
    while done < rounds {
        while posted < rounds && posted < done + 32 {
            let slot = 16 * (posted % 32);
            let random = draw(&mut state);
            let (opcode, remote) = match random % 5 {
                0 => (IBV_WR_RDMA_READ, 0),
                1 => (IBV_WR_ATOMIC_FETCH_AND_ADD, SUM),
                2 => (IBV_WR_SEND, 0),
                3 => (IBV_WR_RDMA_WRITE_WITH_IMM, 8 * 3000),
                _ => (IBV_WR_RDMA_WRITE, 8 * 2000 + slot),
            };
            let mut request = wr(posted, opcode, slot, 8).to(peer, remote);
            if opcode == IBV_WR_RDMA_WRITE {
                side.put(slot as usize / 8, &[random]);
                words.insert(2000 + slot as usize / 8, random);
            }
            request.operand = random >> 40;
            if opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
                added += request.operand;
            }
            if random & (1 << 20) != 0 {
                request.flags |= IBV_SEND_FENCE;
            }
            side.start(&request);
            posted += 1;
        }
        let wc = side.wait();
        assert_eq!((wc.wr_id, wc.status), (done, IBV_WC_SUCCESS));
        done += 1;
    }
    // What was written last is there.
    for (at, word) in words {
        let local = 8 * 1000;
        let read = wr(0, IBV_WR_RDMA_READ, local, 8).to(peer, 8 * at as u64);
        side.run(&read);
        assert_eq!(side.word(1000), word);
    }
    added
}

/// Takes messages, and gives their buffers back, until all have come.
fn take(side: &Side, is_over: impl Fn() -> bool) {
    while !is_over() {
        match side.poll() {
            Some(wc) => {
                assert_eq!(wc.status, IBV_WC_SUCCESS);
                assert_eq!(side.recv(wc.wr_id, 8 * 3500, 8), 0);
            }
            None => std::thread::yield_now(),
        }
    }
}

const OPTIONS: PairOptions = PairOptions {
    words: 5000,
    ..PairOptions::DEFAULT
};

#[test]
fn threads_of_one_process() {
    for config in ["", "late=9", "atomics=glob"] {
        alone(config, || {
            let pairs: Vec<_> = (0..4).map(|_| Side::pair(OPTIONS, OPTIONS)).collect();
            std::thread::scope(|scope| {
                for (at, (one, other)) in pairs.iter().enumerate() {
                    let (one, other) = (Shared(one), Shared(other));
                    scope.spawn(move || {
                        let (one, other) = (one.side(), other.side());
                        let over = std::sync::atomic::AtomicBool::new(false);
                        std::thread::scope(|scope| {
                            let (over, other) = (&over, Shared(other));
                            scope.spawn(move || {
                                let other = other.side();
                                // Only some: the others wait now and then.
                                for id in 0..3 {
                                    assert_eq!(other.recv(id, 8 * 3500, 8), 0);
                                }
                                take(other, || over.load(SeqCst));
                            });
                            let added = storm(one, &other.side().address(), 1500, at as u64 + 77);
                            over.store(true, SeqCst);
                            assert_eq!(other.side().word(4000), added);
                        });
                    });
                }
            });
        });
    }
}

/// For another thread.
#[derive(Clone, Copy)]
struct Shared<'a>(&'a Side);

impl<'a> Shared<'a> {
    fn side(self) -> &'a Side {
        self.0
    }
}

// SAFETY:
// - the library's objects may be used by several threads.
unsafe impl Send for Shared<'_> {}

#[test]
fn two_processes() {
    let both = |mut stream: crate::process::WordStream| {
        let sides: Vec<Side> = (0..3).map(|_| Side::new(OPTIONS)).collect();
        let targets: Vec<Side> = sides.iter().map(|side| side.beside(OPTIONS)).collect();
        let mut peers = Vec::new();
        for (side, target) in sides.iter().zip(&targets) {
            // What one sends, the other's target gets.
            let of_side = side.exchange(&mut stream);
            let of_target = target.exchange(&mut stream);
            side.connect(&of_target);
            target.connect(&of_side);
            for id in 0..8 {
                assert_eq!(target.recv(id, 8 * 3500, 8), 0);
            }
            peers.push(of_target);
        }
        stream.say([1]);
        let [_] = stream.hear();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for target in &targets {
                let (over, target) = (&over, Shared(target));
                scope.spawn(move || take(target.side(), || over.load(SeqCst)));
            }
            for (side, peer) in sides.iter().zip(&peers) {
                let added = storm(side, peer, 1500, 5);
                let read = wr(0, IBV_WR_RDMA_READ, 0, 8).to(peer, SUM);
                side.run(&read);
                assert_eq!(side.word(0), added);
            }
            stream.say([2]);
            let [_] = stream.hear();
            over.store(true, SeqCst);
        });
    };
    two("", |stream, _| both(stream), both);
}
