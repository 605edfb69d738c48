//! Order and completion of a network's own operations among requests.

use parking_lot::Mutex;
use unipgas_engine::op::PutRequest;

use super::*;
use crate::{After, NetworkOp, Ticket};

/// The operations that the network has got.
#[derive(Default)]
pub(super) struct Handed {
    tickets: Vec<(u64, Ticket)>,
    /// Number of operations to refuse.
    pub refuses: usize,
}

#[derive(Clone, Default)]
pub(super) struct Queue(pub Arc<Mutex<Handed>>);

pub(super) struct Operation {
    pub queue: Queue,
    pub context: u64,
}

impl NetworkOp for Operation {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let mut handed = self.queue.0.lock();
        if handed.refuses > 0 {
            handed.refuses -= 1;
            return Err(Error::NotNow);
        }
        handed.tickets.push((self.context, ticket));
        Ok(())
    }
}

impl Queue {
    pub fn post(
        &self,
        node: &Node,
        region: &RemoteRegion,
        after: After,
        reads: bool,
        context: u64,
    ) -> Result<Outcome> {
        let own = Operation {
            queue: self.clone(),
            context,
        };
        node.channel.post_own(region, own, reads, after, context)
    }

    /// Posts an operation that reads nothing.
    pub fn begin(&self, node: &Node, region: &RemoteRegion, after: After, context: u64) {
        let posted = self.post(node, region, after, false, context);
        assert_eq!(posted, Ok(Outcome::Pending));
    }

    pub(crate) fn contexts(&self) -> Vec<u64> {
        let handed = self.0.lock();
        handed.tickets.iter().map(|(context, _)| *context).collect()
    }

    pub fn take(&self, context: u64) -> Ticket {
        let mut handed = self.0.lock();
        let at = handed
            .tickets
            .iter()
            .position(|(found, _)| *found == context);
        handed
            .tickets
            .remove(at.expect("it has been handed over"))
            .1
    }
}

/// A process that only makes progress by its caller, and the key of its memory.
fn undriven(kind: WireKind) -> (StreamNode, Vec<u8>) {
    let home = StreamNode::open(Wires::new(kind), None).unwrap();
    let memory = Box::leak(Box::new([0u64; LEN / 8]));
    let told = OWN.to_le_bytes().to_vec();
    // SAFETY:
    // - leaked, without another user.
    let place = unsafe {
        home.registered()
            .open(memory.as_mut_ptr().cast(), LEN, Rights::FULL, told)
    };
    let mut key = place.slot.to_le_bytes().to_vec();
    key.extend(place.generation.to_le_bytes());
    (home, key)
}

/// A process, an undriven one, the key of its memory, and the region of that key.
pub(super) fn with_undriven(kind: WireKind) -> (Node, StreamNode, Vec<u8>, RemoteRegion) {
    let node = Node::open(kind);
    let (home, key) = undriven(kind);
    let region = imported(&node, &home, &key).unwrap();
    (node, home, key, region)
}

/// The region, imported by `node`.
fn imported(node: &Node, home: &StreamNode, key: &[u8]) -> Result<RemoteRegion> {
    std::thread::scope(|scope| {
        let import = scope.spawn(|| node.import_key(home, key));
        while !import.is_finished() {
            home.drive();
            std::thread::yield_now();
        }
        import.join().unwrap()
    })
}

#[test]
fn they_leave_at_once_and_end_once() {
    let (node, other) = pair(WireKind::default());
    let region = node.import(&other);
    let queue = Queue::default();
    for context in 1..4 {
        queue.begin(&node, &region, After::all(), context);
        assert_eq!(queue.contexts(), [context]);
        assert!(queue.take(context).end(Ok(())));
        assert_eq!(node.next_ends(1), [(context, Ok(()))]);
    }
    queue.0.lock().refuses = 1;
    // A refused operation waits. The next one waits behind it.
    for context in [7, 8] {
        queue.begin(&node, &region, After::empty(), context);
    }
    assert_eq!(queue.contexts(), [0; 0]);
    assert_eq!(node.channel.pending(), 2);
    node.channel.poll(&mut |_| {});
    assert_eq!(queue.contexts(), [7, 8]);
    queue.take(7).end(Ok(()));
    queue.take(8).end(Err(Error::AccessDenied));
    let ends = [(7, Ok(())), (8, Err(Error::AccessDenied))];
    assert_eq!(node.next_ends(2), ends);
}

