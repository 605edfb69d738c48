//! Memory that peers may access at any time.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::law::Verdict;

/// A view of memory that lives long enough: laws free it after its last use, or never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
}

// SAFETY:
// - accessed by atomics only.
unsafe impl Send for Memory {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of the heap with zeros, aligned to 256 bytes; it lives as long as the process unless it is freed.
    pub(crate) fn new(len: usize) -> Memory {
        // SAFETY:
        // - the layout has a size.
        let base = unsafe { std::alloc::alloc_zeroed(Memory::layout(len)) };
        assert!(!base.is_null(), "no memory");
        Memory { base, len }
    }

    /// Pages of their own, with zeros, as long as the process.
    pub(crate) fn pages(len: usize) -> Result<Memory, String> {
        Memory::mapped(len, libc::MAP_PRIVATE)
    }

    /// Pages that children share with this process, with zeros, as long as it lives.
    pub(crate) fn shared(len: usize) -> Result<Memory, String> {
        Memory::mapped(len, libc::MAP_SHARED)
    }

    fn mapped(len: usize, how: libc::c_int) -> Result<Memory, String> {
        let flags = how | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY:
        // - a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        crate::ensure!(base != libc::MAP_FAILED, "no memory");
        let base = base.cast();
        Ok(Memory { base, len })
    }

    /// A view of some of the bytes.
    pub(crate) fn part(&self, at: usize, len: usize) -> Memory {
        assert!(at + len <= self.len);
        let base = self.base.wrapping_add(at);
        Memory { base, len }
    }

    /// Gives back what [`Memory::new`] gave.
    pub(crate) fn free(self) {
        // SAFETY:
        // - from `new`, once, after its registration has ended and all uses of it.
        unsafe { std::alloc::dealloc(self.base, Memory::layout(self.len)) };
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len.max(1), 256).expect("a size")
    }

    pub(crate) fn bytes(&self) -> &[AtomicU8] {
        // SAFETY:
        // - `len` live bytes; all accesses here are atomic.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len) }
    }

    /// The address of byte `at`.
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        assert!(at <= self.len);
        self.base.wrapping_add(at)
    }

    /// The u64 at byte `at`, a multiple of 8.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY:
        // - in bounds and aligned: memory of laws is aligned to 8 bytes at least.
        unsafe { &*self.base.add(at).cast() }
    }

    /// The u32 at byte `at`, a multiple of 4.
    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY:
        // - as for `word`.
        unsafe { &*self.base.add(at).cast() }
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// The words at these bytes.
    pub(crate) fn words<const N: usize>(&self, at: [usize; N]) -> [u64; N] {
        at.map(|at| self.get(at))
    }

    pub(crate) fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    pub(crate) fn fill(&self, value: u8) {
        self.fill_range(0, self.len, value);
    }

    pub(crate) fn fill_range(&self, at: usize, len: usize, value: u8) {
        self.store(at, &vec![value; len]);
    }

    /// The range as bytes, aligned words, and bytes: checked builds are eight times as fast by words.
    fn parts(&self, at: usize, len: usize) -> (&[AtomicU8], &[AtomicU64], &[AtomicU8]) {
        // SAFETY:
        // - any eight aligned bytes in bounds are an AtomicU64, and all accesses here are atomic.
        unsafe { self.bytes()[at..at + len].align_to() }
    }

    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        let (head, words, tail) = self.parts(at, bytes.len());
        let (first, rest) = bytes.split_at(head.len());
        let (middle, last) = rest.as_chunks();
        for (place, byte) in head.iter().zip(first) {
            place.store(*byte, Ordering::Relaxed);
        }
        for (place, bytes) in words.iter().zip(middle) {
            place.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        for (place, byte) in tail.iter().zip(last) {
            place.store(*byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self, at: usize, len: usize) -> Vec<u8> {
        let (head, words, tail) = self.parts(at, len);
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(head.iter().map(|byte| byte.load(Ordering::Relaxed)));
        for word in words {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes.extend(tail.iter().map(|byte| byte.load(Ordering::Relaxed)));
        bytes
    }

    /// Fails unless the u64 at byte `at` has this value.
    pub(crate) fn shows(&self, at: usize, value: u64, what: impl Display) -> Verdict {
        crate::ensure_eq!(self.get(at), value, "{what} (byte {at})");
        Ok(())
    }

    /// Fails where the bytes are not the expected ones; says where first.
    pub(crate) fn holds(&self, at: usize, expected: &[u8], what: &str) -> Verdict {
        same(&self.load(at, expected.len()), expected, what)
    }

    /// Fails where the memory from `from` on is not these bytes at `at`, and `beside` elsewhere.
    pub(crate) fn only(
        &self,
        from: usize,
        (at, bytes): (usize, &[u8]),
        beside: u8,
        what: &str,
    ) -> Verdict {
        let end = at + bytes.len();
        self.holds(at, bytes, what)?;
        self.all(from, at - from, beside, &format!("before {what}"))?;
        self.all(end, self.len - end, beside, &format!("behind {what}"))
    }

    /// Fails where a byte of the range is not `value`.
    pub(crate) fn all(&self, at: usize, len: usize, value: u8, what: &str) -> Verdict {
        self.holds(at, &vec![value; len], what)
    }
}

/// Fails where bytes differ, or their number does; says where first.
pub(crate) fn same(seen: &[u8], expected: &[u8], what: &str) -> Verdict {
    crate::ensure_eq!(seen.len(), expected.len(), "{what}: bytes");
    if seen == expected {
        return Ok(());
    }
    match seen.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(i) => Err(format!(
            "{what}: byte {i} of {} is {:#x} instead of {:#x}",
            expected.len(),
            seen[i],
            expected[i]
        )),
    }
}
