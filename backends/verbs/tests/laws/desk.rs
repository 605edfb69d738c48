//! The port for new connections is open to all programs on the network.

use std::net::{Shutdown, TcpStream};

use unipgas_core::transport::Transport;

use crate::many::limit_descriptors;
use crate::node::Node;
use crate::process::{alone, test_of, with_others_as};
use crate::raw::{Door, is_closed, say, verdict};

const WELCOME: u16 = 0;
const STRANGER: u16 = 1;
const OTHER_VERSION: u16 = 2;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A process listens, and another process connects incorrectly. Correct connections must work then and later.
fn knocks(verbs: &str, knock: impl FnOnce(&Door)) {
    with_others_as(
        test_of(&knock),
        verbs,
        &[],
        |begun| {
            let node = Node::open();
            let before = descriptors();
            let mut other = begun.begin(&[]);
            other.wire.say(&node.name());
            assert_eq!(other.wire.hear(), b"knocked");
            let good = Node::open();
            good.works(&good.know(&node));
            drop(good);
            other.wire.say(b"end");
            assert_eq!(other.wire.hear(), b"gone");
            node.works(&node.know(&Node::open()));
            // The descriptors of the other process's connections are closed soon.
            crate::node::until(&node.transport, || descriptors() <= before + 8);
            other.ends();
        },
        |mut wire| {
            limit_descriptors(None);
            let name = wire.hear();
            let door = Door::of(&name[8..]);
            knock(&door);
            wire.say(b"knocked");
            assert_eq!(wire.hear(), b"end");
            wire.say(b"gone");
        },
    );
}

#[test]
fn garbage_is_refused() {
    knocks("", |door| {
        for len in [1, 8, 100, 160, 4096, 1 << 20] {
            let mut socket = door.connect();
            let garbage: Vec<u8> = (0..len).map(|nth: u32| (nth * 7 + 3) as u8).collect();
            say(&mut socket, &garbage);
            let _ = socket.shutdown(Shutdown::Write);
            assert!(is_closed(&mut socket), "{len}");
        }
        // Another magic number, another version, and an invalid length of the address.
        let right = door.opening(5, 8);
        for (at, value, said) in [
            (0, 0, None),
            (8, 0xff, Some(OTHER_VERSION)),
            (11, 0xff, Some(OTHER_VERSION)),
        ] {
            let mut opening = right.clone();
            opening[at] = value;
            let mut socket = door.connect();
            say(&mut socket, &opening);
            assert_eq!(verdict(&mut socket), said, "{at}");
            assert!(is_closed(&mut socket));
        }
    });
}

#[test]
fn a_stranger_is_refused() {
    knocks("max_qp=24", |door| {
        for nth in 0..16 {
            let mut other = door.opening(5, 8);
            other[48 + nth] ^= 1;
            let mut socket = door.connect();
            say(&mut socket, &other);
            assert_eq!(verdict(&mut socket), Some(STRANGER));
            assert!(is_closed(&mut socket));
        }
    });
}

#[test]
fn who_says_half_keeps_nobody_out() {
    let mut kept = Vec::new();
    knocks("max_qp=24", |door| {
        let opening = door.opening(5, 8);
        for len in (0..160).step_by(10) {
            let mut socket = door.connect();
            say(&mut socket, &opening[..len]);
            kept.push(socket);
        }
        // The bytes arrive one by one.
        let mut socket = door.connect();
        for byte in &opening {
            say(&mut socket, &[*byte]);
        }
        assert_eq!(verdict(&mut socket), Some(WELCOME));
    });
}

#[test]
fn thousands_who_say_nothing_keep_nobody_out() {
    let mut kept: Vec<TcpStream> = Vec::new();
    knocks("", |door| {
        kept.extend((0..3000).map(|_| door.connect()));
    });
}

#[test]
fn who_goes_after_the_opening_leaves_nothing_behind() {
    knocks("max_qp=24", |door| {
        for nth in 1..400 {
            let mut socket = door.connect();
            say(&mut socket, &door.opening(nth, 8));
            if nth % 2 == 0 {
                let _ = verdict(&mut socket);
            }
            if nth % 4 == 0 {
                say(&mut socket, b"R");
            }
        }
        // A connection succeeds once all earlier ones are handled.
        loop {
            let mut socket = door.connect();
            say(&mut socket, &door.opening(1, 8));
            if verdict(&mut socket) == Some(WELCOME) {
                break;
            }
        }
    });
}

#[test]
fn who_promises_too_much_does_no_harm() {
    let mut kept: Vec<TcpStream> = Vec::new();
    knocks("", |door| {
        for credits in [0, u32::MAX] {
            let mut socket = door.connect();
            say(&mut socket, &door.opening(9, credits));
            assert_eq!(verdict(&mut socket), Some(WELCOME));
            // A correct peer sends only this byte.
            say(&mut socket, b"R");
            say(&mut socket, &[b'R'; 4096]);
            kept.push(socket);
        }
    });
}

/// Another program listens at the address of a process that has ended, or never existed.
#[test]
fn what_answers_nonsense_is_not_a_peer() {
    alone("", || {
        let node = Node::open();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let own = node.transport.address();
        let served = std::thread::spawn(move || {
            for nth in 0..3 {
                let (mut socket, _) = listener.accept().unwrap();
                match nth {
                    0 => {}
                    1 => say(&mut socket, &[7; 100]),
                    _ => say(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
                }
                let _ = socket.shutdown(Shutdown::Write);
                assert!(nth == 0 || !is_closed(&mut socket));
            }
        });
        for nth in 0..3 {
            let door = Door {
                at,
                secret: [nth; 16],
                ..Door::of(&own)
            };
            let found = node.transport.connect(&door.address()).map(drop);
            println!("{found:?}");
            assert!(found.is_err());
        }
        served.join().unwrap();
        node.works(&node.know(&Node::open()));
    });
}
