//! Fuzzing of the bytes that a guest, a peer without a greeting, or an answering peer sends.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::completion::{Completions, Kind};
use super::envelope::{self, Answered, RequestHeader};
use super::greeting::{ADDRESS, SECRET, greeting, padded};
use super::inbound_peer::{By, InboundPeer};
use super::landing::Landing;
use super::link::{Ends, Link, Waiting};
use super::network::{Accepted, Begun, Network, ProgressEvents, Stream, StreamEnded};
use super::stream_node::StreamNode;
use unipgas_base::fenced::Fenced;
use unipgas_base::{AtomicOp, AtomicType, Error, Result, Rights};
use unipgas_engine::agent::{Answer, Carried, Elements, RegisteredPlace, Request};
use unipgas_engine::inbox::{self, InboxLayout, Record};
use unipgas_engine::op::ReplyBuffer;
use unipgas_engine::transport::Handler;
use unipgas_engine::{Flags, Local};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[
    ("guest", guest, guests),
    ("stranger", stranger, strangers),
    ("answers", answers, all_answers),
];

const KNOWN: [u8; SECRET] = [7; SECRET];
const LEN: usize = 4096;
const PLACES: usize = 4;

/// A network without peers.
struct Nowhere;

impl Network for Nowhere {
    fn address(&self) -> &[u8] {
        b"here"
    }
    fn secret(&self) -> [u8; SECRET] {
        KNOWN
    }
    fn reach(&self, _: &[u8]) -> Result<Begun> {
        Err(Error::PeerDead)
    }
    fn accept(&self) -> Result<Option<Accepted>> {
        Ok(None)
    }
    fn events(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
    fn progress(&self, _: bool, _: bool) -> ProgressEvents {
        ProgressEvents {
            streams: true,
            guests: false,
            ended: false,
        }
    }
}

/// A stream that delivers pieces and then ends. It takes all bytes it is given.
struct Pieces(Mutex<Vec<Vec<u8>>>);

impl Pieces {
    /// Three pieces. The first byte gives their lengths.
    fn of(bytes: &[u8]) -> Arc<Self> {
        let cut = bytes.first().map_or(0, |first| usize::from(*first));
        let (first, rest) = bytes.split_at(cut.min(bytes.len()));
        let (second, third) = rest.split_at(rest.len() / 2);
        Arc::new(Pieces(Mutex::new(
            [third, second, first].map(<[u8]>::to_vec).to_vec(),
        )))
    }
}

impl Stream for Pieces {
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, StreamEnded> {
        Ok(bytes.len())
    }
    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), StreamEnded> {
        into.extend(self.0.lock().pop().ok_or(StreamEnded)?);
        Ok(())
    }
    fn want_room(&self, _: bool) {}
    fn end(&self) {}
}

/// Replies with the message.
struct Echo;

impl Handler for Echo {
    fn handle(
        &self,
        at: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32> {
        reply.extend_from_slice(message);
        if at == 0 { Ok(()) } else { Err(at as u32) }
    }
    fn is_plain(&self, message: &[u8]) -> bool {
        message.len().is_multiple_of(2)
    }
}

fn serve(bytes: &[u8], known: bool) {
    let node = StreamNode::open(Arc::new(Nowhere), None).expect("descriptors");
    let mut memories = [
        (Fenced::new(LEN), Rights::FULL),
        (Fenced::new(100), Rights::READ),
        (Fenced::new(100), Rights::FULL | Rights::EXCLUSIVE),
        (
            Fenced::new(InboxLayout::new(PLACES).expect("a power of two").size()),
            Rights::FULL,
        ),
    ];
    // SAFETY:
    // - the memory is as long as the layout needs, and has no other user.
    unsafe { inbox::initialise(memories[3].0.base(), PLACES) }.expect("aligned");
    for (memory, rights) in &mut memories {
        let (base, len) = (memory.base(), memory.len());
        // SAFETY:
        // - the memory outlives the node.
        let place = unsafe { node.registered().open(base, len, *rights, vec![1, 2, 3]) };
        node.registered().handle_by(place, Arc::new(Echo));
    }
    let accepted = Accepted {
        stream: Pieces::of(bytes),
        known: known.then(|| padded(b"there")),
    };
    let mut guest = InboundPeer::new(accepted, &node);
    let mut by = [By::Driver, By::Waiter].into_iter().cycle();
    while guest.turn(&node, false, by.next().unwrap_or(By::Driver)) {}
    drop(node);
    memories.iter_mut().for_each(|(memory, _)| memory.check());
}

/// Requests of a peer that has sent a greeting.
fn guest(bytes: &[u8]) {
    serve(bytes, true);
}

/// As [`guest`], with the greeting.
fn stranger(bytes: &[u8]) {
    serve(bytes, false);
}

fn requests() -> Vec<Request<'static>> {
    let place = |slot, offset| RegisteredPlace {
        slot,
        generation: 1,
        offset,
    };
    let elements = |op, ty, count: u32, operand: &'static [u8], compare: &'static [u8]| Elements {
        op,
        ty,
        count,
        operand,
        compare,
        fetch: true,
    };
    static BYTES: [u8; 64] = [5; 64];
    let put = |chained, first| Request::Deliver {
        put: Some(Carried {
            to: place(0, 64),
            bytes: &BYTES[..40],
            flags: Flags::LINES,
        }),
        first,
        second: Some(place(3, 0)),
        overflow: Some(place(0, 8)),
        record: Record::default(),
        chained,
    };
    vec![
        Request::Put {
            to: place(0, 16),
            bytes: &BYTES,
            flags: Flags::ORDERED | Flags::LINES,
            notice: Some((place(0, 4), 9)),
        },
        Request::Put {
            to: place(2, 90),
            bytes: &BYTES[..10],
            flags: Flags::empty(),
            notice: None,
        },
        Request::Notify {
            slot: place(0, 8),
            value: 3,
        },
        Request::Get {
            from: place(1, 50),
            len: 50,
            flags: Flags::LINES,
        },
        Request::Atomic {
            to: place(0, 16),
            elements: elements(
                AtomicOp::Cswap,
                AtomicType::U64,
                2,
                &BYTES[..16],
                &BYTES[..16],
            ),
            flags: Flags::WAKE,
        },
        Request::Atomic {
            to: place(2, 16),
            elements: elements(AtomicOp::Sum, AtomicType::F64, 8, &BYTES, &[]),
            flags: Flags::empty(),
        },
        Request::Atomic {
            to: place(1, 32),
            elements: elements(AtomicOp::Read, AtomicType::U32, 4, &[], &[]),
            flags: Flags::empty(),
        },
        put(false, place(3, 0)),
        put(true, place(3, 0)),
        Request::Message {
            to: place(2, 0),
            bytes: &BYTES[..9],
        },
        Request::Import { place: place(1, 0) },
        Request::Forgotten { place: place(1, 0) },
    ]
}

