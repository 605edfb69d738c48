//! Two agents in one process, over a network in memory.

mod own;
mod unsignaled;
pub mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use self::wire::{WireKind, Wires};
use super::envelope::{self, RequestHeader};
use super::greeting::{SECRET, greeting};
use super::{EventReceiver, Requests, Stream, StreamEnded, StreamNode, StreamTransport};
use unipgas_base::driver::Driven;
use unipgas_base::{AtomicOp, AtomicType, Deadline, Error, Result, Rights};
use unipgas_engine::agent::{Answer, RegisteredPlace, Request};
use unipgas_engine::inbox::{self, InboxLayout, InboxReader, Record};
use unipgas_engine::op::{GetRequest, PutRequest, ReplyBuffer};
use unipgas_engine::region::Memory;
use unipgas_engine::transport::{Channel, Handler, Life, Limits, Transport};
use unipgas_engine::{AtomicRequest, Flags, Local, Notice, Outcome, RemoteRegion};

const LEN: usize = 1 << 16;
/// The network's part of keys.
const OWN: u64 = 0x1234_5678_9abc;

fn limit() -> Deadline {
    // Only ends a test that hangs.
    Deadline::after(Duration::from_secs(60))
}

/// A process with all parts.
struct Node {
    channel: Requests,
    memory: Box<dyn Memory>,
    streams: StreamTransport<Wires>,
}

impl Node {
    fn open(kind: WireKind) -> Node {
        let wires = Wires::new(kind);
        let streams = StreamTransport::open(wires, &EventReceiver::default(), None).unwrap();
        let requests = Requests::new(streams.node(), streams.node().limits().depth);
        Node {
            channel: requests,
            memory: streams.allocate(LEN, Rights::FULL).unwrap(),
            streams,
        }
    }

    fn local(&self, offset: usize) -> Local {
        Local {
            ptr: self.memory.base().wrapping_add(offset),
            desc: self.memory.desc(),
        }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= LEN && offset.is_multiple_of(4));
        // SAFETY:
        // - in bounds and aligned. The memory lives as long as the node.
        unsafe { AtomicU32::from_ptr(self.local(offset).ptr.cast()) }
    }

    fn import(&self, other: &Node) -> RemoteRegion {
        self.import_key(other.streams.node(), &other.memory.key())
            .unwrap()
    }

    fn import_key(&self, other: &StreamNode, key: &[u8]) -> Result<RemoteRegion> {
        let peer = self
            .streams
            .connect_within(other.network().address(), limit())?;
        peer.import(key, limit())
    }

    fn put(&self, region: &RemoteRegion, len: usize, flags: Flags, context: u64) {
        assert!(len <= LEN);
        let put = PutRequest::new(self.local(0), region.at(0), len);
        // SAFETY:
        // - the source has this length, and outlives the operation: the owner waits for all completions before its drop.
        let posted = unsafe { self.channel.put(&put, flags, context) };
        assert_eq!(posted, Ok(Outcome::Pending));
    }

    fn get(&self, region: &RemoteRegion, len: usize, context: u64) {
        assert!(len <= LEN);
        let get = GetRequest::new(self.local(0), region.at(0), len);
        // SAFETY:
        // - as for `put`.
        let posted = unsafe { self.channel.get(&get, Flags::empty(), context) };
        assert_eq!(posted, Ok(Outcome::Pending));
    }

    /// The next completions, ordered by context.
    fn next_ends(&self, many: usize) -> Vec<(u64, Result<()>)> {
        self.next_ends_while(many, || {})
    }

    /// As `next_ends`. `part` makes progress elsewhere.
    fn next_ends_while(&self, many: usize, mut part: impl FnMut()) -> Vec<(u64, Result<()>)> {
        let mut ends = Vec::new();
        let limit = limit();
        while ends.len() < many {
            assert!(!limit.expired(), "nothing ends");
            part();
            self.channel
                .poll(&mut |end| ends.push((end.context, end.result)));
            std::thread::yield_now();
        }
        ends.sort_by_key(|end| end.0);
        ends
    }
}

