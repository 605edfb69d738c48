//! The begin of a stream. A process has no room for data of unknown peers, so it accepts only notices from them. The initiator writes a greeting on a
//! card in its own memory, and puts an empty word at the target's door. The notice of this word identifies the initiator and the card. The target
//! fetches the card, and writes its answer on it.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use unipgas_core::pages::Pages;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::{Error, Result};

use crate::address::{PROTOCOL, TofuAddress, identity};
use crate::blocks::Block;
use crate::mail;
use crate::net::PeerVcq;

/// Streams that this process can begin at once.
pub const CARDS: usize = 64;
/// Bytes of a card. The second half is for the answer.
pub const CARD: usize = 512;
const ANSWER: usize = CARD / 2;
/// Offset of the door: one word for each card number of a peer.
const DOOR: usize = CARDS * CARD;
/// Offset of memory that all peers may write.
const SINK: usize = DOOR + (CARDS * size_of::<u64>()).next_multiple_of(LINE);
const LINE: usize = 256;
/// Offset of the word that identifies the owner of the desk.
const WHO: usize = SINK + LINE;
const ALL: usize = WHO + LINE;
/// Tag of the desk's registration. A peer finds the desk by it and the VCQ.
pub const TAG: u32 = 17;

const MAGIC: [u8; 8] = *b"utofu\0\0\0";

/// One end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct StreamEnd {
    /// STADD of its ring.
    pub ring: u64,
    /// Bytes of the ring. Behind it is the word for the peer's read position.
    pub len: u32,
    /// Maximum number of messages in the ring.
    pub promised: u32,
    /// Number of the first message: random. It identifies messages for an earlier process with the same VCQ.
    pub first: u64,
}

impl StreamEnd {
    /// Whether the peer's values are plausible, so that arithmetic with them is safe.
    pub fn is_possible(&self) -> bool {
        let lens = mail::LEAST as u32..=mail::LONGEST as u32;
        lens.contains(&self.len)
            && self.len.is_multiple_of(LINE as u32)
            && self.promised > 1
            && self
                .ring
                .checked_add((LINE + mail::LONGEST) as u64)
                .is_some()
    }
}

/// A greeting.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Said {
    magic: [u8; 8],
    /// Secret of the target.
    secret: [u8; SECRET],
    /// VCQ of the target.
    to: u64,
    end: StreamEnd,
    /// Address of the initiator.
    from: TofuAddress,
    protocol: u16,
    pad: [u8; 4],
}

/// An answer.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Answer {
    magic: [u8; 8],
    verdict: u64,
    end: StreamEnd,
    /// Number of the first message in the initiator's ring. Successive processes with one VCQ may have rings at the same place.
    asked: u64,
}

/// Result of a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GreetingReply {
    /// The stream begins; the target's end.
    Accepted(StreamEnd),
    /// The secret is wrong.
    Stranger,
    /// The target has another version of the protocol.
    OtherVersion,
    /// The target has no room for another stream.
    Full,
}

const ACCEPTED: u64 = 1;
const STRANGER: u64 = 2;
const OTHER_VERSION: u64 = 3;
const FULL: u64 = 4;

/// The cards and the door of this process.
pub(crate) struct GreetingSlots {
    memory: Pages,
}

/// Offsets in the desk of a process.
pub mod places {
    use super::*;

    /// A card.
    pub fn card(card: u32) -> u64 {
        (card as usize * CARD) as u64
    }

    /// The answer half of a card.
    pub fn answer(card: u32) -> u64 {
        self::card(card) + ANSWER as u64
    }

    /// The word at the door for this card number.
    pub fn door(card: u32) -> u64 {
        (DOOR + card as usize * size_of::<u64>()) as u64
    }

    /// Memory that all peers may write.
    pub fn sink() -> u64 {
        SINK as u64
    }

    /// The word with the [identity] of the process.
    pub fn who() -> u64 {
        WHO as u64
    }

    /// Card number of a write at the door that ends at this offset.
    pub fn card_at_door(end: u64) -> Option<u32> {
        let at = (end as usize).checked_sub(DOOR + size_of::<u64>())?;
        let card = at / size_of::<u64>();
        (card < CARDS && at.is_multiple_of(size_of::<u64>())).then_some(card as u32)
    }

