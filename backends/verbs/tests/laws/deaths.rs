//! Peers that end in each way. Operations with them end, too, and other peers continue.

use unipgas_core::transport::{Life, Transport};
use unipgas_core::{Error, Flags, Outcome};

use crate::node::{Node, PeerLink, until};
use crate::process::{OtherProcesses, ProcessPipe, with_others};

/// Writes and reads as fast as possible until an operation is refused. Returns the error, and the errors of the other operations.
pub fn until_refused(node: &Node, to: &PeerLink) -> (Error, Vec<Error>) {
    let mut failed = Vec::new();
    let mut nth = 0;
    loop {
        nth += 1;
        let posted = match nth % 4 {
            0 => node.put(to, 0, 4096, 4096, Flags::empty()),
            1 => node.get(to, 4096, 8192, 4096),
            2 => node.tell(to, 8, 16, nth, Flags::GATHERED),
            _ => match node.tell_quickly(to, 8, 24, nth) {
                true => Ok(Outcome::Pending),
                false => Err(Error::NotNow),
            },
        };
        let ends = node.ends();
        failed.extend(ends.into_iter().filter_map(|end| end.result.err()));
        match posted {
            Ok(_) => {}
            Err(Error::NotNow) => std::thread::yield_now(),
            Err(error) => {
                let rest = node.settle();
                failed.extend(rest.into_iter().filter_map(|end| end.result.err()));
                return (error, failed);
            }
        }
    }
}

/// Checks that the peer is dead: all operations have ended, and new ones fail.
pub fn check_dead(node: &Node, to: &PeerLink, life: Life) {
    // If no event reports the death, a liveness check finds it.
    until(&node.transport, || to.peer.life() != Life::Alive);
    assert_eq!(to.peer.life(), life);
    let (why, failed) = until_refused(node, to);
    for error in failed.iter().chain([&why]) {
        assert!(
            matches!(error, Error::PeerDead | Error::StaleRegion),
            "{error}"
        );
    }
    assert!(!to.region.is_current());
    while node.channel.quick_failure().is_some() {}
    assert_eq!(
        (node.channel.pending(), node.channel.quick_pending()),
        (0, 0)
    );
}

/// A process that other processes can find. It ends in the way that the message names.
fn other(mut wire: ProcessPipe) {
    let (node, to) = Node::join(&mut wire);
    if wire.hear() == b"drop" {
        drop(to);
        drop(node);
        return;
    }
    node.transport.leave();
    // SAFETY:
    // - the call ends the process, which needs none of its state again.
    unsafe { libc::_exit(0) };
}

#[test]
fn one_that_goes_has_left() {
    for how in ["drop", "leave"] {
        let first = |others: &OtherProcesses| {
            for _ in 0..20 {
                let node = Node::open();
                let (link, mut other) = node.meet(others);
                node.works(&link);
                other.wire.say(how.as_bytes());
                check_dead(&node, &link, Life::Left);
                other.ends();
            }
        };
        with_others(first, other);
    }
}