fn pair(kind: WireKind) -> (Node, Node) {
    (Node::open(kind), Node::open(kind))
}

/// Waits until `done`, without a poll.
fn wait_for(mut done: impl FnMut() -> bool) {
    let limit = limit();
    while !done() {
        assert!(!limit.expired(), "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn requests_reach_memory_and_end_with_their_answers() {
    let (node, other) = pair(WireKind::default());
    let region = node.import(&other);
    assert_eq!((region.len(), region.parts().rights), (LEN, Rights::FULL));
    assert_eq!(region.parts().detail[1], OWN);
    let at = |offset| region.at(offset);
    node.word(0).store(77, Ordering::Relaxed);
    other.word(8).store(5, Ordering::Relaxed);
    let add = AtomicRequest {
        op: AtomicOp::Sum,
        ty: AtomicType::U32,
        count: 1,
        operand: (&raw const ADD).cast(),
        compare: std::ptr::null(),
        result: node.local(12).ptr,
    };
    static ADD: u32 = 3;
    let notice = Notice {
        slot: at(16),
        value: 9,
    };
    let put = PutRequest::new(node.local(0), at(4), 4).with(notice);
    let get = GetRequest::new(node.local(20), at(8), 4);
    let (channel, desc) = (&node.channel, node.memory.desc());
    // SAFETY:
    // - in bounds of memory that outlives the operations.
    let posted = unsafe {
        [
            channel.put(&put, Flags::empty(), 1),
            channel.atomic(at(8), &add, desc, Flags::ORDERED, 2),
            channel.get(&get, Flags::ORDERED, 3),
        ]
    };
    assert_eq!(posted, [const { Ok(Outcome::Pending) }; 3]);
    assert_eq!(node.next_ends(3), [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
    let [data, sum, told] = [4, 8, 16].map(|at| other.word(at).load(Ordering::Acquire));
    assert_eq!((data, sum, told), (77, 8, 9));
    let [before, after] = [12, 20].map(|at| node.word(at).load(Ordering::Acquire));
    assert_eq!((before, after), (5, 8));
    assert_eq!(node.channel.pending(), 0);
}

/// An inbox of this size, and its only reader. The reader must be dropped first.
fn inbox_of(node: &Node, places: usize) -> (Box<dyn Memory>, InboxReader) {
    let len = InboxLayout::new(places).unwrap().size();
    let memory = node.streams.allocate(len, Rights::FULL).unwrap();
    // SAFETY:
    // - zeroed memory of sufficient length, which outlives the reader. There is no other reader.
    let reader = unsafe {
        inbox::initialise_zeroed(memory.base(), places).unwrap();
        InboxReader::attach(memory.base(), memory.len()).unwrap()
    };
    (memory, reader)
}

#[test]
fn a_record_comes_with_the_bytes_before_it_or_not_at_all() {
    const PLACES: usize = 2;
    let (node, other) = pair(WireKind::default());
    let region = node.import(&other);
    let (memory, mut reader) = inbox_of(&other, PLACES);
    let home = other.streams.node();
    let inbox = node.import_key(home, &memory.key()).unwrap();
    let put = |offset, nth: u32| {
        // Taken in the call, so it needs no registration.
        let bytes = nth.to_le_bytes().repeat(25);
        let src = Local::unregistered(bytes.as_ptr().cast_mut());
        let dst = region.at(offset);
        let record = Record {
            value: nth.into(),
            ..Record::default()
        };
        let (flags, to) = (Flags::LINES, (&inbox).into());
        // SAFETY:
        // - 100 bytes are valid until the call returns.
        unsafe {
            let put = PutRequest::new(src, dst, 100);
            (node.channel).put_deliver(&put, to, record, flags, nth.into())
        }
    };
    let word = |at| other.word(at).load(Ordering::Acquire);
    for nth in [1, 2, 3] {
        assert_eq!(put(40, nth), Ok(Outcome::Pending));
    }
    let full = (3, Err(Error::InboxFull));
    assert_eq!(node.next_ends(3), [(1, Ok(())), (2, Ok(())), full]);
    assert_eq!([40, 136].map(word), [3, 3]);
    for nth in [1, 2] {
        assert_eq!(reader.take().map(|record| record.value), Some(nth));
    }
    // Out of bounds: no bytes and no record.
    assert!(matches!(put(LEN - 99, 4), Err(Error::OutOfBounds { .. })));
    // The memory has gone, but this process may not know: no bytes and no record.
    let gone = node.import(&other);
    let Node { memory: bytes, .. } = other;
    drop(bytes);
    drop(gone);
    match put(40, 5) {
        Ok(_) => assert_eq!(node.next_ends(1), [(5, Err(Error::StaleRegion))]),
        Err(error) => assert_eq!(error, Error::StaleRegion),
    }
    assert_eq!(reader.take(), None);
}

#[test]
fn what_is_chained_to_a_record_that_was_refused_does_not_overtake_it() {
    const PLACES: usize = 4;
    let (node, other) = pair(WireKind::default());
    let (memory, mut reader) = inbox_of(&other, PLACES);
    let inbox = node
        .import_key(other.streams.node(), &memory.key())
        .unwrap();
    let deliver = |nth: u64, flags: Flags| {
        let record = Record {
            value: nth,
            ..Record::default()
        };
        let flags = flags | Flags::ORDERED;
        let posted = node.channel.deliver((&inbox).into(), record, flags, nth);
        assert_eq!(posted, Ok(Outcome::Pending));
    };
    let (none, chained) = (Flags::empty(), Flags::CHAINED);
    let full = |nth| (nth, Err(Error::InboxFull));
    for nth in 1..=6 {
        deliver(nth, if nth == 1 { none } else { chained });
    }
    let taken = (1..=4).map(|nth| (nth, Ok(())));
    let ends: Vec<_> = taken.chain([full(5), full(6)]).collect();
    assert_eq!(node.next_ends(6), ends);
    let mut read = || std::iter::from_fn(|| reader.take().map(|one| one.value)).collect::<Vec<_>>();
    assert_eq!(read(), [1, 2, 3, 4]);
    // There is room, but the chain is broken.
    (6..=7).for_each(|nth| deliver(nth, chained));
    assert_eq!(node.next_ends(2), [full(6), full(7)]);
    deliver(5, none);
    (6..=7).for_each(|nth| deliver(nth, chained));
    assert_eq!(node.next_ends(3), [(5, Ok(())), (6, Ok(())), (7, Ok(()))]);
    assert_eq!(read(), [5, 6, 7]);
}

/// Replies with the message, twice.
struct Echo;

impl Handler for Echo {
    fn handle(
        &self,
        _: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        reply.extend_from_slice(message);
        reply.extend_from_slice(message);
        if message.is_empty() { Err(4) } else { Ok(()) }
    }
}

#[test]
fn messages_are_answered_over_streams_that_are_always_full() {
    let kind = WireKind {
        room: 7,
        ..WireKind::default()
    };
    let (node, other) = pair(kind);
    other.memory.handle_by(Arc::new(Echo)).unwrap();
    let region = node.import(&other);
    let to = region.at(0);
    for round in 0..20 {
        // SAFETY:
        // - in bounds of memory that outlives the operation.
        let reply = unsafe { ReplyBuffer::new(node.memory.base(), 8) };
        let message = [round; 4];
        node.channel
            .active_message(to, &message, reply, Flags::empty(), 1)
            .unwrap();
        node.channel
            .active_message(to, &[], ReplyBuffer::NONE, Flags::empty(), 2)
            .unwrap();
        let refused = Err(Error::Refused(4));
        assert_eq!(node.next_ends(2), [(1, Ok(())), (2, refused)]);
        let answer = u64::from_ne_bytes([round; 8]);
        let words = [0, 4].map(|at| node.word(at).load(Ordering::Acquire));
        assert_eq!(words, [answer as u32; 2]);
    }
}

#[test]
fn a_release_and_a_leave_are_told_and_nobody_is_dead() {
    let (node, other) = pair(WireKind::default());
    let region = node.import(&other);
    let peer = node
        .streams
        .connect_within(&other.streams.address(), limit())
        .unwrap();
    assert!(region.is_current());
    let Node {
        channel,
        memory,
        streams,
    } = other;
    let key = memory.key();
    // Returns when all importers know.
    drop(memory);
    assert!(!region.is_current());
    assert_eq!(
        peer.import(&key, limit()).map(drop),
        Err(Error::StaleRegion)
    );
    assert_eq!(peer.life(), Life::Alive);
    drop((channel, streams));
    wait_for(|| peer.life() == Life::Left);
}

/// A greeting, and a request that has an answer.
fn asking(secret: &[u8; SECRET]) -> Vec<u8> {
    let place = RegisteredPlace {
        slot: 9,
        generation: 9,
        offset: 0,
    };
    let mut said = greeting(secret, b"somewhere").to_vec();
    let head = RequestHeader {
        number: 1,
        channel: 0,
        ordered: 0,
    };
    let request = Request::Import { place };
    envelope::frame(&mut said, head, |into| request.encode(into)).unwrap();
    said
}

#[test]
fn who_leaves_says_so_and_ends_his_streams() {
    let node = Node::open(WireKind::default());
    let end = node.streams.begin();
    let said = asking(&node.streams.node().network().secret());
    assert_eq!(end.push(&said), Ok(said.len()));
    let mut come = Vec::new();
    wait_for(|| {
        end.pull(&mut come).unwrap();
        envelope::first::<u64>(&come).unwrap().is_some()
    });
    come.clear();
    drop(node);
    assert_eq!(end.pull(&mut come), Err(StreamEnded));
    let (number, message, len) = envelope::first::<u64>(&come).unwrap().expect("whole");
    let answer = Answer::decode(message).unwrap().0;
    assert_eq!((number, answer, len), (0, Answer::Leaving, come.len()));
}

#[test]
fn a_network_that_trusts_needs_no_greeting() {
    let kind = WireKind {
        trusts: true,
        ..WireKind::default()
    };
    let (node, other) = pair(kind);
    let (there, back) = (node.import(&other), other.import(&node));
    node.put(&there, 8, Flags::empty(), 1);
    other.put(&back, 8, Flags::empty(), 2);
    assert_eq!(node.next_ends(1), [(1, Ok(()))]);
    assert_eq!(other.next_ends(1), [(2, Ok(()))]);
}

#[test]
fn others_have_to_know_the_secret() {
    let wires = Wires::new(WireKind::default());
    let home = StreamNode::open(wires.clone(), None).unwrap();
    for right in [true, false] {
        let end = wires.begin();
        let mut secret = home.network().secret();
        secret[SECRET - 1] ^= u8::from(!right);
        let said = asking(&secret);
        assert_eq!(end.push(&said), Ok(said.len()));
        home.drive();
        let mut come = Vec::new();
        let pulled = end.pull(&mut come);
        assert_eq!((pulled.is_ok(), !come.is_empty()), (right, right));
        if right {
            let (number, message, _) = envelope::first::<u64>(&come).unwrap().expect("whole");
            let answer = Answer::decode(message).unwrap().0;
            assert!(number == 1 && matches!(answer, Answer::Failed(_)));
        }
    }
}

#[test]
fn memory_that_is_not_registered_is_refused_where_it_has_to_be() {
    let kind = WireKind {
        limits: Limits {
            registered: true,
            inline: 4,
            ..Limits::NONE
        },
        ..WireKind::default()
    };
    let (node, other) = pair(kind);
    let region = node.import(&other);
    let to = region.at(0);
    let wrong = Local {
        desc: node.local(0).desc + 1,
        ..node.local(0)
    };
    let put = |src, flags| {
        // SAFETY:
        // - as for `put`.
        unsafe { node.channel.put(&PutRequest::new(src, to, 4), flags, 1) }
    };
    assert_eq!(put(wrong, Flags::empty()), Err(Error::NotRegistered));
    assert_eq!(put(wrong, Flags::INLINE), Ok(Outcome::Pending));
    assert_eq!(put(node.local(0), Flags::empty()), Ok(Outcome::Pending));
    assert_eq!(node.next_ends(2).len(), 2);
}
