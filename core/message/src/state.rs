//! The state of messages in progress.

use std::sync::Arc;

use super::layout::{Head, INLINE, Kind};
use super::outgoing::Bytes;
use super::pool::PoolTicket;
use unipgas_base::{Error, Result};
use unipgas_engine::bundle::BUNDLE_LEN;
use unipgas_engine::{Region, RemoteRegion};

/// For [`Pattern::ignore`]: accepts all tags.
pub const ANY_TAG: u64 = u64::MAX;
/// A bit of [`Envelope::context`] that matching ignores. The receiver gets it unchanged.
pub const MARK: u8 = 1 << 7;
/// A bit of [`Envelope::context`] that matching ignores. The payload, which must be short, is not written to the receive's buffer. It is kept for
/// [`Mailbox::take_apart`].
///
/// [`Mailbox::take_apart`]: super::Mailbox::take_apart
pub const APART: u8 = 1 << 6;

/// Data of a message beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Envelope {
    /// Messages of different contexts never meet.
    pub context: u8,
    /// Receives select by it.
    pub tag: u64,
    /// The receiver gets it unchanged.
    pub extra: u64,
}

/// The messages that a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// The sender. `None`: any sender.
    pub source: Option<u32>,
    /// The context.
    pub context: u8,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that matching ignores.
    pub ignore: u64,
}

impl Pattern {
    /// Messages of `context` from `source` (`None`: any sender) with any tag.
    pub fn from(source: Option<u32>, context: u8) -> Self {
        Pattern {
            source,
            context,
            tag: 0,
            ignore: ANY_TAG,
        }
    }

    #[inline(always)]
    pub(super) fn fits(&self, source: u32, head: &Head) -> bool {
        (self.context ^ head.context) & !(MARK | APART) == 0
            && self.source.is_none_or(|wanted| wanted == source)
            && (self.tag ^ head.tag) & !self.ignore == 0
    }
}

/// Event that ends a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The caller may use the buffer again.
    Buffered,
    /// The peer has received the message.
    Synchronous,
}

/// Rule that selects one of several receives that fit a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precedence {
    /// The receive that was posted first.
    Posted,
    /// Receives that name the source come before receives that do not (iRCCE manual §6.2).
    Named,
}

/// A message that has been received, or probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The sender.
    pub source: u32,
    /// Its envelope.
    pub envelope: Envelope,
    /// Its length in bytes. The part that does not fit in the buffer is lost, and is not written.
    pub len: usize,
}

/// A send in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendTicket(pub(super) u32);

/// A receive in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveTicket(pub(super) u32);

