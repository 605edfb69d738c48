//! Requests and answers as bytes, for streams between processes on machines of the same kind.
//!
//! A frame is a length (4 bytes, which it does not count), then the message: a fixed head, then its bytes. Answers have the order of the requests, so neither
//! carries a number. Unrequested messages ([`Answer::Leaving`], [`Answer::Released`]) come between answers.

use bytemuck::{Pod, Zeroable};

use super::RegisteredPlace;
use crate::inbox::Record;
use crate::op::Flags;
use crate::transport::LONGEST_MESSAGE;
use crate::{AtomicOp, AtomicType, Error};

/// Bytes of a frame's length field.
pub(crate) const PREFIX: usize = 4;
/// The most bytes of a message after its head, and of one read.
pub const LONGEST: usize = 1 << 30;

/// The peer has sent bytes that this protocol does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The elements of an atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements<'a> {
    /// The operation.
    pub op: AtomicOp,
    /// The element type.
    pub ty: AtomicType,
    /// Number of elements.
    pub count: u32,
    /// `count` operands. Empty for operations without operands.
    pub operand: &'a [u8],
    /// `count` comparands. Empty for operations without comparands.
    pub compare: &'a [u8],
    /// Whether the answer returns the previous values.
    pub fetch: bool,
}

/// Bytes that come with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "those of a put")]
pub struct Carried<'a> {
    pub to: RegisteredPlace,
    pub bytes: &'a [u8],
    pub flags: Flags,
}

/// A request to the agent. [`Channel`](crate::transport::Channel) defines each operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "those of the operation")]
pub enum Request<'a> {
    Put {
        to: RegisteredPlace,
        bytes: &'a [u8],
        flags: Flags,
        notice: Option<(RegisteredPlace, u32)>,
    },
    Notify {
        slot: RegisteredPlace,
        value: u32,
    },
    Get {
        from: RegisteredPlace,
        len: u64,
        flags: Flags,
    },
    Atomic {
        to: RegisteredPlace,
        elements: Elements<'a>,
        flags: Flags,
    },
    Deliver {
        /// Bytes to write before the record is delivered.
        put: Option<Carried<'a>>,
        first: RegisteredPlace,
        second: Option<RegisteredPlace>,
        overflow: Option<RegisteredPlace>,
        record: Record,
        /// See [`Flags::CHAINED`].
        chained: bool,
    },
    Message {
        to: RegisteredPlace,
        bytes: &'a [u8],
    },
    /// Asks whether `place` is registered. The answer has its description (see `Registered::open`). The importer is notified when the registration ends.
    Import {
        place: RegisteredPlace,
    },
    /// Confirms a [`Answer::Released`]: the importer no longer uses the place. It has no answer.
    Forgotten {
        place: RegisteredPlace,
    },
}

/// An answer of the agent, or a message without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The operation is complete and visible. The bytes that it has read.
    Done(Vec<u8>),
    /// The operation has failed. Parts may be visible: a put that came with a record, elements before the timeout of a lock.
    Failed(WireError),
    /// Without a request: the process leaves in order. It serves requests until it has left.
    Leaving,
    /// Without a request: an imported registration has ended.
    Released(RegisteredPlace),
}

/// An [`Error`] in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WireError {
    kind: u64,
    details: [u64; 3],
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> Self {
        let (kind, details) = match *error {
            Error::OutOfBounds {
                offset,
                len,
                region_len,
            } => (1, [offset as u64, len as u64, region_len as u64]),
            Error::AccessDenied => (2, [0; 3]),
            Error::Misaligned(to) => (3, [to as u64, 0, 0]),
            Error::InboxFull => (4, [0; 3]),
            Error::Unsupported => (5, [0; 3]),
            Error::Refused(why) => (6, [why.into(), 0, 0]),
            Error::Timeout => (7, [0; 3]),
            // All other errors mean that the memory is no longer registered.
            _ => (0, [0; 3]),
        };
        WireError { kind, details }
    }
}

impl From<WireError> for Error {
    fn from(failure: WireError) -> Self {
        let [a, b, c] = failure.details.map(|detail| detail as usize);
        match failure.kind {
            1 => Error::OutOfBounds {
                offset: a,
                len: b,
                region_len: c,
            },
            2 => Error::AccessDenied,
            3 => Error::Misaligned(a),
            4 => Error::InboxFull,
            5 => Error::Unsupported,
            6 => Error::Refused(failure.details[0] as u32),
            7 => Error::Timeout,
            _ => Error::StaleRegion,
        }
    }
}

const PUT: u32 = 1;
const NOTIFY: u32 = 2;
const GET: u32 = 3;
const ATOMIC: u32 = 4;
const DELIVER: u32 = 5;
const DONE: u32 = 6;
const FAILED: u32 = 7;
const LEAVING: u32 = 8;
const IMPORT: u32 = 9;
const FORGOTTEN: u32 = 10;
const RELEASED: u32 = 11;
const MESSAGE: u32 = 12;

