//! 128 opaque bytes with one part for each transport: the wire form of addresses and region keys.

use std::ops::Range;

use crate::{Error, Result};

/// Number of a kind of transport in an [`Address`] or a [`RegionKey`]. Each backend has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(u8);

impl Tag {
    /// Threads of one process that play several processes.
    pub const LOOPBACK: Tag = Tag::new(1);

    /// The tag with this number.
    ///
    /// # Panics
    /// For 0, which ends the list of parts.
    pub const fn new(number: u8) -> Tag {
        assert!(number != 0, "tag 0 ends a bundle");
        Tag(number)
    }
}

/// Bytes of a bundle.
pub const BUNDLE_LEN: usize = 128;

/// Parts, one after the other: tag (1 byte), length (1 byte), bytes. A zero tag ends the list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bundle([u8; BUNDLE_LEN]);

impl Bundle {
    /// Packs `parts`. Errors: [`Error::Exhausted`] if they need more than [`BUNDLE_LEN`] bytes.
    pub fn pack<'a>(parts: impl IntoIterator<Item = (Tag, &'a [u8])>) -> Result<Self> {
        let mut bytes = [0u8; BUNDLE_LEN];
        let mut at = 0;
        for (tag, part) in parts {
            let end = at + 2 + part.len();
            if end > BUNDLE_LEN {
                return Err(Error::Exhausted(format!(
                    "room in an address or key of {BUNDLE_LEN} bytes"
                )));
            }
            bytes[at] = tag.0;
            bytes[at + 1] = part.len() as u8;
            bytes[at + 2..end].copy_from_slice(part);
            at = end;
        }
        Ok(Bundle(bytes))
    }

    /// The part of `tag`, if there is one. Invalid bytes give `None`, never a panic.
    pub(crate) fn part(&self, tag: Tag) -> Option<&[u8]> {
        let begins = std::iter::once(0).chain(self.ends());
        let (begin, end) = begins.zip(self.ends()).find(|at| self.0[at.0] == tag.0)?;
        Some(&self.0[begin + 2..end])
    }

    /// Number of parts.
    pub fn count(&self) -> usize {
        self.ends().count()
    }

    /// A bundle with only the parts `numbers`, in their order. Numbers beyond the last part are ignored.
    pub fn only(&self, numbers: Range<usize>) -> Self {
        let mut bytes = [0; BUNDLE_LEN];
        let mut len = 0;
        let mut begin = 0;
        for (number, end) in self.ends().enumerate() {
            if numbers.contains(&number) {
                let part = &self.0[begin..end];
                bytes[len..len + part.len()].copy_from_slice(part);
                len += part.len();
            }
            begin = end;
        }
        Bundle(bytes)
    }

    /// The ends of the parts, up to the first invalid part.
    fn ends(&self) -> impl Iterator<Item = usize> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let [tag, len] = *self.0.get(at..at + 2)?.first_chunk()?;
            let end = at + 2 + usize::from(len);
            (tag != 0 && end <= BUNDLE_LEN).then(|| {
                at = end;
                end
            })
        })
    }

    /// The wire form.
    pub fn as_bytes(&self) -> &[u8; BUNDLE_LEN] {
        &self.0
    }

    /// Reads the wire form. Errors: [`Error::InvalidArgument`] for another length than [`BUNDLE_LEN`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        bytes.try_into().map(Bundle).map_err(|_| {
            Error::InvalidArgument(format!(
                "an address or key has {BUNDLE_LEN} bytes, not {}",
                bytes.len()
            ))
        })
    }
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.0.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
        for byte in &self.0[..used] {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// The address of a process: opaque, of fixed size. It may be given to any process by any means.
pub type Address = Bundle;

/// The wire form of a region's key. Each process that has it, and reaches the owner, may import the region.
pub type RegionKey = Bundle;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_garbage_is_refused() {
        let bundle =
            Bundle::pack([(Tag::LOOPBACK, &b"ab"[..]), (Tag::new(2), &[7; 30][..])]).unwrap();
        assert_eq!(bundle.part(Tag::LOOPBACK), Some(&b"ab"[..]));
        assert_eq!(bundle.part(Tag::new(2)), Some(&[7; 30][..]));
        assert_eq!(Bundle::from_bytes(bundle.as_bytes()).unwrap(), bundle);
        assert!(Bundle::from_bytes(b"short").is_err());
        assert!(Bundle::pack([(Tag::new(2), &[0; BUNDLE_LEN - 1][..])]).is_err());
        let garbage = Bundle::from_bytes(&[0xff; BUNDLE_LEN]).unwrap();
        assert_eq!(garbage.part(Tag::new(2)), None);
        assert_eq!(
            (garbage.count(), garbage.only(0..9)),
            (0, Bundle([0; BUNDLE_LEN]))
        );
    }

    #[test]
    fn three_networks_have_room() {
        let parts = [
            (Tag::new(2), &[1; 20][..]),
            (Tag::new(3), &[2; 30][..]),
            (Tag::LOOPBACK, &[3; 72][..]),
        ];
        let bundle = Bundle::pack(parts).unwrap();
        for (tag, part) in parts {
            assert_eq!(bundle.part(tag), Some(part));
        }
        assert_eq!(bundle.count(), 3);
        let more = [parts[0], parts[1], (Tag::LOOPBACK, &[3; 73][..])];
        assert!(Bundle::pack(more).is_err());
    }

    #[test]
    fn some_parts_are_taken_out() {
        let parts = [
            (Tag::new(2), &b"shm"[..]),
            (Tag::new(3), b"o"),
            (Tag::LOOPBACK, b""),
        ];
        let bundle = Bundle::pack(parts).unwrap();
        assert_eq!(bundle.count(), 3);
        assert_eq!(bundle.only(0..3), bundle);
        assert_eq!(
            bundle.only(1..9),
            Bundle::pack(parts[1..].iter().copied()).unwrap()
        );
        assert_eq!(bundle.only(1..2), Bundle::pack([parts[1]]).unwrap());
        assert_eq!(bundle.only(3..4).count(), 0);
    }
}
