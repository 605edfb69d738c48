//! Copies from and to memory that others use at the same time. An aligned word of 8, 4 or 2 bytes is copied as one, and words in ascending order, as
//! processes wait for words that a peer writes.

use std::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};

/// The longest word, up to 8 bytes, that begins at this address and is not longer than what is left.
fn step(address: usize, left: usize) -> usize {
    match () {
        () if address.is_multiple_of(8) && left >= 8 => 8,
        () if address.is_multiple_of(4) && left >= 4 => 4,
        () if address.is_multiple_of(2) && left >= 2 => 2,
        () => 1,
    }
}

/// Writes `from` to `to`.
///
/// # Safety
/// `to` can be written for as many bytes; nobody holds a reference to them.
pub unsafe fn store(to: *mut u8, mut from: &[u8]) {
    let mut at = to;
    while !from.is_empty() {
        let step = step(at.addr(), from.len());
        let (word, rest) = from.split_at(step);
        // SAFETY:
        // - the word lies in what the caller lets be written, and is aligned: `step` says so;
        // - others use it by their CPU or by atomic operations only.
        unsafe {
            match *word {
                [a, b, c, d, e, f, g, h] => {
                    let word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
                    AtomicU64::from_ptr(at.cast()).store(word, Release);
                }
                [a, b, c, d] => {
                    AtomicU32::from_ptr(at.cast()).store(u32::from_ne_bytes([a, b, c, d]), Release);
                }
                [a, b] => AtomicU16::from_ptr(at.cast()).store(u16::from_ne_bytes([a, b]), Release),
                _ => AtomicU8::from_ptr(at).store(word[0], Release),
            }
            at = at.add(step);
        }
        from = rest;
    }
}

/// Appends `len` bytes from `from`.
///
/// # Safety
/// `from` can be read for `len` bytes; nobody holds a unique reference to them.
pub unsafe fn load(into: &mut Vec<u8>, from: *const u8, len: usize) {
    into.reserve(len);
    let mut at = from.cast_mut();
    let mut left = len;
    while left > 0 {
        let step = step(at.addr(), left);
        // SAFETY:
        // - the word lies in what the caller lets be read, and is aligned: `step` says so;
        // - others use it by their CPU or by atomic operations only.
        unsafe {
            match step {
                8 => {
                    let word = AtomicU64::from_ptr(at.cast()).load(Acquire);
                    into.extend_from_slice(&word.to_ne_bytes());
                }
                4 => {
                    let word = AtomicU32::from_ptr(at.cast()).load(Acquire);
                    into.extend_from_slice(&word.to_ne_bytes());
                }
                2 => {
                    let word = AtomicU16::from_ptr(at.cast()).load(Acquire);
                    into.extend_from_slice(&word.to_ne_bytes());
                }
                _ => into.push(AtomicU8::from_ptr(at).load(Acquire)),
            }
            at = at.add(step);
        }
        left -= step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_alignments_are_copied() {
        let from: Vec<u8> = (0..64).collect();
        for begin in 0..9 {
            for len in 0..40 {
                let mut to = vec![255u8; 64];
                // SAFETY:
                // - 9 + 40 is less than 64.
                unsafe { store(to.as_mut_ptr().add(begin), &from[..len]) };
                assert_eq!(to[begin..begin + len], from[..len]);
                assert!(to[begin + len..].iter().all(|byte| *byte == 255));
                let mut back = vec![7];
                // SAFETY:
                // - 9 + 40 is less than 64.
                unsafe { load(&mut back, from.as_ptr().add(begin), len) };
                assert_eq!(back[1..], from[begin..begin + len]);
            }
        }
    }
}
