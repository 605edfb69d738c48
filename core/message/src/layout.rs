//! Layout of a mailbox in memory. Each peer has a credit word, a greeting word, a ring of lines, and a ring of data.

use unipgas_base::{Error, Result, cache};
use unipgas_engine::bundle::BUNDLE_LEN;

/// Bytes of a line. It is within a cache line, so a short message and its announcement travel together.
pub(super) const LINE: usize = 64;
/// Bytes of a payload that travel in the line itself.
pub(super) const INLINE: usize = 32;
/// Payloads in the data ring begin at multiples of this.
const ALIGN: u64 = 64;

/// The sizes of a mailbox. All processes that exchange messages have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of peers in a block of lanes.
    pub peers: usize,
    /// Maximum number of further blocks. The owner makes them when they are needed ([`Mailbox::grow`](super::Mailbox::grow)).
    pub more: usize,
    /// Lines of each peer: its messages in flight. A power of two.
    pub lines: usize,
    /// Bytes of each peer for payloads that do not fit in a line. A power of two, at least 4096.
    pub data: usize,
}

impl Shape {
    /// Errors: [`Error::InvalidArgument`] for sizes that are not as above.
    pub(super) fn check(self) -> Result<Self> {
        let fits = self.peers > 0
            && self.lines.is_power_of_two()
            && self.lines <= 1 << 16
            && self.data.is_power_of_two()
            && (4096..=1 << 30).contains(&self.data);
        if fits {
            Ok(self)
        } else {
            Err(Error::InvalidArgument(
                "a mailbox needs a peer, a power of two of lines, and a power of two of data bytes, 4096 or more"
                    .into(),
            ))
        }
    }

    /// Number of peers when all blocks exist.
    pub fn numbers(self) -> usize {
        self.peers * (1 + self.more)
    }

    /// The error for a number above that.
    pub(super) fn no_lane(self) -> Error {
        Error::Exhausted(format!("lanes for messages (there are {})", self.numbers()))
    }

    /// Bytes of a block.
    pub fn size(self) -> usize {
        self.key_of(self.more + 1)
    }

    /// Offset in the first block of the word with the number of further blocks.
    pub(super) fn made(self) -> usize {
        self.data_of(self.peers)
    }

    /// Offset in the first block of the key of further block `nth`, from 1 on.
    pub(super) fn key_of(self, block: usize) -> usize {
        match self.more {
            0 => self.made(),
            _ => self.made() + 8 + (block - 1) * BUNDLE_LEN,
        }
    }

    /// Longest payload that goes through the data ring. The receiver fetches longer ones.
    pub(crate) fn eager(self) -> usize {
        (self.data / 4).max(INLINE)
    }

    /// Offset of the credit word: the number of lines of this process that `peer` has taken.
    pub(super) fn credit_of(self, peer: usize) -> usize {
        peer * cache::LINE
    }

    /// Offset of the greeting word: `peer` sets it when it begins to send.
    pub(super) fn hello_of(self, peer: usize) -> usize {
        self.peers * cache::LINE + peer * 4
    }

    /// Offset of the word that each peer sets after its greeting word.
    pub fn news(self) -> usize {
        self.hello_of(self.peers)
    }

    fn lines_of(self, peer: usize) -> usize {
        (self.news() + 4).next_multiple_of(cache::LINE) + peer * self.lines * LINE
    }

    fn data_of(self, peer: usize) -> usize {
        // Data begins at a page border, so the lines stay close together.
        (self.lines_of(self.peers).next_multiple_of(4096)) + peer * self.data
    }

    /// Offset of line `position` of `peer`.
    #[inline(always)]
    pub(super) fn line(self, peer: usize, position: u64) -> usize {
        self.lines_of(peer) + (position as usize & (self.lines - 1)) * LINE
    }

    /// Offset of byte `position` of `peer`'s data ring.
    #[inline(always)]
    pub(super) fn data(self, peer: usize, position: u64) -> usize {
        self.data_of(peer) + (position as usize & (self.data - 1))
    }

    /// Mark in the last half-word of line `position` after its write. Never 0.
    #[inline(always)]
    pub(super) fn mark(self, position: u64) -> u32 {
        let lap = position >> self.lines.trailing_zeros();
        (lap % u64::from(u32::MAX)) as u32 + 1
    }

    /// Finds `len` consecutive bytes in a ring that is used up to `end` and freed up to `free`. Returns their beginning and the new end.
    pub(super) fn place(self, end: u64, free: u64, len: usize) -> Option<(u64, u64)> {
        let size = self.data as u64;
        let len = (len as u64).next_multiple_of(ALIGN);
        let rest = size - (end & (size - 1));
        let begin = if len > rest { end + rest } else { end };
        (begin + len - free <= size).then_some((begin, begin + len))
    }
}

/// Kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A message with its payload.
    Eager = 1,
    /// A message with its payload. The receiver answers when it has received it.
    Synchronous = 2,
    /// A message without its payload. The receiver fetches that from the sender's memory.
    Offer = 3,
    /// The answer to the two above: received.
    Done = 4,
    /// Answer to an offer: the sender streams the payload to the receive with the number `extra`.
    Stream = 5,
    /// A part of a streamed payload. `tag`: its offset. `ticket`: the receive.
    Part = 6,
    /// Answer to [`Kind::Stream`]: the sender has abandoned the message. `ticket`: the receive.
    Gone = 7,
}

