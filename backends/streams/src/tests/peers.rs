//! Slow and refusing peers, and their effect on others.

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::Error;
use unipgas_core::agent::wire::LONGEST;
use unipgas_core::op::{GetRequest, PutRequest};
use unipgas_core::transport::Life;

use super::*;

#[test]
fn only_operations_to_the_peer_that_is_read_from_wait() {
    let (node, other) = Node::two();
    let there = node.import(&other);
    let slow = Played::open(false);
    let (region, mut end) = slow.known_to(&node, LEN);
    node.get(&region, 8, 1);
    // This peer has no request in progress.
    node.put(&there, 8, Flags::ORDERED, 2);
    assert_eq!(node.next_end(), (2, Ok(())));
    // This operation waits, and so does the next one to the same peer. Operations to other peers do not.
    node.put(&region, 8, Flags::ORDERED, 3);
    node.put(&region, 8, Flags::empty(), 4);
    node.put(&there, 8, Flags::empty(), 5);
    assert_eq!(node.next_end(), (5, Ok(())));
    node.put(&there, 8, Flags::ORDERED, 6);
    assert_eq!(node.next_end(), (6, Ok(())));
    let (head, message) = end.next::<RequestHeader>();
    assert!(matches!(
        Request::decode(&message),
        Ok(Request::Get { len: 8, .. })
    ));
    end.answer(head.number, &Answer::Done(vec![9; 8]));
    assert_eq!(node.next_end(), (1, Ok(())));
    for context in [3, 4] {
        let (head, message) = end.next::<RequestHeader>();
        assert!(
            matches!(Request::decode(&message), Ok(Request::Put { bytes, .. }) if bytes == [9; 8])
        );
        end.answer(head.number, &Answer::Done(Vec::new()));
        assert_eq!(node.next_end(), (context, Ok(())));
    }
}

#[test]
fn what_is_refused_is_current_for_nobody() {
    let node = Node::open(StreamsOptions::default());
    let played = Played::open(false);
    let (region, mut end) = played.known_to(&node, LEN);
    assert!(region.is_current());
    let peer = node.connect(&played.0.address);
    std::thread::scope(|scope| {
        let import = scope.spawn(|| peer.import(&Played::key(), Deadline::Never).map(drop));
        let number = end.next_import();
        end.answer(number, &Answer::Failed((&Error::StaleRegion).into()));
        assert_eq!(import.join().unwrap(), Err(Error::StaleRegion));
    });
    assert!(!region.is_current());
}

#[test]
fn an_import_without_an_answer_does_not_hide_the_end_from_others() {
    let node = Node::open(StreamsOptions::default());
    let played = Played::open(false);
    let (region, mut end) = played.known_to(&node, LEN);
    let peer = node.connect(&played.0.address);
    let import = peer.import(&Played::key(), Deadline::Now).map(drop);
    assert_eq!(import, Err(Error::Timeout));
    end.next_import();
    assert!(region.is_current());
    end.answer(0, &Answer::Released(PLACE));
    let (_, message) = end.next::<RequestHeader>();
    let forgotten = Request::Forgotten { place: PLACE };
    assert_eq!(Request::decode(&message), Ok(forgotten));
    assert!(!region.is_current());
}

#[test]
fn what_no_frame_carries_is_refused_and_harms_nobody() {
    let node = Node::open(StreamsOptions::default());
    let limits = node.transport.capabilities().limits;
    // Comparands double the length.
    assert!(2 * limits.largest <= LONGEST);
    let played = Played::open(false);
    let (region, mut end) = played.known_to(&node, 8 << 30);
    let to = region.at(0);
    for len in [limits.largest + 1, LONGEST + 1, (4 << 30) + 8] {
        let put = PutRequest::new(node.local(), to, len);
        let get = GetRequest::new(node.local(), to, len);
        // SAFETY:
        // - the calls refuse the length before they use the shorter memory.
        let refused = unsafe {
            [
                node.channel.put(&put, Flags::empty(), 1),
                node.channel.get(&get, Flags::empty(), 1),
            ]
        };
        assert_eq!(refused, [const { Err(Error::Unsupported) }; 2], "{len}");
    }
    assert_eq!(node.channel.pending(), 0);
    node.put(&region, 8, Flags::empty(), 2);
    let (head, _) = end.next::<RequestHeader>();
    end.answer(head.number, &Answer::Done(Vec::new()));
    assert_eq!(node.next_end(), (2, Ok(())));
}

#[test]
fn an_answer_that_nobody_waits_for_ends_that_stream_only() {
    let (node, other) = Node::two();
    let there = node.import(&other);
    let played = Played::open(false);
    let (region, end) = played.known_to(&node, LEN);
    node.put(&region, 8, Flags::empty(), 1);
    end.answer(1 << 40, &Answer::Done(Vec::new()));
    assert_eq!(node.next_end(), (1, Err(Error::PeerDead)));
    end.await_end();
    assert!(!region.is_current());
    assert_eq!(node.connect(&other.address()).life(), Life::Alive);
    node.reaches(&there);
}

#[test]
fn nobody_has_to_poll_for_what_is_ordered_after_a_read() {
    let (node, other) = Node::two();
    let region = node.import(&other);
    let word = |of: &Node, at: usize| {
        // SAFETY:
        // - in bounds and aligned, and mapped as long as the test.
        unsafe { AtomicU64::from_ptr(of.memory.base().add(at).cast()) }
    };
    word(&other, 0).store(77, Ordering::Release);
    node.get(&region, 8, 1);
    // Sends the word that the get has read.
    let put = PutRequest::new(node.local(), region.at(8), 8);
    // SAFETY:
    // - in bounds of the source, which outlives the put.
    let posted = unsafe { node.channel.put(&put, Flags::ORDERED, 2) };
    assert_eq!(posted, Ok(Outcome::Pending));
    while word(&other, 8).load(Ordering::Acquire) != 77 {
        std::thread::yield_now();
    }
    while node.channel.pending() > 0 {
        node.channel.poll(&mut |end| end.result.unwrap());
    }
}