    /// The own card with an answer that ends at this offset.
    pub fn answered(end: u64) -> Option<u32> {
        let card = (end as usize).checked_sub(1)? / CARD;
        (card < CARDS).then_some(card as u32)
    }
}

impl GreetingSlots {
    /// A desk with empty cards for the process with this secret. Errors: [`Error::Exhausted`].
    pub fn new(secret: &[u8; SECRET]) -> Result<Self> {
        let memory = Pages::new(ALL)?;
        let who = memory.base().wrapping_add(WHO);
        // SAFETY:
        // - the word is in the memory and aligned to a line. The memory is not shared yet.
        unsafe { who.cast::<u64>().write(identity(secret)) };
        Ok(GreetingSlots { memory })
    }

    /// Its memory, and the length.
    pub fn place(&self) -> (*mut u8, usize) {
        (self.memory.base(), ALL)
    }

    /// Writes a greeting on a card: a stream from `from`, with the end `end`, to `to`. The peer must not know of the card yet.
    pub fn write(&self, card: u32, to: &TofuAddress, from: TofuAddress, end: StreamEnd) {
        let said = Said {
            magic: MAGIC,
            secret: to.secret,
            to: to.vcq,
            end,
            from,
            protocol: PROTOCOL,
            pad: [0; 4],
        };
        let at = self.memory.base().wrapping_add(places::card(card) as usize);
        // SAFETY:
        // - the card is in the memory and aligned to a line. No peer reads it now.
        unsafe { at.cast::<Said>().write(said) };
    }

    /// Reads the answer on a card, after its notice, for the stream with this end. `None`: a late answer to another stream, or a duplicate. Errors: the
    /// answer is malformed.
    pub fn read(&self, card: u32, end: &StreamEnd) -> Result<Option<GreetingReply>> {
        let at = self
            .memory
            .base()
            .wrapping_add(places::answer(card) as usize);
        // SAFETY:
        // - the card is in the memory and aligned to a line. The peer wrote it before the notice.
        let answer = unsafe { at.cast::<Answer>().read_volatile() };
        answer.to(end)
    }
}

impl Answer {
    /// See [`GreetingSlots::read`].
    fn to(&self, end: &StreamEnd) -> Result<Option<GreetingReply>> {
        if self.magic != MAGIC {
            return Err(Error::PeerDead);
        }
        if self.asked != end.first {
            return Ok(None);
        }
        match self.verdict {
            ACCEPTED if self.end.is_possible() => Ok(Some(GreetingReply::Accepted(self.end))),
            STRANGER => Ok(Some(GreetingReply::Stranger)),
            OTHER_VERSION => Ok(Some(GreetingReply::OtherVersion)),
            FULL => Ok(Some(GreetingReply::Full)),
            _ => Err(Error::PeerDead),
        }
    }
}

impl Said {
    /// See [`Fetched::read`]. `from`: VCQ of the peer. `here`: VCQ of this process.
    fn greeted(&self, from: u64, here: u64) -> Greeted {
        if self.magic != MAGIC {
            return Greeted::Nobody;
        }
        if self.protocol != PROTOCOL || !self.end.is_possible() {
            return Greeted::Refused(GreetingReply::OtherVersion);
        }
        match (self.to == here, self.from.vcq == from) {
            (false, _) => Greeted::Nobody,
            (true, false) => Greeted::Refused(GreetingReply::Stranger),
            (true, true) => Greeted::By(Stranger {
                secret: self.secret,
                address: self.from,
                end: self.end,
            }),
        }
    }
}

/// A peer's card, which this process reads and answers.
pub(crate) struct Fetched {
    /// Memory for a card.
    block: Block,
    /// The peer's VCQ.
    pub from: Arc<PeerVcq>,
    /// Whether the owner of that VCQ was known at the fetch. If so, a card of another process means that the VCQ has a new owner.
    pub knew: bool,
    /// Number of the card.
    pub card: u32,
}

/// Content of a card.
pub(crate) enum Greeted {
    /// A peer begins a stream with this process.
    By(Stranger),
    /// A peer begins a stream, and gets this answer.
    Refused(GreetingReply),
    /// The card needs no answer: its owner has rewritten it for another target, or the VCQ has another owner now.
    Nobody,
}

/// A greeting.
pub(crate) struct Stranger {
    /// Secret of the intended target.
    pub secret: [u8; SECRET],
    /// Address of the peer.
    pub address: TofuAddress,
    /// The peer's end.
    pub end: StreamEnd,
}

