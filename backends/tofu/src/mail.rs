//! Messages: pieces of a stream, put into a ring of the peer's, with a remote notice for each. The last word of a message says what it is. The peer writes the
//! number of those that it has read to a word behind this process's ring: that is room for more.

use std::collections::VecDeque;

/// Bytes of the word at the end.
const TRAILER: usize = size_of::<u64>();
/// The most bytes of a message, with it.
pub const MESSAGE: usize = 2048;
/// The smallest ring, and the longest: in bytes.
pub const LEAST: usize = 1 << 10;
pub const LONGEST: usize = 1 << 24;
/// Behind a ring, where its peer writes.
pub const BEHIND: usize = 256;
/// Room in a ring that is kept for the last message.
const KEPT: usize = 64;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of the stream.
    Bytes = 1,
    /// The stream has ended: nothing comes after it.
    Close = 2,
}

/// The most bytes of a stream in a message that goes to a ring of so many bytes.
pub fn most(ring: usize) -> usize {
    MESSAGE.min(ring / 8) - TRAILER
}

/// Bytes of a message with so many of a stream.
pub fn size(body: usize) -> usize {
    body.next_multiple_of(TRAILER) + TRAILER
}

/// The word at the end of a message.
pub fn trailer(kind: Kind, body: usize, number: u32) -> u64 {
    (kind as u64) << 48 | (body as u64) << 32 | u64::from(number)
}

/// What it says: the kind, how many bytes of a stream, and the message's number.
pub fn split(trailer: u64) -> Option<(Kind, usize, u32)> {
    let kind = match trailer >> 48 {
        1 => Kind::Bytes,
        2 => Kind::Close,
        _ => return None,
    };
    Some((kind, (trailer >> 32) as usize & 0xffff, trailer as u32))
}

/// What is written to a ring of a peer's.
pub struct Outbox {
    ring: usize,
    promised: usize,
    /// Where the next message goes.
    at: usize,
    /// Bytes that each of those takes that have not been read, as far as is known, and of them all.
    under_way: VecDeque<usize>,
    used: usize,
    /// The number of the first message.
    first: u64,
    /// How many have been read.
    read: u64,
}

impl Outbox {
    /// Of a ring of so many bytes, in which `promised` messages may be, and whose first message has the number `first`.
    pub fn new(ring: usize, promised: usize, first: u64) -> Self {
        Outbox {
            ring,
            promised,
            at: 0,
            under_way: VecDeque::new(),
            used: 0,
            first,
            read: 0,
        }
    }

    /// The peer has read those before this number. What it cannot have read, another one has written here.
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

    /// The place of a message of so many bytes, what it takes with the bytes that are left out at the end of the ring, and its number. `None`: there is no room now.
    pub fn place(&self, kind: Kind, size: usize) -> Option<(usize, usize, u32)> {
        let (kept, one) = match kind {
            Kind::Bytes => (KEPT, 1),
            Kind::Close => (0, 0),
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

    /// It has been written there.
    pub fn is_written(&mut self, (at, takes): (usize, usize), size: usize) {
        self.at = at + size;
        self.used += takes;
        self.under_way.push_back(takes);
    }
}

/// What has been read of a ring of this process's.
#[derive(Default)]
pub struct Inbox {
    /// Messages.
    pub read: u64,
    /// Of them those that the peer knows of.
    told: u64,
    /// Bytes of the others.
    untold: usize,
}

impl Inbox {
    /// The next message has been read. Whether the peer is to be told, as it may wait for room.
    pub fn has_read(&mut self, size: usize, ring: usize, promised: usize) -> bool {
        self.read += 1;
        self.untold += size;
        self.untold >= ring / 4 || (self.read - self.told) as usize >= promised / 2
    }

    /// The peer has been told of all.
    pub fn has_told(&mut self) {
        self.told = self.read;
        self.untold = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_come_back() {
        for kind in [Kind::Bytes, Kind::Close] {
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

    /// A ring as the peer sees it: messages come in order, none overwrites one that has not been read, and who waits for room gets it.
    #[test]
    fn a_ring_is_never_overrun_and_never_stuck() {
        // Numbers begin anywhere, and go round.
        const FIRST: u64 = u64::MAX - 1000;
        for (ring, promised) in [(4096, 8), (16384, 64), (4096, 64)] {
            let mut out = Outbox::new(ring, promised, FIRST);
            let mut inbox = Inbox::default();
            let mut there: VecDeque<(usize, usize)> = VecDeque::new();
            let mut random = 12345u32;
            let (mut sent, mut told) = (0u32, 0);
            while sent < 20_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let size = size((random >> 8) as usize % (most(ring) + 1));
                match out.place(Kind::Bytes, size) {
                    Some((at, takes, number)) => {
                        assert_eq!(number, (FIRST as u32).wrapping_add(sent));
                        let end = at + size;
                        assert!(end <= ring);
                        let apart = |&(begin, stop): &(usize, usize)| end <= begin || stop <= at;
                        assert!(there.iter().all(apart));
                        there.push_back((at, end));
                        assert!(there.len() < promised);
                        out.is_written((at, takes), size);
                        sent += 1;
                    }
                    None => {
                        // There is always room for the last one.
                        assert!(out.place(Kind::Close, super::size(0)).is_some());
                        while let Some((at, end)) = there.pop_front() {
                            if inbox.has_read(end - at, ring, promised) {
                                told = inbox.read;
                                inbox.has_told();
                            }
                        }
                        // Of another stream.
                        for foreign in [1 << 40, FIRST - 1, FIRST.wrapping_add(u64::from(sent) + 1)]
                        {
                            out.have_been_read(foreign);
                            assert!(out.place(Kind::Bytes, size).is_none());
                        }
                        out.have_been_read(FIRST.wrapping_add(told));
                        assert!(out.place(Kind::Bytes, size).is_some(), "{ring} {promised}");
                    }
                }
            }
        }
    }
}