#[test]
fn they_wait_for_what_was_asked_before() {
    let (node, home, _, region) = with_undriven(WireKind::default());
    for (after, read) in [
        (After::READS, true),
        (After::ANSWERED, false),
        (After::ANSWERED | After::SENT, true),
    ] {
        let queue = Queue::default();
        match read {
            true => node.get(&region, 8, 1),
            false => node.put(&region, 8, Flags::empty(), 1),
        }
        queue.begin(&node, &region, After::empty(), 2);
        queue.begin(&node, &region, after, 3);
        // Waits behind the operation before.
        queue.begin(&node, &region, After::empty(), 4);
        node.put(&region, 8, Flags::empty(), 5);
        assert_eq!(queue.contexts(), [2]);
        node.channel.poll(&mut |end| panic!("{end:?}"));
        assert_eq!(queue.contexts(), [2]);
        home.drive();
        // No poll is needed.
        wait_for(|| queue.contexts() == [2, 3, 4]);
        for context in [2, 3, 4] {
            assert!(queue.take(context).end(Ok(())));
        }
        let ends = node.next_ends_while(5, || home.drive());
        assert!(ends.iter().map(|end| end.0).eq(1..6), "{ends:?}");
        assert!(ends.iter().all(|end| end.1 == Ok(())), "{ends:?}");
    }
}

#[test]
fn they_wait_until_bytes_have_left() {
    let kind = WireKind {
        room: 1 << 10,
        ..WireKind::default()
    };
    let (node, home, _, region) = with_undriven(kind);
    let queue = Queue::default();
    node.put(&region, 1 << 14, Flags::empty(), 1);
    queue.begin(&node, &region, After::SENT, 2);
    assert!(queue.contexts().is_empty());
    wait_for(|| {
        home.drive();
        !queue.contexts().is_empty()
    });
    assert!(queue.take(2).end(Ok(())));
    let ends = node.next_ends_while(2, || home.drive());
    assert_eq!(ends, [(1, Ok(())), (2, Ok(()))]);
}

#[test]
fn requests_wait_for_them_where_the_network_says_so() {
    for (waits_for, reads, waits) in [
        (After::READS, false, false),
        (After::READS, true, true),
        (After::READS | After::OWN, false, true),
    ] {
        let kind = WireKind {
            waits_for,
            ..WireKind::default()
        };
        let (node, other) = pair(kind);
        let region = node.import(&other);
        let queue = Queue::default();
        node.word(0).store(5, Ordering::Relaxed);
        queue
            .post(&node, &region, After::empty(), reads, 1)
            .unwrap();
        node.put(&region, 4, Flags::ORDERED, 2);
        node.word(0).store(6, Ordering::Relaxed);
        if waits {
            // A request of another channel need not wait. Its answer comes first.
            let aside = node.streams.open_channel().unwrap();
            let to = region.at(8);
            // SAFETY:
            // - in bounds of memory that outlives the operation.
            unsafe { aside.put(&PutRequest::new(node.local(8), to, 4), Flags::empty(), 9) }
                .unwrap();
            wait_for(|| {
                aside.poll(&mut |_| {});
                aside.pending() == 0
            });
            assert_eq!(other.word(0).load(Ordering::Acquire), 0);
        } else {
            wait_for(|| other.word(0).load(Ordering::Acquire) == 5);
        }
        assert!(queue.take(1).end(Ok(())));
        node.streams.tell_of_end();
        // No poll is needed.
        let put = if waits { 6 } else { 5 };
        wait_for(|| other.word(0).load(Ordering::Acquire) == put);
        assert_eq!(node.next_ends(2), [(1, Ok(())), (2, Ok(()))]);
    }
}

#[test]
fn what_has_waited_is_tried_again_while_there_is_no_room() {
    let (node, other) = pair(WireKind::default());
    let region = node.import(&other);
    let queue = Queue::default();
    queue.post(&node, &region, After::empty(), true, 1).unwrap();
    queue.begin(&node, &region, After::READS, 2);
    queue.begin(&node, &region, After::empty(), 3);
    assert_eq!(queue.contexts(), [1]);
    let first = queue.take(1);
    queue.0.lock().refuses = 3;
    assert!(first.end(Ok(())));
    for _ in 0..3 {
        let before = queue.0.lock().refuses;
        node.streams.tell_of_end();
        wait_for(|| queue.0.lock().refuses < before);
    }
    node.streams.tell_of_end();
    wait_for(|| queue.contexts() == [2, 3]);
    assert!(queue.take(3).end(Ok(())) && queue.take(2).end(Ok(())));
    assert_eq!(node.next_ends(3).len(), 3);
    assert_eq!(node.channel.pending(), 0);
}