fn framed(requests: &[Request<'_>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (request, number) in requests.iter().zip(1..) {
        let head = RequestHeader {
            number,
            channel: 1,
            ordered: 1,
        };
        envelope::frame(&mut stream, head, |into| request.encode(into)).expect("short");
    }
    stream
}

fn guests() -> Vec<Vec<u8>> {
    let requests = requests();
    let each = requests.iter().map(|request| framed(&[*request]));
    each.chain([framed(&requests)]).collect()
}

fn strangers() -> Vec<Vec<u8>> {
    let said = greeting(&KNOWN, b"there");
    let all = framed(&requests());
    vec![
        said.to_vec(),
        [&said[..], &all].concat(),
        [&greeting(&[8; SECRET], b"there")[..], &all].concat(),
    ]
}

/// Answers of a peer to one request of each kind.
fn answers(bytes: &[u8]) {
    let node = StreamNode::open(Arc::new(Nowhere), None).expect("descriptors");
    let mut into = [Fenced::new(64), Fenced::new(16)];
    let [read, reply] = into.each_mut().map(Fenced::base);
    let told = Arc::new(Mutex::new(Vec::new()));
    let link = Link::new(Pieces::of(&[]), b"there", &[]);
    let completions = Arc::new(Completions::new(8));
    let place = RegisteredPlace {
        slot: 1,
        generation: 1,
        offset: 0,
    };
    let current = link.watch(place);
    let landings = [
        Some(Landing::Read {
            into: Local { ptr: read, desc: 0 },
            len: 64,
            flags: Flags::LINES,
        }),
        // SAFETY:
        // - valid as long as the link.
        Some(Landing::Reply(unsafe { ReplyBuffer::new(reply, 16) })),
        Some(Landing::Told(told.clone())),
        None,
    ];
    for (landing, context) in landings.into_iter().zip(0..) {
        completions.begin(0).expect("room");
        let kind = Kind {
            own: false,
            reads: landing.as_ref().is_some_and(Landing::reads),
        };
        completions.leaves(0, kind);
        let waiting = Waiting {
            completions: completions.clone(),
            peer: 0,
            context,
            kind,
            landing,
            ends: Ends::One,
        };
        let request = Request::Import { place };
        link.ask((1, false), |to| request.encode(to), waiting)
            .expect("the peer lives");
    }
    let mut incoming = Vec::new();
    for piece in bytes.chunks(50) {
        incoming.extend_from_slice(piece);
        if link.take(&mut incoming, &node).is_err() {
            break;
        }
    }
    if let Ok((told, own)) = super::registration::Told::split(&told.lock()) {
        let _ = (told.len, node.network().imported(&link, own));
    }
    link.close();
    let mut ends = 0;
    completions.report(&mut |_| ends += 1);
    assert_eq!((ends, completions.pending()), (4, 0));
    drop(current);
    into.iter_mut().for_each(Fenced::check);
}

fn all_answers() -> Vec<Vec<u8>> {
    let framed = |all: &[(Answered, Answer)]| {
        let mut stream = Vec::new();
        for (number, answer) in all {
            envelope::frame(&mut stream, *number, |into| answer.encode(into)).expect("short");
        }
        stream
    };
    let told = [&1000u64.to_le_bytes()[..], &3u32.to_le_bytes(), &[]].concat();
    let done = |len| Answer::Done(vec![9; len]);
    let released = Answer::Released(RegisteredPlace {
        slot: 1,
        generation: 1,
        offset: 0,
    });
    vec![
        framed(&[
            (1, done(64)),
            (2, done(12)),
            (3, Answer::Done(told)),
            (4, done(0)),
        ]),
        framed(&[
            (4, Answer::Failed((&Error::InboxFull).into())),
            (1, done(63)),
        ]),
        framed(&[(0, released), (3, done(3)), (0, Answer::Leaving)]),
        vec![0; ADDRESS],
    ]
}

#[cfg(test)]
unipgas_fuzz::test_readers!();
