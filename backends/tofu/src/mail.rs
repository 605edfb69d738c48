//! Messages: parts of a stream, put into the peer's ring with a remote notice each. The last word of a message describes it. The peer writes its read
//! position to the word behind this process's ring, which makes room for more.

use std::collections::VecDeque;

/// Bytes of the word at the end.
const TRAILER: usize = size_of::<u64>();
/// Maximum bytes of a message, with the trailer.
pub const MESSAGE: usize = 2048;
/// Smallest and largest ring, in bytes.
pub const LEAST: usize = 1 << 10;
pub const LONGEST: usize = 1 << 24;
/// Bytes behind a ring, for the peer's read position.
pub const BEHIND: usize = 256;
/// Bytes of a ring that are reserved for the last message.
const KEPT: usize = 64;

/// Type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MessageType {
    /// Bytes of the stream.
    Bytes = 1,
    /// The end of the stream: the last message.
    Close = 2,
}

/// Maximum stream bytes of a message in a ring of `ring` bytes.
pub fn most(ring: usize) -> usize {
    MESSAGE.min(ring / 8) - TRAILER
}

/// Bytes of a message with `body` stream bytes.
pub fn size(body: usize) -> usize {
    body.next_multiple_of(TRAILER) + TRAILER
}

/// The word at the end of a message.
pub fn trailer(kind: MessageType, body: usize, number: u32) -> u64 {
    (kind as u64) << 48 | (body as u64) << 32 | u64::from(number)
}

/// Decodes a trailer: the type, the number of stream bytes, and the message's number.
pub fn split(trailer: u64) -> Option<(MessageType, usize, u32)> {
    let kind = match trailer >> 48 {
        1 => MessageType::Bytes,
        2 => MessageType::Close,
        _ => return None,
    };
    Some((kind, (trailer >> 32) as usize & 0xffff, trailer as u32))
}

/// Sender's view of a peer's ring.
pub(crate) struct RingWriter {
    ring: usize,
    promised: usize,
    /// Offset of the next message.
    at: usize,
    /// Sizes in the ring of the messages that may be unread, and their sum.
    under_way: VecDeque<usize>,
    used: usize,
    /// Number of the first message.
    first: u64,
    /// Count of read messages.
    read: u64,
}

impl RingWriter {
    /// A ring of `ring` bytes for at most `promised` messages. The first message has the number `first`.
    pub fn new(ring: usize, promised: usize, first: u64) -> Self {
        RingWriter {
            ring,
            promised,
            at: 0,
            under_way: VecDeque::new(),
            used: 0,
            first,
            read: 0,
        }
    }

    /// Notes that the peer has read the messages before number `before`. Impossible values are ignored: an earlier user of this memory wrote them.
    pub fn have_been_read(&mut self, before: u64) {
        let count = before.wrapping_sub(self.first);
        if count > self.read + self.under_way.len() as u64 {
            return;
        }
        while self.read < count
            && let Some(bytes) = self.under_way.pop_front()
        {
            self.used -= bytes;
            self.read += 1;
        }
    }

    /// Place for a message of `size` bytes: its offset, its bytes in the ring with a skipped end, and its number. `None`: no room now.
    pub fn place(&self, kind: MessageType, size: usize) -> Option<(usize, usize, u32)> {
        let (kept, one) = match kind {
            MessageType::Bytes => (KEPT, 1),
            MessageType::Close => (0, 0),
        };
        let (at, left_out) = match self.at + size > self.ring {
            true => (0, self.ring - self.at),
            false => (self.at, 0),
        };
        let takes = left_out + size;
        let room = self.used + takes + kept <= self.ring;
        let number = self
            .first
            .wrapping_add(self.read + self.under_way.len() as u64);
        (room && self.under_way.len() + one < self.promised).then_some((at, takes, number as u32))
    }

    /// Notes that the message is posted.
    pub fn mark_written(&mut self, (at, takes): (usize, usize), size: usize) {
        self.at = at + size;
        self.used += takes;
        self.under_way.push_back(takes);
    }
}

/// Receiver's view of an own ring.
#[derive(Default)]
pub(crate) struct RingReader {
    /// Count of read messages.
    pub read: u64,
    /// Count that the peer knows.
    told: u64,
    /// Bytes read since then.
    untold: usize,
}

impl RingReader {
    /// Notes that the next message is read. True: report it, because the peer may wait for room.
    pub fn mark_read(&mut self, size: usize, ring: usize, promised: usize) -> bool {
        self.read += 1;
        self.untold += size;
        self.untold >= ring / 4 || (self.read - self.told) as usize >= promised / 2
    }

    /// Notes that the peer knows the count.
    pub fn mark_reported(&mut self) {
        self.told = self.read;
        self.untold = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_come_back() {
        for kind in [MessageType::Bytes, MessageType::Close] {
            for (body, number) in [(0, 0), (most(1 << 20), u32::MAX), (7, 1)] {
                assert_eq!(
                    split(trailer(kind, body, number)),
                    Some((kind, body, number))
                );
            }
        }
        assert_eq!(split(0), None);
        assert_eq!(split(u64::MAX), None);
    }

    /// Peer's view of a ring: messages arrive in order, none overwrites an unread one, and a waiting sender gets room.
    #[test]
    fn a_ring_is_never_overrun_and_never_stuck() {
        // Numbers start at an arbitrary value, and wrap.
        const FIRST: u64 = u64::MAX - 1000;
        for (ring, promised) in [(4096, 8), (16384, 64), (4096, 64)] {
            let mut out = RingWriter::new(ring, promised, FIRST);
            let mut inbox = RingReader::default();
            let mut there: VecDeque<(usize, usize)> = VecDeque::new();
            let mut random = 12345u32;
            let (mut sent, mut told) = (0u32, 0);
            while sent < 20_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let size = size((random >> 8) as usize % (most(ring) + 1));
                match out.place(MessageType::Bytes, size) {
                    Some((at, takes, number)) => {
                        assert_eq!(number, (FIRST as u32).wrapping_add(sent));
                        let end = at + size;
                        assert!(end <= ring);
                        let apart = |&(begin, stop): &(usize, usize)| end <= begin || stop <= at;
                        assert!(there.iter().all(apart));
                        there.push_back((at, end));
                        assert!(there.len() < promised);
                        out.mark_written((at, takes), size);
                        sent += 1;
                    }
                    None => {
                        // There is always room for the last message.
                        assert!(out.place(MessageType::Close, super::size(0)).is_some());
                        while let Some((at, end)) = there.pop_front() {
                            if inbox.mark_read(end - at, ring, promised) {
                                told = inbox.read;
                                inbox.mark_reported();
                            }
                        }
                        // Numbers of another stream.
                        for foreign in [1 << 40, FIRST - 1, FIRST.wrapping_add(u64::from(sent) + 1)]
                        {
                            out.have_been_read(foreign);
                            assert!(out.place(MessageType::Bytes, size).is_none());
                        }
                        out.have_been_read(FIRST.wrapping_add(told));
                        assert!(
                            out.place(MessageType::Bytes, size).is_some(),
                            "{ring} {promised}"
                        );
                    }
                }
            }
        }
    }
}
