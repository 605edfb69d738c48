//! What goes ahead of each frame: which request it is or answers, and what must come before it.

use bytemuck::{Pod, Zeroable};

use crate::Result;
use crate::agent::wire::{self, Malformed};

/// Ahead of a request.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Envelope {
    /// By which its answer names it, from 1 on; 0 where there is none.
    pub number: u64,
    /// The channel that it was posted to: what is ordered comes after all earlier ones of that. 0: to none.
    pub channel: u32,
    /// 1: it is ordered.
    pub ordered: u32,
}

/// Ahead of an answer: the request's number; 0 for what nobody has asked.
pub type Answered = u64;

/// What is ahead, the message, and how many bytes they take.
pub type Framed<'a, H> = (H, &'a [u8], usize);

/// The first frame of a stream whose frames have an `H` ahead; `None` while it has not come whole.
pub fn first<H: Pod>(bytes: &[u8]) -> Result<Option<Framed<'_, H>>, Malformed> {
    let Some((head, rest)) = bytes.split_at_checked(size_of::<H>()) else {
        return Ok(None);
    };
    let whole = wire::first_message(rest)?;
    Ok(whole.map(|(message, len)| {
        let head = bytemuck::pod_read_unaligned(head);
        (head, message, size_of::<H>() + len)
    }))
}

/// Appends what goes ahead, and the frame that `encode` appends. Errors: those of `encode`; then nothing is appended.
pub fn frame<H: Pod>(
    into: &mut Vec<u8>,
    head: H,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let before = into.len();
    into.extend_from_slice(bytemuck::bytes_of(&head));
    encode(into).inspect_err(|_| into.truncate(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::agent::{Place, Request};

    #[test]
    fn frames_come_whole_with_what_is_ahead() {
        let place = Place {
            slot: 1,
            generation: 2,
            offset: 3,
        };
        let mut stream = Vec::new();
        for number in 1..3 {
            let head = Envelope {
                number,
                channel: 7,
                ordered: 1,
            };
            let request = Request::Import { place };
            frame(&mut stream, head, |into| request.encode(into)).unwrap();
        }
        for len in 0..stream.len() / 2 {
            assert!(first::<Envelope>(&stream[..len]).unwrap().is_none());
        }
        let mut rest = stream.as_slice();
        for number in 1..3 {
            let (head, message, len) = first::<Envelope>(rest).unwrap().expect("a whole one");
            assert_eq!((head.number, head.channel, head.ordered), (number, 7, 1));
            assert_eq!(Request::decode(message), Ok(Request::Import { place }));
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn of_what_is_refused_nothing_stays() {
        let mut stream = vec![1, 2, 3];
        let refused = frame(&mut stream, 7u64, |into| {
            into.push(4);
            Err(Error::Unsupported)
        });
        assert_eq!(refused, Err(Error::Unsupported));
        assert_eq!(stream, [1, 2, 3]);
    }
}