impl Fetched {
    /// Memory for a card of `from`.
    pub fn new(block: Block, from: Arc<PeerVcq>, card: u32) -> Self {
        let knew = from.process().is_some();
        Fetched {
            block,
            from,
            knew,
            card,
        }
    }

    /// STADD and length for the fetch.
    pub fn place(&self) -> (u64, usize) {
        (self.block.stadd, ANSWER)
    }

    fn said(&self) -> Said {
        // SAFETY:
        // - the block belongs to this process and is aligned to a line. The network no longer writes it.
        unsafe { self.block.base.cast::<Said>().read_volatile() }
    }

    /// Content of the fetched card, for the process with the VCQ `here`.
    pub fn read(&self, here: u64) -> Greeted {
        self.said().greeted(self.from.vcq, here)
    }

    /// Writes the answer.
    pub fn answer(&mut self, verdict: GreetingReply) {
        let (verdict, end) = match verdict {
            GreetingReply::Accepted(end) => (ACCEPTED, end),
            GreetingReply::Stranger => (STRANGER, StreamEnd::zeroed()),
            GreetingReply::OtherVersion => (OTHER_VERSION, StreamEnd::zeroed()),
            GreetingReply::Full => (FULL, StreamEnd::zeroed()),
        };
        let answer = Answer {
            magic: MAGIC,
            verdict,
            end,
            asked: self.said().end.first,
        };
        let at = self.block.base.wrapping_add(ANSWER);
        // SAFETY:
        // - the second half of a block of this process, aligned to a line. The network does not read it now.
        unsafe { at.cast::<Answer>().write(answer) };
    }

    /// STADD and length of the answer.
    pub fn answered(&self) -> (u64, usize) {
        (self.block.stadd + ANSWER as u64, size_of::<Answer>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        Said {
            magic: MAGIC,
            secret: [7; SECRET],
            to: 2,
            end: StreamEnd {
                ring: 4096,
                len: 4096,
                promised: 16,
                first: 5,
            },
            from: TofuAddress::new([8; SECRET], 1),
            protocol: PROTOCOL,
            pad: [0; 4],
        }
    }

    #[test]
    fn cards_for_others_are_not_answered() {
        let nobody = |said: Said, from, to| matches!(said.greeted(from, to), Greeted::Nobody);
        assert!(matches!(said().greeted(1, 2), Greeted::By(one) if one.secret == [7; SECRET]));
        assert!(nobody(said(), 1, 3) && nobody(said(), 9, 3));
        assert!(nobody(Said::zeroed(), 0, 0), "nothing has been written");
        let liar = said().greeted(9, 2);
        assert!(matches!(liar, Greeted::Refused(GreetingReply::Stranger)));
        let protocol = PROTOCOL + 1;
        let other = Said { protocol, ..said() };
        assert!(matches!(
            other.greeted(1, 2),
            Greeted::Refused(GreetingReply::OtherVersion)
        ));
    }

    #[test]
    fn answers_to_who_had_the_ring_before_are_nobodys() {
        let end = said().end;
        let answer = Answer {
            magic: MAGIC,
            verdict: STRANGER,
            end: StreamEnd::zeroed(),
            asked: end.first,
        };
        assert_eq!(answer.to(&end), Ok(Some(GreetingReply::Stranger)));
        assert_eq!(answer.to(&StreamEnd { first: 6, ..end }), Ok(None));
        assert_eq!(Answer::zeroed().to(&end), Err(Error::PeerDead));
    }

    #[test]
    fn places_are_found_again() {
        for card in 0..CARDS as u32 {
            let word = size_of::<u64>() as u64;
            assert_eq!(places::card_at_door(places::door(card) + word), Some(card));
            let answer = places::answer(card) + size_of::<Answer>() as u64;
            assert_eq!(places::answered(answer), Some(card));
        }
        for nobody in [0, 1, 7, places::sink() + 8, u64::MAX] {
            assert_eq!(places::card_at_door(nobody), None, "{nobody}");
        }
        assert_eq!(places::answered(0), None);
        assert_eq!(places::answered(places::door(0) + 8), None);
        assert!(size_of::<Said>() <= ANSWER && size_of::<Answer>() <= CARD - ANSWER);
        assert_eq!((ALL % LINE, WHO % LINE), (0, 0));
        assert_ne!(places::who(), places::sink());
    }
}
