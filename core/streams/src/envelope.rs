//! Envelopes of frames: the number of a request or answer, and the order of a request.

use bytemuck::{Pod, Zeroable};

use unipgas_base::Result;
use unipgas_engine::agent::wire::{self, Malformed};

/// Precedes a request.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RequestHeader {
    /// Number that the answer repeats, from 1 on. 0: no answer.
    pub number: u64,
    /// The channel of the operation. An ordered request comes after all earlier ones of its channel. 0: none.
    pub channel: u32,
    /// 1: the request is ordered.
    pub ordered: u32,
}

/// Precedes an answer: the number of the request. 0: there was no request.
pub type Answered = u64;

/// The envelope, the message, and the length of both in bytes.
pub(crate) type Framed<'a, H> = (H, &'a [u8], usize);

/// The first frame of a stream with envelopes of type `H`. `None`: it is not complete yet.
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

/// Appends the envelope, and the frame that `encode` appends. Errors: as `encode`; the bytes are unchanged then.
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
    use unipgas_base::Error;
    use unipgas_engine::agent::{RegisteredPlace, Request};

    #[test]
    fn frames_come_whole_with_what_is_ahead() {
        let place = RegisteredPlace {
            slot: 1,
            generation: 2,
            offset: 3,
        };
        let mut stream = Vec::new();
        for number in 1..3 {
            let head = RequestHeader {
                number,
                channel: 7,
                ordered: 1,
            };
            let request = Request::Import { place };
            frame(&mut stream, head, |into| request.encode(into)).unwrap();
        }
        for len in 0..stream.len() / 2 {
            assert!(first::<RequestHeader>(&stream[..len]).unwrap().is_none());
        }
        let mut rest = stream.as_slice();
        for number in 1..3 {
            let (head, message, len) = first::<RequestHeader>(rest).unwrap().expect("a whole one");
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