/// The fixed part of each request. Fields that a kind does not use are 0.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    kind: u32,
    flags: u32,
    place: RegisteredPlace,
    /// RegisteredPlace of the notice, or of the bytes of a delivery.
    slot: RegisteredPlace,
    /// Value of the notice. 1: a delivery is chained.
    value: u32,
    /// 1: there is a notice, or a delivery has bytes.
    has_notice: u32,
    /// Number of bytes to read, or of elements.
    len: u64,
    op: u8,
    ty: u8,
    fetch: u8,
    pad: [u8; 5],
}

/// Follows the head of a delivery. A place of generation 0 is absent.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Delivery {
    record: Record,
    second: RegisteredPlace,
    overflow: RegisteredPlace,
}

const HEAD: usize = size_of::<Head>();

fn head_to(kind: u32, place: RegisteredPlace, flags: Flags) -> Head {
    Head {
        kind,
        place,
        flags: flags.bits(),
        ..Head::zeroed()
    }
}

/// Appends a frame of a head and these parts. Errors: [`Error::Unsupported`] if they are too long; `into` is unchanged then.
fn frame(into: &mut Vec<u8>, head: &[u8], rest: &[&[u8]]) -> Result<(), Error> {
    let len = head.len() + rest.iter().map(|part| part.len()).sum::<usize>();
    if len > LONGEST + HEAD {
        return Err(Error::Unsupported);
    }
    into.reserve(PREFIX + len);
    into.extend_from_slice(&(len as u32).to_le_bytes());
    into.extend_from_slice(head);
    for part in rest {
        into.extend_from_slice(part);
    }
    Ok(())
}

impl Request<'_> {
    /// Appends its frame. Errors: [`Error::Unsupported`] for more than [`LONGEST`] bytes; `into` is unchanged then.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), Error> {
        let mut send = |head: Head, rest: &[&[u8]]| frame(into, bytemuck::bytes_of(&head), rest);
        match *self {
            Request::Put {
                to,
                bytes,
                flags,
                notice,
            } => {
                let (slot, value) = notice.unwrap_or((RegisteredPlace::zeroed(), 0));
                let head = Head {
                    slot,
                    value,
                    has_notice: notice.is_some().into(),
                    ..head_to(PUT, to, flags)
                };
                send(head, &[bytes])
            }
            Request::Notify { slot, value } => {
                let head = head_to(NOTIFY, RegisteredPlace::zeroed(), Flags::empty());
                send(
                    Head {
                        slot,
                        value,
                        ..head
                    },
                    &[],
                )
            }
            Request::Get { from, len, flags } => {
                let head = head_to(GET, from, flags);
                send(Head { len, ..head }, &[])
            }
            Request::Atomic {
                to,
                elements,
                flags,
            } => {
                let head = Head {
                    len: elements.count.into(),
                    op: elements.op as u8,
                    ty: elements.ty as u8,
                    fetch: elements.fetch.into(),
                    ..head_to(ATOMIC, to, flags)
                };
                send(head, &[elements.operand, elements.compare])
            }
            Request::Deliver {
                put,
                first,
                second,
                overflow,
                record,
                chained,
            } => {
                let flags = put.map_or(Flags::empty(), |put| put.flags);
                let head = Head {
                    slot: put.map_or(RegisteredPlace::zeroed(), |put| put.to),
                    has_notice: put.is_some().into(),
                    value: chained.into(),
                    ..head_to(DELIVER, first, flags)
                };
                let rest = Delivery {
                    record,
                    second: second.unwrap_or(RegisteredPlace::zeroed()),
                    overflow: overflow.unwrap_or(RegisteredPlace::zeroed()),
                };
                let bytes = put.map_or(&[][..], |put| put.bytes);
                send(head, &[bytemuck::bytes_of(&rest), bytes])
            }
            Request::Message { to, bytes } => send(head_to(MESSAGE, to, Flags::empty()), &[bytes]),
            Request::Import { place } => send(head_to(IMPORT, place, Flags::empty()), &[]),
            Request::Forgotten { place } => send(head_to(FORGOTTEN, place, Flags::empty()), &[]),
        }
    }
}

