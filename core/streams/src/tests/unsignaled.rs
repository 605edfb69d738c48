//! Operations of a network's own with a common completion.

use super::own::{Operation, Queue, with_undriven};
use super::*;
use crate::After;

/// Context of the operation that confirms the others.
const ASK: u64 = 1000;
/// Context of gathered operations.
const CONTEXT: u64 = 7;

impl Node {
    fn gather(&self, region: &RemoteRegion, refused: bool) -> Option<Result<u32>> {
        let post = || match refused {
            true => Err(Error::NotNow),
            false => Ok(()),
        };
        (self.channel).try_gather(region, 5, After::empty(), CONTEXT, post)
    }

    fn ask(&self, queue: &Queue) {
        self.channel.ask_for_gathered(|to| {
            assert_eq!(to, 5);
            Operation {
                queue: queue.clone(),
                context: ASK,
            }
        });
    }
}

#[test]
fn one_says_for_all_before_it_that_they_have_ended() {
    let (node, other) = pair(WireKind::default());
    let region = node.import(&other);
    let queue = Queue::default();
    node.ask(&queue);
    assert_eq!(queue.contexts(), [0; 0]);
    for count in 1..=3 {
        assert_eq!(node.gather(&region, false), Some(Ok(count)));
    }
    // An operation with another context is not gathered.
    let other_context =
        (node.channel).try_gather(&region, 5, After::empty(), CONTEXT + 1, || Ok(()));
    assert_eq!(other_context, None);
    // Nor is a refused one.
    assert_eq!(node.gather(&region, true), Some(Err(Error::NotNow)));
    assert_eq!(node.channel.pending(), 3);
    node.ask(&queue);
    node.ask(&queue);
    assert_eq!(queue.contexts(), [ASK]);
    // The confirmation does not cover later operations.
    assert_eq!(node.gather(&region, false), Some(Ok(1)));
    assert!(queue.take(ASK).end(Ok(())));
    assert_eq!(
        node.next_ends(3),
        [(CONTEXT, Ok(())), (CONTEXT, Ok(())), (CONTEXT, Ok(()))]
    );
    assert_eq!(node.channel.pending(), 1);
    queue.0.lock().refuses = 1;
    node.ask(&queue);
    assert_eq!(queue.contexts(), [0; 0]);
    node.ask(&queue);
    assert!(queue.take(ASK).end(Err(Error::AccessDenied)));
    assert_eq!(node.next_ends(1), [(CONTEXT, Err(Error::AccessDenied))]);
    assert_eq!(node.channel.pending(), 0);
}

#[test]
fn many_are_enough() {
    let kind = WireKind {
        limits: Limits {
            depth: 40,
            ..Limits::NONE
        },
        ..WireKind::default()
    };
    let (node, other) = (Node::open(kind), Node::open(WireKind::default()));
    let region = node.import(&other);
    let queue = Queue::default();
    for nth in 1..=40 {
        let count = node.gather(&region, false).unwrap().unwrap();
        assert_eq!(count, (nth - 1) % 10 + 1);
        if count >= node.channel.most_gathered {
            node.ask(&queue);
        }
    }
    assert_eq!(queue.contexts(), [ASK; 4]);
    // Other operations have their own room.
    let full = Queue::default();
    for _ in 0..40 {
        assert!(full.post(&node, &region, After::empty(), false, 2).is_ok());
    }
    for _ in 0..40 {
        full.take(2).end(Ok(()));
    }
    for _ in 0..4 {
        queue.take(ASK).end(Ok(()));
    }
    assert_eq!(node.next_ends(80).len(), 80);
    for _ in 0..4096 {
        node.gather(&region, false).unwrap().unwrap();
    }
    assert_eq!(node.gather(&region, false), Some(Err(Error::NotNow)));
}

#[test]
fn they_end_with_their_peer() {
    for asked in [false, true] {
        let (node, home, _, region) = with_undriven(WireKind::default());
        let queue = Queue::default();
        for _ in 0..2 {
            node.gather(&region, false).unwrap().unwrap();
        }
        if asked {
            node.ask(&queue);
            node.gather(&region, false).unwrap().unwrap();
        }
        drop(home);
        node.streams.end_all();
        let many = if asked { 3 } else { 2 };
        let ends = node.next_ends(many);
        assert_eq!(ends, vec![(CONTEXT, Err(Error::PeerDead)); many]);
        assert_eq!(node.channel.pending(), 0);
        assert_eq!(node.gather(&region, false), Some(Err(Error::PeerDead)));
        node.ask(&queue);
        assert_eq!(queue.contexts().len(), usize::from(asked));
    }
}

#[test]
fn a_release_does_not_wait_for_somebody_to_ask() {
    let (node, home, _, region) = with_undriven(WireKind::default());
    let place = crate::registration::place(&region, 0);
    node.gather(&region, false).unwrap().unwrap();
    assert!(home.registered().close(place));
    home.releases.begin(place);
    wait_for(|| {
        home.drive();
        home.releases.is_over(place)
    });
    assert_eq!(node.gather(&region, false), Some(Err(Error::StaleRegion)));
    assert_eq!(node.channel.pending(), 1);
}