impl ReceiveTicket {
    /// A small number, unique among the receives in progress at the mailbox.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A send and its stage.
pub(super) struct Sending {
    pub to: u32,
    pub stage: SendStage,
    /// The message, while it waits for room, or while its payload is still needed.
    pub letter: Option<Box<Letter>>,
    /// The caller has abandoned it, and its bytes may be invalid. The peer knows its announcement.
    pub given_up: bool,
}

#[derive(Clone)]
pub(super) struct Letter {
    pub head: Head,
    pub data: *const u8,
    /// The sender waits inside the library, so it can stream.
    pub attentive: bool,
    /// The caller does not wait for the end.
    pub quiet: bool,
    /// The region in which peers can fetch the payload.
    pub exposed: Option<Arc<Region>>,
    /// Offset of the payload in it.
    pub offset: u64,
    /// It is a part of a multicast, and has no caller that waits for it.
    pub detached: bool,
    /// Payload of a short detached message.
    pub short: [u8; INLINE],
    /// Number of the staged payload of a long detached message.
    pub staged: Option<u64>,
}

// SAFETY:
// - contract of `send`: `data` is valid on each thread until the send has ended.
unsafe impl Send for Letter {}

/// The payload of a line.
pub(super) enum Freight {
    Bytes(Bytes),
    Short([u8; INLINE], usize),
    Offer(Offer),
}

impl Freight {
    pub fn bytes(&self) -> Bytes {
        match self {
            Freight::Bytes(bytes) => *bytes,
            Freight::Short(bytes, len) => Bytes {
                ptr: bytes.as_ptr(),
                len: *len,
            },
            Freight::Offer(offer) => Bytes {
                ptr: std::ptr::from_ref(offer).cast(),
                len: size_of::<Offer>(),
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendStage {
    /// No room in the lane yet.
    Waiting,
    /// The peer answers when it has received the message.
    Announced,
    /// The peer has requested the payload. `done`: bytes sent. `receive`: the peer's number of the receive.
    Streaming {
        done: usize,
        receive: u32,
    },
    Ended(Result<()>),
}

/// The kind of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// One message.
    Whole,
    /// Several messages, one behind the other. It ends with less room than `least`. Parts of it receive its messages; `open` of them have not been
    /// taken.
    Several { least: usize, open: u32 },
    /// One of the messages of the receive with this ticket.
    Part(u32),
    /// A message of a receive that several mailboxes share.
    Drawn(PoolTicket),
}

/// A message of a receive for several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The receive for several.
    pub of: ReceiveTicket,
    /// Address of the message.
    pub buffer: *mut u8,
    /// Room that the message had, in bytes.
    pub capacity: usize,
    /// The last message of the buffer. All others have been taken, and the receive ends with it.
    pub last: bool,
}

pub(super) struct Receiving {
    pub role: Role,
    pub pattern: Pattern,
    pub buffer: *mut u8,
    pub capacity: usize,
    pub stage: ReceiveStage,
    /// The payload of a message of the kind [`APART`].
    pub apart: Option<Box<[u8]>>,
}

// SAFETY:
// - contract of `receive`: `buffer` is valid on each thread until the receive has ended.
unsafe impl Send for Receiving {}

pub(super) enum ReceiveStage {
    Posted,
    /// The payload is in flight.
    Coming(Box<Coming>),
    Ended(Result<Received>),
}

pub(super) struct Coming {
    pub received: Received,
    /// The sender's number of the message.
    pub ticket: u32,
    /// Bytes received by streaming.
    pub done: usize,
    /// The sender's region, while the payload is fetched from it.
    pub from: Option<RemoteRegion>,
}

impl Coming {
    /// Whether `peer` may end it. A fetch writes to the buffer until the network ends it, so no peer may end a fetch.
    pub(crate) fn streams_from(&self, peer: u32) -> bool {
        self.from.is_none() && self.received.source == peer
    }
}

/// A message without a receive.
pub(super) struct Arrival {
    pub source: u32,
    pub head: Head,
    pub payload: Payload,
}

pub(super) enum Payload {
    Short([u8; INLINE]),
    Long(Box<[u8]>),
    /// Location of the payload.
    Offer(Offer),
}

/// Location of the payload of an offered message.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Offer {
    /// Key of the region. All zero: the sender must stream it.
    pub key: [u8; BUNDLE_LEN],
    pub offset: u64,
    /// Not 0: the sender can stream.
    pub attentive: u64,
}

impl Letter {
    pub(crate) fn new(head: Head, data: *const u8) -> Self {
        Letter {
            head,
            data,
            attentive: false,
            quiet: false,
            exposed: None,
            offset: 0,
            detached: false,
            short: [0; INLINE],
            staged: None,
        }
    }

    pub(crate) fn freight(&self) -> Freight {
        if self.head.kind == Kind::Offer {
            Freight::Offer(Offer {
                key: self
                    .exposed
                    .as_ref()
                    .map_or([0; BUNDLE_LEN], |region| *region.key().as_bytes()),
                offset: self.offset,
                attentive: u64::from(self.attentive || self.exposed.is_none()),
            })
        } else if self.detached {
            Freight::Short(self.short, self.head.len)
        } else {
            Freight::Bytes(Bytes {
                ptr: self.data,
                len: self.head.len,
            })
        }
    }
}

impl Sending {
    /// A send that went together with its payload.
    #[inline(always)]
    pub(crate) fn announced(to: u32) -> Self {
        Sending {
            to,
            stage: SendStage::Announced,
            letter: None,
            given_up: false,
        }
    }

    /// Notes that the line of the letter has been written.
    pub(crate) fn went(&mut self) {
        let kind = self.letter.as_ref().map(|letter| letter.head.kind);
        self.stage = match kind {
            Some(Kind::Eager) => SendStage::Ended(Ok(())),
            _ => SendStage::Announced,
        };
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.letter.as_ref().is_some_and(|letter| letter.detached)
    }

    /// Ends it, unless it has ended. Peers can no longer fetch its payload.
    #[inline]
    pub fn end(&mut self, result: Result<()>) {
        if !matches!(self.stage, SendStage::Ended(_)) {
            self.stage = SendStage::Ended(result);
            if let Some(letter) = &mut self.letter {
                letter.exposed = None;
            }
        }
    }
}

impl Head {
    #[inline(always)]
    pub(crate) fn of(kind: Kind, envelope: Envelope, len: usize, ticket: u32) -> Self {
        Head {
            kind,
            context: envelope.context,
            len,
            tag: envelope.tag,
            extra: envelope.extra,
            ticket,
        }
    }
}

#[inline(always)]
pub(super) fn received(source: u32, head: &Head) -> Received {
    Received {
        source,
        envelope: Envelope {
            context: head.context,
            tag: head.tag,
            extra: head.extra,
        },
        len: head.len,
    }
}

pub(super) fn no_such_peer(peer: u32, peers: usize) -> Error {
    Error::InvalidArgument(format!(
        "there is no peer {peer}: peers go from 0 to {}",
        peers.saturating_sub(1)
    ))
}
