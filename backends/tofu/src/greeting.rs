//! How a stream begins. Nobody has room for what strangers write, so nothing is written to them but a notice: who begins a stream writes what he has to say on
//! a card of his own, and a word that says nothing at the peer's door, whose notice names him and the card. The peer fetches the card, and
//! writes the answer on it.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use unipgas_core::pages::Pages;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::{Error, Result};

use crate::address::{Address, PROTOCOL, identity};
use crate::blocks::Block;
use crate::mail;
use crate::net::Target;

/// Streams that may be beginning here at once.
pub const CARDS: usize = 64;
/// Bytes of a card, and of the half with the answer.
pub const CARD: usize = 512;
const ANSWER: usize = CARD / 2;
/// Words at the door, one for each card of whoever comes.
const DOOR: usize = CARDS * CARD;
/// What anybody may write to.
const SINK: usize = DOOR + (CARDS * size_of::<u64>()).next_multiple_of(LINE);
const LINE: usize = 256;
/// The word that tells whose desk it is.
const WHO: usize = SINK + LINE;
const ALL: usize = WHO + LINE;
/// Whoever knows the VCQ knows where it is by this tag.
pub const TAG: u32 = 17;

const MAGIC: [u8; 8] = *b"utofu\0\0\0";

/// One end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct End {
    /// Where its ring begins.
    pub ring: u64,
    /// Bytes of the ring; behind it is the word for the number of messages that have been read.
    pub len: u32,
    /// Messages that may be in it.
    pub promised: u32,
    /// The number of the first one, by chance: what was meant for a process that had the VCQ before has other numbers.
    pub first: u64,
}

impl End {
    /// Whether messages can be put there: what a peer says is used to reckon with.
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

/// What who begins says.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Said {
    magic: [u8; 8],
    /// Of the process that is meant.
    secret: [u8; SECRET],
    /// Its VCQ.
    to: u64,
    end: End,
    /// Of who begins.
    from: Address,
    protocol: u16,
    pad: [u8; 4],
}

/// The answer.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Answer {
    magic: [u8; 8],
    verdict: u64,
    end: End,
    /// The number of the first message in the ring of whoever is answered: rings of processes that have one VCQ after each other are at the same place.
    asked: u64,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It begins, and this is the other end.
    Accepted(End),
    /// The process does not know the secret.
    Stranger,
    /// It speaks another version.
    OtherVersion,
    /// It has no room for another one.
    Full,
}

const ACCEPTED: u64 = 1;
const STRANGER: u64 = 2;
const OTHER_VERSION: u64 = 3;
const FULL: u64 = 4;

/// This process's cards and door.
pub struct Desk {
    memory: Pages,
}

/// Places in the desk of any process, from its beginning.
pub mod places {
    use super::*;

    /// A card.
    pub fn card(card: u32) -> u64 {
        (card as usize * CARD) as u64
    }

    /// The half of a card with the answer.
    pub fn answer(card: u32) -> u64 {
        self::card(card) + ANSWER as u64
    }

    /// The word at the door for whoever has this card.
    pub fn door(card: u32) -> u64 {
        (DOOR + card as usize * size_of::<u64>()) as u64
    }

    /// What anybody may write to.
    pub fn sink() -> u64 {
        SINK as u64
    }

    /// The word that is the [identity] of the process.
    pub fn who() -> u64 {
        WHO as u64
    }

    /// The card of who has written at the door, up to here.
    pub fn card_at_door(end: u64) -> Option<u32> {
        let at = (end as usize).checked_sub(DOOR + size_of::<u64>())?;
        let card = at / size_of::<u64>();
        (card < CARDS && at.is_multiple_of(size_of::<u64>())).then_some(card as u32)
    }

    /// The card of this process on which an answer ends here.
    pub fn answered(end: u64) -> Option<u32> {
        let card = (end as usize).checked_sub(1)? / CARD;
        (card < CARDS).then_some(card as u32)
    }
}

impl Desk {
    /// That of the process with this secret, with nothing on the cards. Errors: [`Error::Exhausted`].
    pub fn new(secret: &[u8; SECRET]) -> Result<Self> {
        let memory = Pages::new(ALL)?;
        let who = memory.base().wrapping_add(WHO);
        // SAFETY:
        // - in the memory, aligned to a line, which nobody else knows yet.
        unsafe { who.cast::<u64>().write(identity(secret)) };
        Ok(Desk { memory })
    }

    /// Where it is, and how many bytes.
    pub fn place(&self) -> (*mut u8, usize) {
        (self.memory.base(), ALL)
    }

    /// Writes on a card what begins a stream to `to` from `from`, whose end is `end`. Nobody has been told of the card.
    pub fn write(&self, card: u32, to: &Address, from: Address, end: End) {
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
        // - one of the cards, aligned to a line, which nobody reads now.
        unsafe { at.cast::<Said>().write(said) };
    }