impl Kind {
    #[inline(always)]
    fn from_bits(bits: u8) -> Option<Self> {
        // The frequent kinds first. A jump through a table would cost more.
        if bits == Kind::Synchronous as u8 {
            Some(Kind::Synchronous)
        } else if bits == Kind::Done as u8 {
            Some(Kind::Done)
        } else if bits == Kind::Eager as u8 {
            Some(Kind::Eager)
        } else {
            Self::from_rare_bits(bits)
        }
    }

    #[cold]
    fn from_rare_bits(bits: u8) -> Option<Self> {
        [Kind::Offer, Kind::Stream, Kind::Part, Kind::Gone]
            .into_iter()
            .find(|kind| *kind as u8 == bits)
    }
}

/// Content of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub kind: Kind,
    pub context: u8,
    /// Bytes of the payload.
    pub len: usize,
    pub tag: u64,
    pub extra: u64,
    /// The sender's number of the message.
    pub ticket: u32,
}

const LEN_BITS: u32 = 48;
const LAST: usize = LINE / 8 - 1;

/// A line: 32 bytes of payload (or its position in the data ring), extra, tag, length with kind and context, ticket with mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line(pub [u64; LINE / 8]);

impl Line {
    /// A line without a payload.
    #[inline(always)]
    pub(crate) fn new(head: &Head, mark: u32) -> Self {
        let about = head.len as u64
            | (head.kind as u64) << LEN_BITS
            | u64::from(head.context) << (LEN_BITS + 8);
        let last = u64::from(head.ticket) | u64::from(mark) << 32;
        Line([0, 0, 0, 0, head.extra, head.tag, about, last])
    }

    /// Stores a payload of up to [`INLINE`] bytes in it.
    #[inline(always)]
    pub(crate) fn carry(&mut self, payload: &[u8]) {
        let room = &mut bytemuck::bytes_of_mut(&mut self.0)[..payload.len().min(INLINE)];
        // SAFETY:
        // - two slices that do not overlap, each of at least `room.len()` bytes.
        unsafe { unipgas_base::copy::copy(payload.as_ptr(), room.as_mut_ptr(), room.len()) };
    }

    /// Stores the payload's position in the data ring.
    #[inline(always)]
    pub(crate) fn point(&mut self, position: u64) {
        self.0[0] = position;
    }

    /// Position of the payload in the data ring.
    #[inline(always)]
    pub(crate) fn pointed(&self) -> u64 {
        self.0[0]
    }

    /// The payload in it.
    #[inline(always)]
    pub(crate) fn carried(&self) -> &[u8; INLINE] {
        bytemuck::bytes_of(&self.0)[..INLINE]
            .try_into()
            .expect("as long as that")
    }

    /// Its content. `None`: the bytes are no line of a sender.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<Head> {
        let about = self.0[6];
        Some(Head {
            kind: Kind::from_bits((about >> LEN_BITS) as u8)?,
            context: (about >> (LEN_BITS + 8)) as u8,
            len: (about & ((1 << LEN_BITS) - 1)) as usize,
            tag: self.0[5],
            extra: self.0[4],
            ticket: self.0[LAST] as u32,
        })
    }

    /// The mark in the last word.
    #[inline(always)]
    pub(crate) fn mark_of(last: u64) -> u32 {
        (last >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        peers: 3,
        more: 0,
        lines: 8,
        data: 4096,
    };

    #[test]
    fn a_line_says_what_it_was_told() {
        let head = Head {
            kind: Kind::Offer,
            context: 255,
            len: (1 << 48) - 1,
            tag: u64::MAX,
            extra: 7,
            ticket: u32::MAX,
        };
        let mut line = Line::new(&head, 9);
        assert_eq!(line.head(), Some(head));
        assert_eq!(Line::mark_of(line.0[LAST]), 9);
        line.carry(&[5; 3]);
        assert_eq!(
            (&line.carried()[..4], line.head()),
            (&[5, 5, 5, 0][..], Some(head))
        );
        assert_eq!(Line([0; 8]).head(), None);
    }

    #[test]
    fn lanes_do_not_overlap() {
        assert_eq!(SHAPE.hello_of(0), SHAPE.credit_of(SHAPE.peers));
        assert_eq!(SHAPE.hello_of(SHAPE.peers), SHAPE.news());
        let mut ends = vec![(SHAPE.news() + 4).next_multiple_of(cache::LINE)];
        for peer in 0..SHAPE.peers {
            assert_eq!(SHAPE.line(peer, 0), *ends.last().unwrap());
            assert_eq!(SHAPE.line(peer, 8), SHAPE.line(peer, 0));
            ends.push(SHAPE.line(peer, 7) + LINE);
        }
        assert!(SHAPE.data(0, 0) >= *ends.last().unwrap());
        assert_eq!(SHAPE.data(2, 4095) + 1, SHAPE.size());
    }

    #[test]
    fn payloads_never_wrap_and_never_overwrite() {
        let (mut end, mut taken) = (0, std::collections::VecDeque::new());
        for len in (1..2000).cycle().step_by(37).take(5000) {
            let free = taken.front().map_or(end, |(begin, _)| *begin);
            match SHAPE.place(end, free, len) {
                Some((begin, next)) => {
                    assert!(begin >= end && (begin % 4096) as usize + len <= 4096);
                    taken.push_back((begin, next));
                    end = next;
                    assert!(end - taken[0].0 <= 4096);
                }
                None => drop(taken.pop_front().expect("an empty ring has room")),
            }
        }
    }

    #[test]
    fn marks_tell_laps_apart_and_are_never_zero() {
        assert_eq!((SHAPE.mark(7), SHAPE.mark(8)), (1, 2));
        let last = u64::from(u32::MAX) * 8;
        assert_eq!((SHAPE.mark(last - 1), SHAPE.mark(last)), (u32::MAX, 1));
    }
}