#[test]
fn the_loss_of_the_peer_ends_each_once() {
    let (node, home, _, region) = with_undriven(WireKind::default());
    let other = Node::open(WireKind::default());
    let aside = node.import(&other);
    let queue = Queue::default();
    let after = After::all();
    queue.post(&node, &region, After::empty(), true, 1).unwrap();
    queue.begin(&node, &region, After::empty(), 2);
    node.get(&region, 8, 3);
    // These operations have not left.
    queue.begin(&node, &region, after, 4);
    node.put(&region, 8, Flags::empty(), 5);
    queue.begin(&node, &aside, after, 6);
    assert_eq!(queue.contexts(), [1, 2, 6]);
    assert!(queue.take(2).end(Ok(())));
    crate::registration::link_of(&region)
        .unwrap()
        .stream()
        .end();
    home.drive();
    node.streams.node().wake();
    let ends = node.next_ends(5);
    let dead = || Err(Error::PeerDead);
    let expected = [
        (1, dead()),
        (2, Ok(())),
        (3, dead()),
        (4, dead()),
        (5, dead()),
    ];
    assert_eq!(ends, expected);
    // The network's completion comes too late.
    assert!(!queue.take(1).end(Ok(())));
    assert_eq!(queue.contexts(), [6]);
    assert_eq!(node.channel.pending(), 1);
    assert!(queue.take(6).end(Ok(())));
    assert_eq!(node.next_ends(1), [(6, Ok(()))]);
    let refused = queue.post(&node, &region, after, false, 7);
    assert_eq!(refused, Err(Error::PeerDead));
}

#[test]
fn the_depth_is_that_of_both_kinds() {
    let kind = WireKind {
        limits: Limits {
            depth: 2,
            ..Limits::NONE
        },
        ..WireKind::default()
    };
    let (node, home, _, region) = with_undriven(kind);
    let queue = Queue::default();
    node.put(&region, 8, Flags::empty(), 1);
    queue.begin(&node, &region, After::empty(), 2);
    let third = queue.post(&node, &region, After::empty(), false, 3);
    assert_eq!(third, Err(Error::NotNow));
    assert!(queue.take(2).end(Ok(())));
    assert_eq!(node.next_ends(1), [(2, Ok(()))]);
    queue.begin(&node, &region, After::empty(), 3);
    assert!(queue.take(3).end(Ok(())));
    let ends = node.next_ends_while(2, || home.drive());
    assert_eq!(ends, [(1, Ok(())), (3, Ok(()))]);
}

#[test]
fn what_is_released_stays_until_they_are_no_more_at_it() {
    let (node, home, key, region) = with_undriven(WireKind::default());
    let place = crate::registration::place(&region, 0);
    let queue = Queue::default();
    queue.begin(&node, &region, After::empty(), 1);
    queue.0.lock().refuses = 1;
    queue.begin(&node, &region, After::empty(), 2);
    assert!(home.registered().close(place));
    home.releases.begin(place);
    home.drive();
    // The release precedes the owner's refusal.
    let again = imported(&node, &home, &key).map(drop);
    assert_eq!(again, Err(Error::StaleRegion));
    assert!(!home.releases.is_over(place));
    // An operation on the released region fails, at once or after a wait.
    let late = queue.post(&node, &region, After::empty(), false, 3);
    assert!(matches!(late, Ok(Outcome::Pending)) || late == Err(Error::StaleRegion));
    node.streams.tell_of_end();
    let mut ends = node.next_ends(if late.is_ok() { 2 } else { 1 });
    assert!(ends.drain(..).all(|end| end.1 == Err(Error::StaleRegion)));
    assert_eq!(queue.contexts(), [1]);
    assert!(!home.releases.is_over(place));
    assert!(queue.take(1).end(Ok(())));
    node.streams.tell_of_end();
    wait_for(|| {
        home.drive();
        home.releases.is_over(place)
    });
    assert_eq!(node.next_ends(1), [(1, Ok(()))]);
}