    /// The answer on a card, of which a notice has told, to who has this end. `None`: it is somebody else's, or the second one. Errors: it is none.
    pub fn read(&self, card: u32, end: &End) -> Result<Option<Verdict>> {
        let at = self
            .memory
            .base()
            .wrapping_add(places::answer(card) as usize);
        // SAFETY:
        // - one of the cards, aligned to a line; it has been written before the notice.
        let answer = unsafe { at.cast::<Answer>().read_volatile() };
        answer.to(end)
    }
}

impl Answer {
    /// As [`Desk::read`].
    fn to(&self, end: &End) -> Result<Option<Verdict>> {
        if self.magic != MAGIC {
            return Err(Error::PeerDead);
        }
        if self.asked != end.first {
            return Ok(None);
        }
        match self.verdict {
            ACCEPTED if self.end.is_possible() => Ok(Some(Verdict::Accepted(self.end))),
            STRANGER => Ok(Some(Verdict::Stranger)),
            OTHER_VERSION => Ok(Some(Verdict::OtherVersion)),
            FULL => Ok(Some(Verdict::Full)),
            _ => Err(Error::PeerDead),
        }
    }
}

impl Said {
    /// As [`Fetched::read`], of who has the VCQ `from`, to the process with the VCQ `here`.
    fn greeted(&self, from: u64, here: u64) -> Greeted {
        if self.magic != MAGIC {
            return Greeted::Nobody;
        }
        if self.protocol != PROTOCOL || !self.end.is_possible() {
            return Greeted::Refused(Verdict::OtherVersion);
        }
        match (self.to == here, self.from.vcq == from) {
            (false, _) => Greeted::Nobody,
            (true, false) => Greeted::Refused(Verdict::Stranger),
            (true, true) => Greeted::By(Stranger {
                secret: self.secret,
                address: self.from,
                end: self.end,
            }),
        }
    }
}

/// A card of a peer's that this process reads, and answers.
pub struct Fetched {
    /// Room for a card.
    block: Block,
    /// The peer's VCQ.
    pub from: Arc<Target>,
    /// Whether it was known which process has that when the card was asked for: another one that it tells of has come after that, then.
    pub knew: bool,
    /// Which of its cards.
    pub card: u32,
}

/// What a card says.
pub enum Greeted {
    /// This one begins a stream with this process.
    By(Stranger),
    /// Somebody does, who is answered this.
    Refused(Verdict),
    /// It is another process's, and nothing is written on it: the card has been written anew since, or another process has the VCQ of who wrote it.
    Nobody,
}

/// What somebody who begins a stream says.
pub struct Stranger {
    /// Whom he means.
    pub secret: [u8; SECRET],
    /// Who he is.
    pub address: Address,
    /// His end.
    pub end: End,
}

impl Fetched {
    /// With room for a card.
    pub fn new(block: Block, from: Arc<Target>, card: u32) -> Self {
        let knew = from.process().is_some();
        Fetched {
            block,
            from,
            knew,
            card,
        }
    }

    /// Where it comes to, and so many bytes of it.
    pub fn place(&self) -> (u64, usize) {
        (self.block.stadd, ANSWER)
    }

    fn said(&self) -> Said {
        // SAFETY:
        // - a block of this process's, aligned to a line, to which nothing is written any more.
        unsafe { self.block.base.cast::<Said>().read_volatile() }
    }

    /// What it says to the process with this VCQ, once it is here.
    pub fn read(&self, here: u64) -> Greeted {
        self.said().greeted(self.from.vcq, here)
    }

    /// Writes the answer.
    pub fn answer(&mut self, verdict: Verdict) {
        let (verdict, end) = match verdict {
            Verdict::Accepted(end) => (ACCEPTED, end),
            Verdict::Stranger => (STRANGER, End::zeroed()),
            Verdict::OtherVersion => (OTHER_VERSION, End::zeroed()),
            Verdict::Full => (FULL, End::zeroed()),
        };
        let answer = Answer {
            magic: MAGIC,
            verdict,
            end,
            asked: self.said().end.first,
        };
        let at = self.block.base.wrapping_add(ANSWER);
        // SAFETY:
        // - the second half of a block of this process's, aligned to a line, which nobody reads now.
        unsafe { at.cast::<Answer>().write(answer) };
    }

    /// Where the answer is, and how many bytes.
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
            end: End {
                ring: 4096,
                len: 4096,
                promised: 16,
                first: 5,
            },
            from: Address::new([8; SECRET], 1),
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
        assert!(matches!(liar, Greeted::Refused(Verdict::Stranger)));
        let protocol = PROTOCOL + 1;
        let other = Said { protocol, ..said() };
        assert!(matches!(
            other.greeted(1, 2),
            Greeted::Refused(Verdict::OtherVersion)
        ));
    }

    #[test]
    fn answers_to_who_had_the_ring_before_are_nobodys() {
        let end = said().end;
        let answer = Answer {
            magic: MAGIC,
            verdict: STRANGER,
            end: End::zeroed(),
            asked: end.first,
        };
        assert_eq!(answer.to(&end), Ok(Some(Verdict::Stranger)));
        assert_eq!(answer.to(&End { first: 6, ..end }), Ok(None));
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