impl<'a> Request<'a> {
    /// Decodes a message without its length.
    pub fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let (head, bytes) = split(message)?;
        let flags = Flags::from_bits(head.flags).ok_or(Malformed)?;
        match head.kind {
            PUT => Ok(Request::Put {
                to: head.place,
                bytes,
                flags,
                notice: (head.has_notice == 1).then_some((head.slot, head.value)),
            }),
            NOTIFY if bytes.is_empty() => Ok(Request::Notify {
                slot: head.slot,
                value: head.value,
            }),
            GET if bytes.is_empty() && head.len <= LONGEST as u64 => Ok(Request::Get {
                from: head.place,
                len: head.len,
                flags,
            }),
            ATOMIC => Ok(Request::Atomic {
                to: head.place,
                elements: elements(&head, bytes)?,
                flags,
            }),
            DELIVER => {
                let (rest, bytes) = bytes
                    .split_at_checked(size_of::<Delivery>())
                    .ok_or(Malformed)?;
                let rest: Delivery = bytemuck::pod_read_unaligned(rest);
                let put = (head.has_notice == 1).then_some(Carried {
                    to: head.slot,
                    bytes,
                    flags,
                });
                if put.is_none() && !bytes.is_empty() {
                    return Err(Malformed);
                }
                // Generations begin with 1.
                let there = |place: &RegisteredPlace| place.generation != 0;
                Ok(Request::Deliver {
                    put,
                    first: head.place,
                    second: Some(rest.second).filter(there),
                    overflow: Some(rest.overflow).filter(there),
                    record: rest.record,
                    chained: head.value == 1,
                })
            }
            MESSAGE if bytes.len() <= LONGEST_MESSAGE => Ok(Request::Message {
                to: head.place,
                bytes,
            }),
            IMPORT if bytes.is_empty() => Ok(Request::Import { place: head.place }),
            FORGOTTEN if bytes.is_empty() => Ok(Request::Forgotten { place: head.place }),
            _ => Err(Malformed),
        }
    }
}

fn elements<'a>(head: &Head, bytes: &'a [u8]) -> Result<Elements<'a>, Malformed> {
    let op = *AtomicOp::ALL.get(usize::from(head.op)).ok_or(Malformed)?;
    let ty = *AtomicType::ALL.get(usize::from(head.ty)).ok_or(Malformed)?;
    let count = u32::try_from(head.len).map_err(|_| Malformed)?;
    let len = ty.size() * count as usize;
    // Operands, if any, then comparands, if any.
    let (operand, compare) = bytes.split_at(len.min(bytes.len()));
    let whole = |part: &[u8]| part.is_empty() || part.len() == len;
    if !whole(operand) || !whole(compare) {
        return Err(Malformed);
    }
    Ok(Elements {
        op,
        ty,
        count,
        operand,
        compare,
        fetch: head.fetch == 1,
    })
}

impl Answer {
    /// Appends its frame. Errors: as [`Request::encode`].
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), Error> {
        let (kind, bytes) = match self {
            Answer::Done(bytes) => (DONE, bytes.as_slice()),
            Answer::Failed(failure) => (FAILED, bytemuck::bytes_of(failure)),
            Answer::Leaving => (LEAVING, &[][..]),
            Answer::Released(place) => (RELEASED, bytemuck::bytes_of(place)),
        };
        frame(into, &kind.to_le_bytes(), &[bytes])
    }

    /// Decodes a message without its length. The second value is the bytes that were read; they stay in `message`.
    pub fn decode(message: &[u8]) -> Result<(Answer, &[u8]), Malformed> {
        let (kind, bytes) = message.split_at_checked(4).ok_or(Malformed)?;
        match u32::from_le_bytes(kind.try_into().map_err(|_| Malformed)?) {
            DONE => Ok((Answer::Done(Vec::new()), bytes)),
            FAILED => {
                let failure = bytemuck::try_pod_read_unaligned(bytes).map_err(|_| Malformed)?;
                Ok((Answer::Failed(failure), &[]))
            }
            LEAVING if bytes.is_empty() => Ok((Answer::Leaving, &[])),
            RELEASED => {
                let place = bytemuck::try_pod_read_unaligned(bytes).map_err(|_| Malformed)?;
                Ok((Answer::Released(place), &[]))
            }
            _ => Err(Malformed),
        }
    }
}

fn split(message: &[u8]) -> Result<(Head, &[u8]), Malformed> {
    let (head, bytes) = message.split_at_checked(HEAD).ok_or(Malformed)?;
    let head = bytemuck::try_pod_read_unaligned(head).map_err(|_| Malformed)?;
    Ok((head, bytes))
}

