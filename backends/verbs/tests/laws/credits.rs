//! A message always finds a buffer at the peer, even with several senders. So no device resends a message because the peer has no buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unipgas_core::op::{ReplyBuffer, UnsignaledPut};
use unipgas_core::transport::{Handler, Transport};
use unipgas_core::{Deadline, Flags, Outcome, Rights};

use crate::device::count;
use crate::node::{LEN, Node, PeerLink, remote, until};
use crate::process::{OtherProcesses, ProcessPipe, alone, with_others_on};

/// Counts messages, and returns each as its answer.
#[derive(Default)]
struct Echo(AtomicU64);

impl Handler for Echo {
    fn handle(&self, _: usize, message: &[u8], reply: &mut Vec<u8>) -> Result<(), u32> {
        self.0.fetch_add(1, Ordering::Relaxed);
        reply.extend_from_slice(message);
        Ok(())
    }
}

/// Sends notices and messages of all sizes alternately, on a separate channel.
fn storm(node: &Node, to: &PeerLink, thread: usize, rounds: u32) {
    let channel = node.transport.open_channel().unwrap();
    let at = 1024 * (thread + 1);
    let mut left = 0;
    let mut failed = 0;
    for nth in 1..=rounds {
        let value = u64::from(nth).to_ne_bytes();
        // SAFETY:
        // - the bytes are read within the call.
        let quick = unsafe {
            let notice = unipgas_core::Notice {
                slot: remote(to, at),
                value: nth,
            };
            channel.put_unsignaled(&UnsignaledPut {
                src: value.as_ptr(),
                len: 8,
                dst: remote(to, at + 8),
                notice: Some(notice),
            })
        };
        let message = [nth as u8; 1000];
        let len = [0, 8, 120, 1000][nth as usize % 4];
        let post = || {
            let to = remote(to, at);
            channel.active_message(to, &message[..len], ReplyBuffer::NONE, Flags::empty(), 1)
        };
        while left > 64 || !quick && nth.is_multiple_of(2) && left > 0 {
            channel.poll(&mut |end| {
                left -= 1;
                failed += u32::from(end.result.is_err());
            });
            std::thread::yield_now();
        }
        loop {
            match post() {
                Ok(Outcome::Pending) => left += 1,
                Ok(Outcome::Complete) => {}
                Err(unipgas_core::Error::NotNow) => {
                    channel.poll(&mut |_| left -= 1);
                    std::thread::yield_now();
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            break;
        }
    }
    while channel.pending() > 0 || channel.quick_pending() > 0 {
        channel.poll(&mut |end| failed += u32::from(end.result.is_err()));
        std::thread::yield_now();
    }
    assert_eq!(failed, 0);
}

const THREADS: usize = 3;
const ROUNDS: u32 = 1500;

fn other(mut wire: ProcessPipe) {
    let (node, to) = Node::join(&mut wire);
    let all: Vec<usize> = (0..THREADS).collect();
    std::thread::scope(|scope| {
        for thread in all {
            let (node, to) = (&node, &to);
            scope.spawn(move || storm(node, to, thread, ROUNDS));
        }
    });
    wire.say_number(count("rnr"));
    // Serve the first process until it ends.
    until(&node.transport, || {
        to.peer.life() != unipgas_core::transport::Life::Alive
    });
}

fn storm_from_all(begun: &OtherProcesses, others: usize) {
    let node = Node::open();
    let echo = Arc::new(Echo::default());
    node.memory.handle_by(echo.clone()).unwrap();
    let (links, mut all): (Vec<_>, Vec<_>) = (0..others).map(|_| node.meet(begun)).unzip();
    // Notices of this process cross the storm.
    for nth in 1..200 {
        for link in &links {
            let post = || node.tell(link, 64, 72, nth, Flags::GATHERED);
            node.insist(post).unwrap();
        }
    }
    let expected = (others * THREADS) as u64 * u64::from(ROUNDS);
    until(&node.transport, || {
        echo.0.load(Ordering::Relaxed) == expected
    });
    for other in &mut all {
        assert_eq!(other.wire.hear_number(), 0, "of a sender");
    }
    assert_eq!(node.settle(), []);
    assert_eq!(count("rnr"), 0);
    drop(links);
    drop(node);
    all.into_iter().for_each(|other| other.ends());
}

#[test]
fn in_a_storm_every_message_finds_a_buffer() {
    for verbs in ["", "max_qp_wr=4,max_srq_wr=128"] {
        let told = with_others_on(verbs, &[], |others| storm_from_all(others, 3), other);
        if let Some(told) = told {
            assert!(!told.contains("panicked"), "{told}");
        }
    }
}

/// Peers that are killed while they send do not reduce the buffers.
#[test]
fn those_who_go_leave_their_buffers() {
    let verbs = "max_srq_wr=160";
    with_others_on(
        verbs,
        &[],
        |begun| {
            let node = Node::open();
            for nth in 0..40 {
                let mut other = begun.begin(&[]);
                let _ = other.wire.hear();
                other.wire.say(&node.name());
                assert_eq!(other.wire.hear_number(), 200);
                if nth == 39 {
                    // The last peer sends all its notices.
                    assert_eq!(other.wire.hear_number(), 2000);
                    assert_eq!(other.wire.hear_number(), 0);
                } else {
                    other.kill();
                }
            }
            assert_eq!(count("rnr"), 0);
        },
        |mut wire| {
            let (node, to) = Node::join(&mut wire);
            for nth in 1.. {
                let post = || node.tell(&to, 8, 16, nth, Flags::GATHERED);
                node.insist(post).unwrap();
                if nth == 200 || nth == 2000 {
                    wire.say_number(nth.into());
                }
                if nth == 2000 {
                    assert_eq!(node.settle(), []);
                    wire.say_number(count("rnr"));
                }
            }
        },
    );
}

/// In one process, a transport is repeatedly opened, sends notices, and is closed.
#[test]
fn those_who_leave_leave_their_buffers() {
    alone("max_srq_wr=160", || {
        let node = Node::open();
        let stops = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // This thread makes progress all the time, as a program does.
            scope.spawn(|| until(&node.transport, || stops.load(Ordering::Relaxed)));
            for _ in 0..60 {
                let other = Node::open();
                let to = other.know(&node);
                for nth in 1..100 {
                    let post = || other.tell(&to, 8, 16, nth, Flags::GATHERED);
                    other.insist(post).unwrap();
                }
                // The transport is closed while operations are outstanding.
            }
            stops.store(true, Ordering::Relaxed);
        });
        let last = Node::open();
        let to = last.know(&node);
        for nth in 1..2000 {
            let post = || last.tell(&to, 8, 16, nth, Flags::GATHERED);
            last.insist(post).unwrap();
        }
        assert_eq!(last.settle(), []);
        assert_eq!(count("rnr"), 0);
        let memory = last.transport.allocate(LEN, Rights::FULL).unwrap();
        let found = to.peer.import(&memory.key(), Deadline::Never);
        assert!(found.is_err(), "of another process");
    });
}
