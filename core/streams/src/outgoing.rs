//! Bytes that wait for room in a stream.

use super::network::{Stream, StreamEnded};

/// Capacity that is kept for the next frames, in bytes.
const KEPT: usize = 1 << 20;

/// Bytes that have not left.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    /// Frames are appended here.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether all bytes have left.
    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Sends the bytes that there is room for. Errors: the stream has ended.
    pub fn push(&mut self, stream: &dyn Stream) -> Result<(), StreamEnded> {
        self.push_by(|bytes| stream.push(bytes))
    }

    /// As [`push`](Outgoing::push), for bytes that [may wait](Stream::push_along) for others.
    pub(crate) fn push_along(&mut self, stream: &dyn Stream) -> Result<(), StreamEnded> {
        self.push_by(|bytes| stream.push_along(bytes))
    }

    fn push_by(
        &mut self,
        push: impl Fn(&[u8]) -> Result<usize, StreamEnded>,
    ) -> Result<(), StreamEnded> {
        while !self.is_empty() {
            match push(&self.bytes[self.sent..])? {
                0 => break,
                sent => self.sent += sent,
            }
        }
        // The rest is moved at most as often as bytes leave: a move costs no more than the bytes that have left.
        if self.sent >= self.left() {
            self.bytes.drain(..self.sent);
            self.bytes.shrink_to(KEPT);
            self.sent = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::wire::pair;
    use super::*;

    #[test]
    fn what_has_left_takes_no_room() {
        const PART: usize = 64 << 10;
        let (one, other) = pair(PART * 3 + 17);
        let mut outgoing = Outgoing::default();
        let (mut pushed, mut taken) = (0, 0);
        let push = |outgoing: &mut Outgoing, pushed: &mut usize| {
            outgoing.bytes().extend([*pushed as u8; PART]);
            *pushed += 1;
            outgoing.push(&*one).unwrap();
        };
        let mut come = Vec::new();
        let mut take = |outgoing: &mut Outgoing| {
            while come.len() < PART {
                other.pull(&mut come).unwrap();
                outgoing.push(&*one).unwrap();
            }
            assert_eq!(come[..PART], [taken as u8; PART]);
            come.drain(..PART);
            taken += 1;
            taken
        };
        // Fills the stream.
        while outgoing.is_empty() {
            push(&mut outgoing, &mut pushed);
        }
        for _ in 0..1000 {
            push(&mut outgoing, &mut pushed);
            assert!(outgoing.bytes.capacity() < 16 * PART);
            take(&mut outgoing);
        }
        while take(&mut outgoing) < pushed {}
        assert!(outgoing.is_empty());
    }
}
