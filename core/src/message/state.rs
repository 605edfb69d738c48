//! What is known of messages under way.

use std::sync::Arc;

use super::layout::{Head, INLINE, Kind};
use super::outgoing::Bytes;
use super::pool::PoolTicket;
use crate::bundle::BUNDLE_LEN;
use crate::region::{Region, RemoteRegion};
use crate::{Error, Result};

/// For [`Pattern::ignore`]: every tag is accepted.
pub const ANY_TAG: u64 = u64::MAX;
/// The bit of [`Envelope::context`] that receives do not select by; given to the receiver as it is.
pub const MARK: u8 = 1 << 7;
/// Another one: the payload, which must be short, is not written where the receive wants it, but kept for [`Mailbox::take_apart`].
///
/// [`Mailbox::take_apart`]: super::Mailbox::take_apart
pub const APART: u8 = 1 << 6;

/// What a message says of itself beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Envelope {
    /// Messages of different contexts never meet.
    pub context: u8,
    /// What receives select by.
    pub tag: u64,
    /// Given to the receiver as it is.
    pub extra: u64,
}

/// Which messages a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// The sender; `None`: anyone.
    pub source: Option<u32>,
    /// The context.
    pub context: u8,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that need not agree.
    pub ignore: u64,
}

impl Pattern {
    /// Messages of `context` from `source` (`None`: from anyone) with any tag.
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

/// When a send has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The buffer may be used again.
    Buffered,
    /// The message has been received.
    Synchronous,
}

/// Which of several receives that fit takes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precedence {
    /// The one that was posted first.
    Posted,
    /// One that names the source before one that does not (iRCCE manual §6.2).
    Named,
}

/// A message that has been received, or probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub source: u32,
    /// What it says of itself.
    pub envelope: Envelope,
    /// Its length in bytes; where that is more than the buffer holds, the rest is lost and was not written.
    pub len: usize,
}

/// A send under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendTicket(pub(super) u32);

/// A receive under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveTicket(pub(super) u32);

impl ReceiveTicket {
    /// A small number that no other receive under way at the mailbox has.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A message on its way.
pub(super) struct Sending {
    pub to: u32,
    pub stage: SendStage,
    /// What is needed of it after its announcement, or before there is room for that.
    pub letter: Option<Box<Letter>>,
    /// Nobody asks what becomes of it, and its bytes may be gone; the other side has been told where they were.
    pub given_up: bool,
}

pub(super) struct Letter {
    pub head: Head,
    pub data: *const u8,
    /// The sender waits inside the library, so that it can stream.
    pub attentive: bool,
    /// Where peers can fetch the payload, and at which offset.
    pub exposed: Option<Arc<Region>>,
    pub offset: u64,
    /// Nobody asks what becomes of it: a part of a multicast.
    pub detached: bool,
    /// Of a detached one: its payload if it is short, else the number of what is staged.
    pub short: [u8; INLINE],
    pub staged: Option<u64>,
}

// SAFETY:
// - `data` is memory that the caller of `send` keeps valid until the send has ended, from whatever thread it is read.
unsafe impl Send for Letter {}

/// What travels with a line.
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
    /// The other side answers when it has been received.
    Announced,
    /// The other side has asked for the payload: bytes that have gone, and its name for the receive.
    Streaming {
        done: usize,
        receive: u32,
    },
    Ended(Result<()>),
}

/// What a receive is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// One message.
    Whole,
    /// Several messages, one behind the other: given up with less room than `least`. Its messages are received by parts of it, of which
    /// `open` have not been taken.
    Several { least: usize, open: u32 },
    /// One of the messages of the receive with this ticket.
    Part(u32),
    /// A message of a receive that several mailboxes share.
    Drawn(PoolTicket),
}

/// One of the messages that a receive for several has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The receive for several.
    pub of: ReceiveTicket,
    /// Where its message is.
    pub buffer: *mut u8,
    /// The room there was for it.
    pub capacity: usize,
    /// No other message comes into the buffer, and all others have been taken: with this one the receive ends, too.
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
// - as for `Letter`.
unsafe impl Send for Receiving {}

pub(super) enum ReceiveStage {
    Posted,
    /// The payload is on its way.
    Coming(Box<Coming>),
    Ended(Result<Received>),
}

pub(super) struct Coming {
    pub received: Received,
    /// The sender's name of the message.
    pub ticket: u32,
    /// Bytes that have come by streaming.
    pub done: usize,
    /// Kept while the payload is fetched from it.
    pub from: Option<RemoteRegion>,
}

impl Coming {
    /// Whether `peer` may say what becomes of it. What is fetched is written to the buffer until that has ended, whatever anybody says.
    pub fn streams_from(&self, peer: u32) -> bool {
        self.from.is_none() && self.received.source == peer
    }
}

/// A message that nobody has asked for yet.
pub(super) struct Arrival {
    pub source: u32,
    pub head: Head,
    pub payload: Payload,
}

pub(super) enum Payload {
    Short([u8; INLINE]),
    Long(Box<[u8]>),
    /// Where it can be fetched.
    Offer(Offer),
}

/// Where the payload of an offered message is.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Offer {
    /// Key of the region; all zero: it can only be streamed.
    pub key: [u8; BUNDLE_LEN],
    pub offset: u64,
    /// Not 0: the sender can stream.
    pub attentive: u64,
}

impl Letter {
    pub fn new(head: Head, data: *const u8) -> Self {
        Letter {
            head,
            data,
            attentive: false,
            exposed: None,
            offset: 0,
            detached: false,
            short: [0; INLINE],
            staged: None,
        }
    }

    pub fn freight(&self) -> Freight {
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
    /// One whose payload has gone with its announcement.
    #[inline(always)]
    pub fn announced(to: u32) -> Self {
        Sending {
            to,
            stage: SendStage::Announced,
            letter: None,
            given_up: false,
        }
    }

    /// The letter's line has been written.
    pub fn went(&mut self) {
        let kind = self.letter.as_ref().map(|letter| letter.head.kind);
        self.stage = match kind {
            Some(Kind::Eager) => SendStage::Ended(Ok(())),
            _ => SendStage::Announced,
        };
    }

    pub fn is_detached(&self) -> bool {
        self.letter.as_ref().is_some_and(|letter| letter.detached)
    }

    /// Ends it, unless it has ended. What peers could still fetch they can no more.
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
    pub fn of(kind: Kind, envelope: Envelope, len: usize, ticket: u32) -> Self {
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
