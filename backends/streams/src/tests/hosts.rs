//! Hosts that do not answer, and stopped processes with hosts that do.

use std::process::Command;
use std::sync::mpsc;

use rustix::net::listen;
use rustix::thread::gettid;
use unipgas_core::Error;
use unipgas_core::transport::Life;

use super::*;

fn tcp() -> StreamsOptions {
    StreamsOptions {
        tcp: true,
        ..StreamsOptions::default()
    }
}

/// Number of connection requests to `port` without an answer.
fn unanswered(port: u16) -> usize {
    let to = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let calls = table.lines().filter(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[2].ends_with(&to) && fields[3] == "02"
    });
    calls.count()
}

#[test]
fn who_does_not_answer_a_call_is_dead_and_others_are_reached_meanwhile() {
    // The backlog is full, so the kernel drops further connection requests.
    let played = Played::open(true);
    listen(&played.0.socket, 0).unwrap();
    let address = played.0.address.clone();
    let [.., low, high] = address[..] else {
        panic!("an address has a port")
    };
    let port = u16::from_le_bytes([low, high]);
    let calls: Vec<_> = (0..8).map(|_| stream::reach(&address).unwrap()).collect();
    let before = unanswered(port);
    assert!(before > 0);
    let node = Arc::new(Node::open(tcp()));
    let caller = std::thread::spawn({
        let node = node.clone();
        move || node.transport.connect(&address).map(drop)
    });
    while unanswered(port) == before && !caller.is_finished() {
        std::thread::yield_now();
    }
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let other = Node::open(tcp());
        node.reaches(&node.import(&other));
        tell.send(()).unwrap();
    });
    // The limit only ends a test that hangs.
    let limit = Duration::from_secs(60);
    told.recv_timeout(limit).expect("others are reached");
    assert_eq!(caller.join().unwrap(), Err(Error::PeerDead));
    drop(calls);
}

#[test]
fn where_nobody_listens_nobody_is_reached() {
    let node = Node::open(tcp());
    for tcp in [false, true] {
        let nobody = Played::open(tcp).0.address;
        let called = node.transport.connect(&nobody).map(drop);
        assert_eq!(called, Err(Error::PeerDead));
    }
}

#[test]
fn a_process_that_has_stopped_is_not_dead() {
    let mut node = Node::open(tcp());
    node.memory = node.transport.allocate(1 << 20, Rights::FULL).unwrap();
    let played = Played::open(true);
    let (region, mut end) = played.known_to(&node, 1 << 20);
    // More bytes than the kernels on the way buffer.
    let puts = 0..32;
    for context in puts.clone() {
        node.put(&region, 1 << 20, Flags::empty(), context);
    }
    // Not a limit: time in which a wrong detection would show.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(node.connect(&played.0.address).life(), Life::Alive);
    for context in puts {
        let (head, message) = end.next::<RequestHeader>();
        assert!(matches!(
            Request::decode(&message),
            Ok(Request::Put { bytes, .. }) if bytes.len() == 1 << 20
        ));
        end.answer(head.number, &Answer::Done(Vec::new()));
        assert_eq!(node.next_end(), (context, Ok(())));
    }
}

/// Moves this thread to a new network namespace, and sets it up with `ip`. False: this is not possible here.
fn become_host(ip: &[&str]) -> bool {
    // SAFETY:
    // - this thread gets its own network namespace. Nothing else changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return false;
    }
    ip.iter().all(|line| tell(line))
}

/// Runs `ip` in the network namespace of this thread.
fn tell(line: &str) -> bool {
    let done = Command::new("ip").args(line.split_whitespace()).status();
    done.is_ok_and(|status| status.success())
}

#[test]
fn a_host_that_vanishes_is_noticed_with_work_under_way_and_without() {
    let (up, is_up) = mpsc::channel();
    let (tell_address, address) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let (vanished, has_vanished) = mpsc::channel();
    let there = std::thread::spawn(move || {
        let made = is_up.recv().is_ok_and(|tid: i32| {
            let pair = format!("link add here type veth peer name there netns {tid}");
            become_host(&[&pair, "addr add 10.99.0.2/24 dev here", "link set here up"])
        });
        let node = made.then(|| Node::open(tcp()));
        let key = node
            .as_ref()
            .map(|node| (node.address(), node.memory.key()));
        tell_address.send(key).unwrap();
        while let Ok(()) = ends.recv() {
            assert!(tell("link set here down"));
            vanished.send(()).unwrap();
        }
    });
    let here = std::thread::spawn(move || {
        let made = become_host(&[]);
        up.send(if made {
            gettid().as_raw_nonzero().get()
        } else {
            -1
        })
        .unwrap();
        let Some((address, key)) = address.recv().unwrap() else {
            eprintln!("left out: no hosts can be made here");
            return;
        };
        assert!(tell("addr add 10.99.0.1/24 dev there") && tell("link set there up"));
        let (node, idle) = (Node::open(tcp()), Node::open(tcp()));
        let import = |node: &Node| {
            let peer = node.connect(&address);
            let region = peer.import(&key, Deadline::Never).unwrap();
            node.reaches(&region);
            (peer, region)
        };
        let ((peer, region), (other, kept)) = (import(&node), import(&idle));
        end.send(()).unwrap();
        has_vanished.recv().unwrap();
        // One node sends at once, the other one is idle.
        node.put(&region, 8, Flags::empty(), 1);
        assert_eq!(node.next_end(), (1, Err(Error::PeerDead)));
        assert_eq!(peer.life(), Life::Dead);
        while other.life() == Life::Alive {
            std::thread::yield_now();
        }
        assert!(!kept.is_current());
        drop(end);
    });
    let here = here.join();
    there.join().unwrap();
    here.unwrap();
}
