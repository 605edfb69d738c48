//! Bytes on their way out.

use super::network::{Ended, Stream};

/// Room that is kept for what leaves next.
const KEPT: usize = 1 << 20;

/// What has not left yet.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    /// Where frames are appended.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Sends what there is room for. Errors: the stream has ended.
    pub fn push(&mut self, stream: &dyn Stream) -> Result<(), Ended> {
        self.push_by(|bytes| stream.push(bytes))
    }

    /// As [`push`](Outgoing::push), for what [may travel along](Stream::push_along) with something else.
    pub fn push_along(&mut self, stream: &dyn Stream) -> Result<(), Ended> {
        self.push_by(|bytes| stream.push_along(bytes))
    }

    fn push_by(&mut self, push: impl Fn(&[u8]) -> Result<usize, Ended>) -> Result<(), Ended> {
        while !self.is_empty() {
            match push(&self.bytes[self.sent..])? {
                0 => break,
                sent => self.sent += sent,
            }
        }
        // Not more often than what is moved has left.
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
        // More than the stream takes.
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
