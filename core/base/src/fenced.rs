//! Memory whose surroundings are checked, for tests of code that reads malformed bytes.

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
