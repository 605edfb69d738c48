//! Cards of peers, answers on own cards, and the rings that they describe.

use super::*;
use crate::edata::NoticeType;
use crate::mail::{self, MessageType, RingWriter};

const VCQ: u64 = 77;
const HERE: u64 = 78;
const RING: u64 = 4096;

fn end() -> StreamEnd {
    StreamEnd {
        ring: RING,
        len: 4096,
        promised: 16,
        first: u64::MAX - 3,
    }
}

/// A card of a peer, and then its read positions.
pub(crate) fn card(bytes: &[u8]) {
    let Some((said, rest)) = bytes.split_at_checked(size_of::<Said>()) else {
        return;
    };
    let said: Said = bytemuck::pod_read_unaligned(said);
    if let Greeted::By(stranger) = said.greeted(VCQ, HERE) {
        write_to(stranger.end, rest);
    }
}

/// An answer on a card, and then read positions.
pub(crate) fn answer(bytes: &[u8]) {
    let Some((answer, rest)) = bytes.split_at_checked(size_of::<Answer>()) else {
        return;
    };
    let answer: Answer = bytemuck::pod_read_unaligned(answer);
    if let Ok(Some(GreetingReply::Accepted(end))) = answer.to(&end()) {
        write_to(end, rest);
    }
}

/// Writes messages to the ring that a peer describes. `read`: its read positions.
fn write_to(end: StreamEnd, read: &[u8]) {
    let len = end.len as usize;
    let mut out = RingWriter::new(len, end.promised as usize, end.first);
    let behind = end.ring + u64::from(end.len);
    for word in read.as_chunks().0 {
        out.have_been_read(u64::from_le_bytes(*word));
        for body in [mail::most(len), 0, 9] {
            let size = mail::size(body);
            while let Some((at, takes, _)) = out.place(MessageType::Bytes, size) {
                assert!(at + size <= len && end.ring + ((at + size) as u64) <= behind);
                out.mark_written((at, takes), size);
            }
        }
        assert!(out.place(MessageType::Close, mail::size(0)).is_some());
    }
}

/// Trailers of messages, and offsets of notices.
pub(crate) fn notice(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks();
    for word in words.iter().map(|word| u64::from_le_bytes(*word)) {
        if let Some((_, body, _)) = mail::split(word) {
            assert!(mail::size(body) <= 1 << 17);
        }
        let _ = NoticeType::of(word);
        for card in [places::card_at_door(word), places::answered(word)] {
            assert!(card.is_none_or(|card| (card as usize) < CARDS));
        }
        let _ = TofuAddress::decode(bytes);
        let _ = unipgas_core::streams::greeting::foreign_address(bytes, PROTOCOL, "tofu");
    }
}

pub(crate) fn cards() -> Vec<Vec<u8>> {
    let said = Said {
        magic: MAGIC,
        secret: [7; SECRET],
        to: HERE,
        end: end(),
        from: TofuAddress::new([8; SECRET], VCQ),
        protocol: PROTOCOL,
        pad: [0; 4],
    };
    let read = [u64::MAX - 3, u64::MAX - 1, 2, 9];
    vec![
        [bytemuck::bytes_of(&said), bytemuck::bytes_of(&read)].concat(),
        bytemuck::bytes_of(&said).to_vec(),
    ]
}

pub(crate) fn answers() -> Vec<Vec<u8>> {
    let answer = |verdict| Answer {
        magic: MAGIC,
        verdict,
        end: end(),
        asked: end().first,
    };
    let read = [u64::MAX - 3, 0, 1];
    let all = [ACCEPTED, STRANGER, OTHER_VERSION, FULL].map(answer);
    let all = all.iter().map(bytemuck::bytes_of);
    all.map(|answer| [answer, bytemuck::bytes_of(&read)].concat())
        .collect()
}

pub(crate) fn notices() -> Vec<Vec<u8>> {
    let words = [
        mail::trailer(MessageType::Bytes, 100, 7),
        mail::trailer(MessageType::Close, 0, 8),
        places::door(3) + 8,
        places::answer(2) + 9,
        NoticeType::Mail.to(0),
    ];
    let address = TofuAddress::new([8; SECRET], VCQ);
    vec![
        bytemuck::bytes_of(&words).to_vec(),
        bytemuck::bytes_of(&address).to_vec(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_in_which_nothing_has_room_is_no_end() {
        assert!(end().is_possible());
        for wrong in [
            StreamEnd { len: 0, ..end() },
            StreamEnd { len: 63, ..end() },
            StreamEnd {
                len: u32::MAX,
                ..end()
            },
            StreamEnd {
                len: 4096 + 8,
                ..end()
            },
            StreamEnd {
                promised: 0,
                ..end()
            },
            StreamEnd {
                ring: u64::MAX - 4096,
                ..end()
            },
        ] {
            assert!(!wrong.is_possible(), "{wrong:?}");
        }
    }
}
