//! Registrations that end while peers use them: no write follows, and peers get an error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unipgas_core::op::{PutRequest, UnsignaledPut};
use unipgas_core::transport::{Life, Transport};
use unipgas_core::{Deadline, Error, Flags, Local, Rights};

use crate::node::{LEN, Node, PeerLink, until};
use crate::process::{ProcessPipe, with_others};

const PAGE: usize = 4096;

/// Writes nonzero values to the whole region until a write is refused, and returns the error.
fn writes(node: &Node, to: &PeerLink) -> Error {
    let words: Vec<u64> = vec![u64::MAX; PAGE / 8];
    let src = Local::unregistered(words.as_ptr().cast());
    for nth in 0.. {
        let at = crate::node::remote(to, nth % 64 * 8);
        // SAFETY:
        // - bytes that are not read within the call belong to memory that exists until all operations have ended.
        let posted = unsafe {
            match nth % 3 {
                0 => (node.channel).put(
                    &PutRequest::new(src, at, 8),
                    Flags::INLINE | Flags::GATHERED,
                    1,
                ),
                1 => {
                    (node.channel).put(&PutRequest::new(node.local(0), at, 256), Flags::empty(), 1)
                }
                _ => {
                    node.channel.put_unsignaled(&UnsignaledPut {
                        src: src.ptr,
                        len: 64,
                        dst: at,
                        notice: None,
                    });
                    Ok(unipgas_core::Outcome::Pending)
                }
            }
        };
        let failed = node.ends().into_iter().find_map(|end| end.result.err());
        match (posted, failed) {
            (Err(Error::NotNow), None) => std::thread::yield_now(),
            (Err(error), _) | (_, Some(error)) if error != Error::NotNow => return error,
            _ => {}
        }
    }
    unreachable!()
}

fn other(mut wire: ProcessPipe) {
    let node = Node::open();
    (0..LEN / 8).for_each(|nth| node.word(nth * 8).store(u64::MAX, Ordering::Relaxed));
    let peer = node.transport.connect(&wire.hear()).unwrap();
    loop {
        let key = wire.hear();
        if key == b"end" {
            return;
        }
        let region = peer.import(&key, Deadline::Never).unwrap();
        let link = PeerLink {
            peer: peer.clone(),
            region,
        };
        wire.say(b"writes");
        let why = writes(&node, &link);
        let rest = node.settle();
        // The region is released, and no other error has occurred.
        let lawful = |error: &Error| *error == Error::StaleRegion;
        let all = rest.iter().filter_map(|end| end.result.as_ref().err());
        let lawful = lawful(&why) && all.clone().all(lawful) && !link.region.is_current();
        let lives = peer.life() == Life::Alive;
        wire.say(if lawful && lives { b"stale" } else { b"wrong" });
    }
}

#[test]
fn nothing_is_written_to_memory_that_was_given_back() {
    with_others(
        |others| {
            let node = Node::open();
            let mut all: Vec<_> = (0..3).map(|_| others.begin(&[])).collect();
            for other in &mut all {
                other.wire.say(&node.transport.address());
            }
            let memory: Vec<AtomicU64> = (0..PAGE / 8).map(|_| AtomicU64::new(0)).collect();
            for _ in 0..30 {
                let base = memory.as_ptr().cast_mut().cast::<u8>();
                // SAFETY:
                // - the memory outlives the registration, and only atomic operations change it.
                let region = unsafe { node.transport.register(base, PAGE, Rights::FULL) }.unwrap();
                for other in &mut all {
                    other.wire.say(&region.key());
                }
                for other in &mut all {
                    assert_eq!(other.wire.hear(), b"writes");
                }
                until(&node.transport, || memory[0].load(Ordering::Relaxed) != 0);
                drop(region);
                // After the release only this process accesses the memory.
                memory
                    .iter()
                    .for_each(|word| word.store(0, Ordering::SeqCst));
                for other in &mut all {
                    assert_eq!(other.wire.hear(), b"stale");
                }
                assert!(memory.iter().all(|word| word.load(Ordering::SeqCst) == 0));
            }
            for other in &mut all {
                other.wire.say(b"end");
            }
            all.into_iter().for_each(|other| other.ends());
        },
        other,
    );
}

/// A release waits for a stopped peer for a limited time. The peer's outstanding operations then have no effect.
#[test]
fn one_that_has_stopped_holds_nobody_up() {
    with_others(
        |others| {
            let node = Node::open();
            let third = Node::open();
            let to_third = node.know(&third);
            let mut other = others.begin(&[]);
            other.wire.say(&node.transport.address());
            let memory = node.transport.allocate(PAGE, Rights::FULL).unwrap();
            // SAFETY:
            // - the word is aligned, only atomic operations change it, and it stays mapped as long as the transport.
            let first = unsafe { AtomicU64::from_ptr(memory.base().cast()) };
            other.wire.say(&memory.key());
            assert_eq!(other.wire.hear(), b"writes");
            until(&node.transport, || first.load(Ordering::Relaxed) != 0);
            other.signal(libc::SIGSTOP);
            let goes_on = AtomicBool::new(true);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while goes_on.load(Ordering::Relaxed) {
                        third.transport.progress();
                        std::thread::yield_now();
                    }
                });
                // The release returns, although the peer does not answer.
                drop(memory);
                first.store(0, Ordering::SeqCst);
                node.works(&to_third);
                other.signal(libc::SIGCONT);
                // The peer's operations fail, or it has lost its connection.
                let said = other.wire.hear();
                assert!(said == b"stale" || said == b"wrong");
                assert_eq!(first.load(Ordering::SeqCst), 0);
                node.works(&to_third);
                goes_on.store(false, Ordering::Relaxed);
            });
            other.kill();
            node.works(&to_third);
        },
        other,
    );
}

/// An importer drops its link without waiting for a stopped owner.
#[test]
fn an_owner_that_has_stopped_holds_no_importer_up() {
    with_others(
        |others| {
            let node = Node::open();
            let mut other = others.begin(&[]);
            let link = node.find(&other.wire.hear());
            node.works(&link);
            other.signal(libc::SIGSTOP);
            drop(link);
            let memory = node.transport.allocate(PAGE, Rights::FULL).unwrap();
            drop(memory);
            let third = Node::open();
            node.works(&node.know(&third));
            other.signal(libc::SIGCONT);
            other.wire.say(b"end");
            other.ends();
        },
        |mut wire| {
            let node = Node::open();
            wire.say(&node.name());
            assert_eq!(wire.hear(), b"end");
        },
    );
}
