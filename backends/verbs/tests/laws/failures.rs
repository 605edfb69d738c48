//! Devices, ports and cables that fail while a process uses them.

use unipgas_core::Error;
use unipgas_core::transport::{Life, Transport};

use crate::deaths::{check_dead, until_refused};
use crate::device::inject;
use crate::node::{Node, open, until};
use crate::process::{ProcessPipe, alone, test_of, with_others_as};

/// The number of lines for the user that contain `what`.
fn lines(told: &str, what: &str) -> usize {
    let all = told.lines();
    all.filter(|line| line.starts_with("unipgas: verbs: ") && line.contains(what))
        .count()
}

/// A fault meets this process's device while it communicates with another process. Both sides detect it. Then calls `then`.
fn cut(verbs: &str, what: &str, then: impl FnOnce(Node)) -> Option<String> {
    with_others_as(
        test_of(&then),
        verbs,
        &[],
        |others| {
            let node = Node::open();
            let (link, mut other) = node.meet(others);
            node.works(&link);
            assert_eq!(other.wire.hear(), b"begins");
            let (why, _) = std::thread::scope(|scope| {
                let ends = scope.spawn(|| until_refused(&node, &link));
                (0..500).for_each(|_| std::thread::yield_now());
                inject(what);
                ends.join().unwrap()
            });
            assert!(matches!(why, Error::PeerDead | Error::StaleRegion), "{why}");
            // No later operation of the other process changes the memory.
            let before: Vec<u64> = (0..64)
                .map(|nth| node.word(nth * 8).load(std::sync::atomic::Ordering::SeqCst))
                .collect();
            assert_eq!(other.wire.hear(), b"over");
            let after: Vec<u64> = (0..64)
                .map(|nth| node.word(nth * 8).load(std::sync::atomic::Ordering::SeqCst))
                .collect();
            assert_eq!(before, after);
            check_dead(&node, &link, Life::Dead);
            drop(link);
            then(node);
            other.wire.say(b"end");
            other.ends();
        },
        |mut wire: ProcessPipe| {
            let (node, to) = Node::join(&mut wire);
            node.works(&to);
            wire.say(b"begins");
            let (why, _) = until_refused(&node, &to);
            assert!(matches!(why, Error::PeerDead | Error::StaleRegion), "{why}");
            check_dead(&node, &to, Life::Dead);
            wire.say(b"over");
            // The other process can still use its device.
            node.works(&node.know(&Node::open()));
            assert_eq!(wire.hear(), b"end");
        },
    )
}

#[test]
fn a_cable_is_pulled() {
    cut("", "silence", |node| {
        // The process and its device exist, but the device does not answer.
        let other = open();
        let found = node.transport.connect(&other.address());
        if let Ok(peer) = found {
            until(&node.transport, || peer.life() != Life::Alive);
        }
    });
}

#[test]
fn a_port_goes_down() {
    let told = cut("", "port_down", |node| {
        inject("port_up");
        node.works(&node.know(&Node::open()));
    });
    if let Some(told) = told {
        assert_eq!(lines(&told, "double0 port 1"), 2, "{told}");
    }
}

#[test]
fn a_device_dies() {
    let told = cut("", "device_fatal", |node| {
        // Each connect reports the failed device.
        let other = node.transport.address();
        for _ in 0..3 {
            let error = node.transport.connect(&other).map(drop).unwrap_err();
            assert!(error.to_string().contains("double0"), "{error}");
        }
        let refused = node.transport.allocate(4096, unipgas_core::Rights::FULL);
        println!("{:?}", refused.map(drop));
    });
    if let Some(told) = told {
        assert_eq!(lines(&told, "has failed"), 1, "{told}");
    }
}

#[test]
fn a_queue_pair_dies() {
    alone("", || {
        let (node, other) = (Node::open(), Node::open());
        let link = node.know(&other);
        node.works(&link);
        // The first queue pair may belong to either node.
        inject("qp_fatal");
        until_refused(&node, &link);
        check_dead(&node, &link, Life::Dead);
        drop(link);
        let link = node.know(&other);
        node.works(&link);
        let back = other.know(&node);
        other.works(&back);
    });
}

/// Changes of another port, by the subnet manager or the administrator, affect no process and are not reported.
#[test]
fn another_port_changes() {
    let told = alone("link=eth,ports=2", || {
        let (node, other) = (Node::open(), Node::open());
        let link = node.know(&other);
        node.works(&link);
        for what in ["gid_change=2", "port_down=2", "lid_change=2"] {
            inject(what);
            (0..50).for_each(|_| node.works(&link));
        }
        other.works(&other.know(&node));
    });
    if let Some(told) = told {
        assert_eq!(lines(&told, "port"), 0, "{told}");
    }
}

/// The subnet manager gives a port another LID. Later connections use it.
#[test]
fn a_port_has_another_lid_from_now_on() {
    alone("", || {
        let (node, other) = (Node::open(), Node::open());
        inject("lid_change");
        node.works(&node.know(&other));
        other.works(&other.know(&node));
    });
}

#[test]
fn a_change_of_its_own_port_is_told_once() {
    let told = alone("", || {
        let node = Node::open();
        for what in ["port_down", "port_up", "lid_change", "gid_change"] {
            inject(what);
        }
        // Making a connection takes turns in which events are read.
        let other = Node::open();
        let _ = node.transport.connect_within(
            &other.transport.address(),
            unipgas_core::Deadline::after(std::time::Duration::from_secs(2)),
        );
    });
    if let Some(told) = told {
        for what in [
            "port error",
            "port active",
            "LID change",
            "GID table change",
        ] {
            assert_eq!(lines(&told, what), 1, "{what}: {told}");
        }
    }
}
