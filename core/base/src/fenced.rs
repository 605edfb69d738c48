//! Memory with checked surroundings, and patches of memory, for tests of code that reads malformed bytes.

use crate::cache::PAIR;

/// Memory between fences, which detect writes outside it.
#[derive(Debug)]
pub struct Fenced {
    bytes: Vec<u64>,
    len: usize,
}

impl Fenced {
    /// Words of a fence on each side, at least.
    const FENCE: usize = PAIR / 8;
    const MARK: u64 = 0x5afe_5afe_5afe_5afe;

    /// `len` zeros, aligned to a [`PAIR`] of lines.
    pub fn new(len: usize) -> Self {
        let words = len.div_ceil(8) + 3 * Self::FENCE;
        let mut fenced = Fenced {
            bytes: vec![Self::MARK; words],
            len,
        };
        // SAFETY:
        // - the vector has `len` bytes after the first fence.
        unsafe { fenced.base().write_bytes(0, len) };
        fenced
    }

    /// Address of the first byte.
    pub fn base(&mut self) -> *mut u8 {
        let begin = self.bytes.as_mut_ptr().cast::<u8>();
        let first = begin.wrapping_add(8 * Self::FENCE);
        first.wrapping_add(first.align_offset(8 * Self::FENCE))
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no caller asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes as much of `bytes` as fits.
    pub fn fill(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.len);
        // SAFETY:
        // - `len` is at most the room.
        unsafe { self.base().copy_from_nonoverlapping(bytes.as_ptr(), len) };
    }

    /// Panics if a fence has changed.
    pub fn check(&mut self) {
        let (base, len) = (self.base(), self.len);
        let begin = self.bytes.as_ptr().cast::<u8>();
        let all = 8 * self.bytes.len();
        let inside = base.addr() - begin.addr()..base.addr() - begin.addr() + len;
        for at in (0..all).filter(|at| !inside.contains(at)) {
            // SAFETY:
            // - the byte is in the vector.
            let found = unsafe { begin.wrapping_add(at).read() };
            let mark = Self::MARK.to_ne_bytes()[at % 8];
            assert_eq!(
                found, mark,
                "byte {at} of {all}, of which {inside:?} are meant"
            );
        }
    }
}

/// Bytes that a peer has written over a part of some memory.
///
/// In the input of a reader: area (1 byte), offset in units of 4 bytes (2 bytes), length (1 byte), bytes.
#[derive(Debug)]
pub struct Patch<'a> {
    /// Number of the memory, for readers of several.
    pub area: u8,
    /// Offset in the memory.
    pub at: usize,
    /// The bytes to write.
    pub bytes: &'a [u8],
}

impl<'a> Patch<'a> {
    /// The patches in the input of a reader.
    pub fn all(mut input: &'a [u8]) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            let [area, low, high, len, more @ ..] = input else {
                return None;
            };
            let (bytes, more) = more.split_at(usize::from(*len).min(more.len()));
            input = more;
            Some(Patch {
                area: *area,
                at: 4 * usize::from(u16::from_le_bytes([*low, *high])),
                bytes,
            })
        })
    }

    /// Writes the part of the patch within the `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// The bytes are valid, and only this thread accesses them meanwhile.
    pub unsafe fn apply(&self, base: *mut u8, len: usize) {
        for (byte, at) in self.bytes.iter().zip(self.at..len) {
            // SAFETY:
            // - below `len`; contract of this function.
            unsafe { base.wrapping_add(at).write_volatile(*byte) };
        }
    }

    /// Input of a reader: a patch with the present bytes from `at` on.
    ///
    /// # Safety
    ///
    /// The memory at `base` has `at + len` bytes, and only this thread accesses them meanwhile.
    pub unsafe fn of(area: u8, base: *const u8, at: usize, len: usize) -> Vec<u8> {
        let [low, high] = ((at / 4) as u16).to_le_bytes();
        let mut input = vec![area, low, high, len as u8];
        // SAFETY:
        // - contract of this function.
        input.extend((at..at + len).map(|at| unsafe { base.wrapping_add(at).read() }));
        input
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "are meant")]
    fn a_write_beside_the_memory_panics() {
        let mut fenced = super::Fenced::new(10);
        let beside = fenced.base().wrapping_add(10);
        // SAFETY:
        // - the byte is in the fence.
        unsafe { beside.write(1) };
        fenced.check();
    }
}