/// The first message in `bytes`, and the length of its frame. `None`: the frame is incomplete.
pub fn first_message(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let Some((prefix, rest)) = bytes.split_at_checked(PREFIX) else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(prefix.try_into().map_err(|_| Malformed)?) as usize;
    if len > LONGEST + HEAD {
        return Err(Malformed);
    }
    Ok(rest.get(..len).map(|message| (message, PREFIX + len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(nth: u32) -> RegisteredPlace {
        RegisteredPlace {
            slot: nth,
            generation: nth + 1,
            offset: 1 << 40 | u64::from(nth),
        }
    }

    fn requests() -> Vec<Request<'static>> {
        let elements = Elements {
            op: AtomicOp::Cswap,
            ty: AtomicType::U64,
            count: 2,
            operand: &[3; 16],
            compare: &[4; 16],
            fetch: true,
        };
        let record = Record {
            source: 1,
            kind: 2,
            len: 3,
            value: 4,
            offset: 5,
        };
        vec![
            Request::Put {
                to: place(1),
                bytes: b"some bytes",
                flags: Flags::ORDERED | Flags::LINES,
                notice: Some((place(2), 77)),
            },
            Request::Put {
                to: place(1),
                bytes: b"",
                flags: Flags::empty(),
                notice: None,
            },
            Request::Notify {
                slot: place(9),
                value: u32::MAX,
            },
            Request::Get {
                from: place(3),
                len: LONGEST as u64,
                flags: Flags::LINES,
            },
            Request::Atomic {
                to: place(4),
                elements,
                flags: Flags::WAKE,
            },
            Request::Deliver {
                put: None,
                first: place(5),
                second: Some(place(11)),
                overflow: None,
                record,
                chained: true,
            },
            Request::Deliver {
                put: Some(Carried {
                    to: place(6),
                    bytes: b"bytes",
                    flags: Flags::LINES,
                }),
                first: place(5),
                second: None,
                overflow: Some(place(7)),
                record,
                chained: false,
            },
            Request::Message {
                to: place(10),
                bytes: b"a message",
            },
            Request::Import { place: place(6) },
            Request::Forgotten { place: place(8) },
        ]
    }

    #[test]
    fn requests_come_back_from_one_stream() {
        let mut stream = Vec::new();
        for request in requests() {
            request.encode(&mut stream).unwrap();
        }
        let mut rest = stream.as_slice();
        for request in requests() {
            let (message, taken) = first_message(rest).unwrap().expect("a whole one");
            assert_eq!(Request::decode(message), Ok(request));
            rest = &rest[taken..];
        }
        assert_eq!(first_message(rest), Ok(None));
    }

    #[test]
    fn answers_come_back() {
        for answer in [
            Answer::Failed((&Error::Misaligned(16)).into()),
            Answer::Leaving,
            Answer::Released(place(7)),
            Answer::Done(b"found".to_vec()),
        ] {
            let mut stream = Vec::new();
            answer.encode(&mut stream).unwrap();
            let (message, taken) = first_message(&stream).unwrap().expect("a whole one");
            assert_eq!(taken, stream.len());
            let (found, bytes) = Answer::decode(message).unwrap();
            match answer {
                Answer::Done(read) => assert_eq!(bytes, read),
                other => assert_eq!(found, other),
            }
        }
    }

    #[test]
    fn errors_come_back() {
        for error in [
            Error::StaleRegion,
            Error::AccessDenied,
            Error::InboxFull,
            Error::Unsupported,
            Error::Misaligned(4),
            Error::Refused(u32::MAX),
            Error::Timeout,
            Error::OutOfBounds {
                offset: 1,
                len: 2,
                region_len: 3,
            },
        ] {
            assert_eq!(Error::from(WireError::from(&error)), error);
        }
    }

    #[test]
    fn frames_are_whole_or_awaited_or_refused() {
        let mut stream = Vec::new();
        requests()[0].encode(&mut stream).unwrap();
        for len in 0..stream.len() {
            assert_eq!(first_message(&stream[..len]), Ok(None));
        }
        assert_eq!(first_message(&[0xff; 8]), Err(Malformed));
        assert_eq!(Request::decode(&[]), Err(Malformed));
        assert_eq!(Request::decode(&[0xff; HEAD]), Err(Malformed));
        assert!(Answer::decode(&[1]).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "more memory than it likes to have")]
    fn what_is_too_long_is_neither_sent_nor_asked_for() {
        // No test touches the pages, so the kernel does not provide them.
        let bytes = vec![0; LONGEST + 1];
        let put = Request::Put {
            to: place(1),
            bytes: &bytes,
            flags: Flags::empty(),
            notice: None,
        };
        let mut stream = Vec::new();
        assert_eq!(put.encode(&mut stream), Err(Error::Unsupported));
        let mut head = head_to(GET, RegisteredPlace::zeroed(), Flags::empty());
        head.len = LONGEST as u64 + 1;
        let message = bytemuck::bytes_of(&head);
        assert_eq!(Request::decode(message), Err(Malformed));
        let parts: &[&[u8]] = &[message, &bytes];
        assert_eq!(frame(&mut stream, &[], parts), Err(Error::Unsupported));
        let answer = Answer::Done(vec![0; LONGEST + HEAD]);
        assert_eq!(answer.encode(&mut stream), Err(Error::Unsupported));
        assert!(stream.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_request_or_malformed(bytes: Vec<u8>) {
            let _ = first_message(&bytes);
            let _ = Request::decode(&bytes);
            let _ = Answer::decode(&bytes);
        }
    }
}
