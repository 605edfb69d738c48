//! Connections of strangers, and peers that send wrong messages.

use std::os::unix::net::UnixStream;

use rustix::process::{Resource, getrlimit, setrlimit};
use unipgas_core::driver::Driven;
use unipgas_core::streams::StreamNode;

use super::*;
use crate::network::SocketStreams;

/// A process, and a second process that has connected to it.
fn two() -> (Node, Node, RemoteRegion) {
    let (node, other) = Node::two();
    let region = other.import(&node);
    (node, other, region)
}

#[test]
fn who_says_nothing_makes_room_for_others() {
    // Both ends of the connections are in this process, and the soft limit is mostly 1024.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.current.map(|soft| soft.max(2048));
    setrlimit(Resource::Nofile, limit).unwrap();
    let (node, other, region) = two();
    let (first, greeting) = End::silent(&node);
    first.say(&greeting[1..]);
    let mut peers: Vec<_> = (0..5).map(|_| End::greeted(&node)).collect();
    // As many silent connections as a process keeps.
    let silent: Vec<_> = (0..512).map(|_| End::silent(&node).0).collect();
    first.await_end();
    peers.push(End::greeted(&node));
    peers.iter_mut().for_each(End::check_served);
    other.reaches(&region);
    drop(silent);
}

#[test]
fn who_makes_no_sense_is_closed_and_nobody_else_is() {
    let (node, other, region) = two();
    let mut peer = End::greeted(&node);
    let unknown = {
        let mut bytes = vec![0; size_of::<RequestHeader>()];
        bytes.extend(4u32.to_le_bytes());
        bytes.extend([0xff; 4]);
        bytes
    };
    for bytes in [vec![0xff; 64], unknown] {
        let mut end = End::greeted(&node);
        end.check_served();
        end.say(&bytes);
        end.await_end();
        peer.check_served();
        other.reaches(&region);
    }
}

#[test]
fn regions_are_imported_whole() {
    let (node, other, region) = two();
    let mut end = End::greeted(&node);
    let key = node.memory.key();
    let word = |at: usize| u32::from_le_bytes(key[at..at + 4].try_into().unwrap());
    let place = RegisteredPlace {
        slot: word(0),
        generation: word(4),
        offset: 0,
    };
    end.ask(1, &Request::Import { place });
    assert!(matches!(end.next_answer(1), Answer::Done(_)));
    for offset in [1, 8, u64::MAX] {
        let place = RegisteredPlace { offset, ..place };
        end.ask(2, &Request::Import { place });
        assert!(matches!(end.next_answer(2), Answer::Failed(_)));
    }
    // The owner reports the end of an imported region once.
    let Node {
        channel,
        memory,
        transport,
    } = node;
    std::thread::scope(|scope| {
        scope.spawn(|| drop(memory));
        assert_eq!(end.next_answer(0), Answer::Released(place));
        end.ask(0, &Request::Forgotten { place });
    });
    assert!(!region.is_current());
    drop((channel, transport, other));
    assert_eq!(end.next_answer(0), Answer::Leaving);
    end.await_end();
}

#[test]
fn an_offset_beyond_all_memory_is_a_failure() {
    let mut options = StreamsOptions::default();
    // So that puts are written in parts.
    options.limits.lines = false;
    let node = Node::open(options);
    let mut end = End::greeted(&node);
    let to = RegisteredPlace {
        slot: 0,
        generation: 1,
        offset: u64::MAX - 15,
    };
    let put = Request::Put {
        to,
        bytes: &[1; 64],
        flags: Flags::empty(),
        notice: None,
    };
    end.ask(1, &put);
    assert!(matches!(end.next_answer(1), Answer::Failed(_)));
    end.check_served();
}

impl Listens for StreamNode {
    fn address(&self) -> Vec<u8> {
        self.network().address().to_vec()
    }
}

/// Takes turns until `end` is readable.
fn drive_until_heard(home: &StreamNode, end: &End) {
    let can_be_read = |end: &End| {
        let mut polled = [PollFd::new(&end.socket, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    };
    while !can_be_read(end) {
        await_input(home);
        home.drive();
    }
}

/// Takes turns until no turn is due.
fn drive_until_rest(home: &StreamNode) {
    let limit = Deadline::after(Duration::from_secs(LIMIT_SECONDS as u64));
    let mut polled = [PollFd::new(home, PollFlags::IN)];
    while poll(&mut polled, Some(&Timespec::default())).unwrap() > 0 {
        assert!(!limit.expired(), "it never rests");
        home.drive();
    }
}

/// Uses up all free descriptors.
fn take_all() -> Vec<OwnedFd> {
    let (one, _) = UnixStream::pair().unwrap();
    let mut all: Vec<OwnedFd> =
        std::iter::from_fn(|| one.try_clone().ok().map(OwnedFd::from)).collect();
    all.push(one.into());
    all
}

#[test]
fn without_a_descriptor_a_guest_waits_and_nobody_spins() {
    let alone = std::thread::spawn(|| {
        // SAFETY:
        // - this thread gets its own descriptor table. It closes only descriptors that it opens.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let home = StreamNode::open(
            Arc::new(SocketStreams::listen(StreamsOptions::default(), Arc::default()).unwrap()),
            None,
        )
        .unwrap();
        let (mut peer, greeting) = End::silent(&home);
        let mut taken = take_all();
        drive_until_rest(&home);
        peer.say(&greeting);
        peer.ask(7, &Request::Import { place: PLACE });
        taken.pop();
        drive_until_heard(&home, &peer);
        assert!(matches!(peer.next_answer(7), Answer::Failed(_)));
        // A silent connection is closed before others have to wait.
        drop(taken);
        let (silent, _) = End::silent(&home);
        drive_until_rest(&home);
        let mut other = End::greeted(&home);
        other.ask(7, &Request::Import { place: PLACE });
        let _taken = take_all();
        drive_until_heard(&home, &other);
        assert!(matches!(other.next_answer(7), Answer::Failed(_)));
        silent.await_end();
    });
    alone.join().unwrap();
}
