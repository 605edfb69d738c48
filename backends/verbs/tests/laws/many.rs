//! Many connections: memory of each, and the limit of file descriptors.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unipgas_core::transport::{Life, Transport};

use crate::node::{Node, until};
use crate::process::{ProcessPipe, with_others, with_others_on};
use crate::raw::{Door, say, verdict};

pub fn limit_descriptors(most: Option<u64>) {
    let limit = getrlimit(Resource::Nofile);
    let current = most.or(limit.maximum);
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// A value of /proc/self/status in KiB.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

const PROCESSES: usize = 10;
const EACH: usize = 100;
const ALL: usize = PROCESSES * EACH;
/// Limit of resident and of locked memory for each connection. A queue pair, its socket in the double and its receive buffers take 24 KiB. The rest is
/// for other allocators and kernels.
const MOST_KIB: u64 = 64;

#[test]
fn a_thousand_connections() {
    let size = (ALL + 1).to_string();
    let job = [
        ("UNIPGAS_JOB", "many"),
        ("UNIPGAS_RANK", "0"),
        ("UNIPGAS_SIZE", size.as_str()),
    ];
    with_others_on(
        "",
        &job,
        |others| {
            limit_descriptors(None);
            let node = Node::open();
            // The first connection allocates the common parts.
            let first = Node::open();
            first.works(&first.know(&node));
            let kinds = ["VmRSS", "VmLck", "VmPin", "VmData"];
            let before = kinds.map(memory);
            let mut all: Vec<_> = (0..PROCESSES).map(|_| others.begin(&[])).collect();
            for other in &mut all {
                other.wire.say(&node.name());
                assert_eq!(other.wire.hear(), b"all work");
            }
            for (kind, before) in kinds.iter().zip(before) {
                let more = memory(kind) - before;
                println!(
                    "{kind}: {more} KiB more for {ALL} connections, {} bytes each",
                    more * 1024 / ALL as u64
                );
                assert!(*kind == "VmData" || more <= MOST_KIB * ALL as u64, "{kind}");
            }
            first.works(&first.know(&node));
            for other in &mut all {
                other.wire.say(b"again");
                assert_eq!(other.wire.hear(), b"all work");
            }
        },
        |mut wire| {
            limit_descriptors(None);
            let name = wire.hear();
            let nodes: Vec<Node> = (0..EACH).map(|_| Node::open()).collect();
            let links: Vec<_> = nodes.iter().map(|node| node.find(&name)).collect();
            loop {
                for (nth, (node, link)) in nodes.iter().zip(&links).enumerate() {
                    let at = 8 * (1 + nth);
                    node.put(link, 0, at, 8, unipgas_core::Flags::empty())
                        .unwrap();
                    assert_eq!(node.settle(), []);
                    node.tell(link, at, at, 1, unipgas_core::Flags::empty())
                        .unwrap();
                    assert_eq!(node.settle(), []);
                }
                wire.say(b"all work");
                if wire.try_hear().is_none() {
                    return;
                }
            }
        },
    );
}

/// A low limit of descriptors.
const FEW: u64 = 256;
const MANY: usize = 300;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Connects without the backend, to queue pairs that do not exist: the double opens sockets for existing ones.
fn crowd(door: &Door) -> Vec<TcpStream> {
    (0..MANY as u32)
        .map(|nth| {
            let mut socket = door.connect();
            say(&mut socket, &door.opening(nth, 8));
            assert_eq!(verdict(&mut socket), Some(0), "{nth}");
            say(&mut socket, b"R");
            socket
        })
        .collect()
}

#[test]
fn more_connections_than_descriptors() {
    with_others_on(
        "",
        &[
            ("UNIPGAS_JOB", "many"),
            ("UNIPGAS_RANK", "0"),
            ("UNIPGAS_SIZE", "400"),
        ],
        |others| {
            limit_descriptors(Some(FEW));
            let node = Node::open();
            let early = Node::open();
            let to_early = node.know(&early);
            let mut other = others.begin(&[]);
            other.wire.say(&node.name());
            assert_eq!(other.wire.hear(), b"crowded");
            assert!(descriptors() < FEW as usize * 3 / 4, "{}", descriptors());
            node.works(&to_early);
            let mut late = others.begin(&[("VERBS_TEST_LATE", "1")]);
            late.wire.say(&node.name());
            let to_late = node.find(&late.wire.hear());
            assert_eq!(late.wire.hear(), b"works");
            node.works(&to_late);
            // A peer without a socket may die, too: a liveness check finds it.
            late.kill();
            until(&node.transport, || to_late.peer.life() == Life::Dead);
            node.works(&to_early);
            other.wire.say(b"end");
            assert_eq!(other.wire.hear(), b"kept");
            // In this part, this process connects.
            for (nth, key) in (0..MANY).zip(1u64..) {
                let mut secret = [0; 16];
                secret[..8].copy_from_slice(&key.to_ne_bytes());
                let mut door = Door::of(&other.wire.hear());
                door.secret = secret;
                other.wire.say(b"go");
                let found = node.transport.connect(&door.address()).map(drop);
                assert_eq!(found, Ok(()), "{nth}");
            }
            assert!(descriptors() < FEW as usize * 3 / 4, "{}", descriptors());
            node.works(&to_early);
            node.works(&node.know(&Node::open()));
        },
        |mut wire| {
            let name = wire.hear();
            if std::env::var_os("VERBS_TEST_LATE").is_some() {
                return join_late(wire, &name);
            }
            limit_descriptors(None);
            let door = Door::of(&name[8..]);
            let mut all = crowd(&door);
            wire.say(b"crowded");
            assert_eq!(wire.hear(), b"end");
            // Some sockets are closed, and their peers know that the connection stays. The other sockets are open.
            let mut gone = 0;
            for socket in &mut all {
                socket.set_nonblocking(true).unwrap();
                let mut said = [0; 8];
                match socket.read(&mut said) {
                    Ok(1) => {
                        assert_eq!(said[0], b'S');
                        gone += 1;
                    }
                    Ok(count) => panic!("{count} bytes"),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
            println!("{gone} of {MANY} sockets are closed");
            assert!(gone > MANY / 3 && gone < MANY);
            wire.say(b"kept");
            answer_strangers(&mut wire, door);
        },
    );
}

/// A peer that connects without a free descriptor here waits until one is free.
#[test]
fn who_comes_while_there_is_no_descriptor_waits() {
    with_others(
        |others| {
            limit_descriptors(Some(FEW));
            let node = Node::open();
            let mut other = others.begin(&[]);
            let mut taken = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
            other.wire.say(&node.name());
            assert_eq!(other.wire.hear(), b"knocks");
            // The connection may exist already, or arrive later.
            (0..2000).for_each(|_| {
                node.transport.progress();
                std::thread::yield_now();
            });
            // This process cannot connect either, and reports the reason.
            let door = Door {
                secret: [1; 16],
                ..Door::of(&node.transport.address())
            };
            let error = node.transport.connect(&door.address()).map(drop);
            let text = error.unwrap_err().to_string();
            assert!(text.contains("open files"), "{text}");
            drop(taken);
            assert_eq!(other.wire.hear(), b"works");
            other.ends();
        },
        |mut wire| {
            let node = Node::open();
            let name = wire.hear();
            wire.say(b"knocks");
            node.works(&node.find(&name));
            wire.say(b"works");
        },
    );
}

fn join_late(mut wire: ProcessPipe, name: &[u8]) {
    let node = Node::open();
    let to = node.find(name);
    node.works(&to);
    wire.say(&node.name());
    wire.say(b"works");
    until(&node.transport, || to.peer.life() != Life::Alive);
}

/// A listener without a process, which answers like one.
fn answer_strangers(wire: &mut ProcessPipe, own: Door) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = Door {
        at: listener.local_addr().unwrap(),
        ..own
    };
    let mut kept = Vec::new();
    for nth in 0..MANY as u32 {
        wire.say(&door.address());
        assert_eq!(wire.hear(), b"go");
        let (mut socket, _) = listener.accept().unwrap();
        let mut opening = [0; 160];
        socket.read_exact(&mut opening).unwrap();
        say(&mut socket, &door.answer(nth));
        let mut ready = [0];
        socket.read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"R");
        kept.push(socket);
    }
    assert!(wire.try_hear().is_none());
}
