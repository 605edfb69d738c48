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
pub unsafe fn store(to: *mut u8, from: &[u8]) {
    let mut done = 0;
    while done < from.len() {
        let at = to.wrapping_add(done);
        let step = step(at.addr(), from.len() - done);
        let word = from.as_ptr().wrapping_add(done);
        // SAFETY:
        // - the word lies in what the caller lets be written, and is aligned: `step` says so;
        // - it lies in `from`, which need not be aligned;
        // - others use what is written by their CPU or by atomic operations only.
        unsafe {
            match step {
                8 => AtomicU64::from_ptr(at.cast())
                    .store(word.cast::<u64>().read_unaligned(), Release),
                4 => AtomicU32::from_ptr(at.cast())
                    .store(word.cast::<u32>().read_unaligned(), Release),
                2 => AtomicU16::from_ptr(at.cast())
                    .store(word.cast::<u16>().read_unaligned(), Release),
                _ => AtomicU8::from_ptr(at).store(word.read(), Release),
            }
        }
        done += step;
    }
}

/// Appends `len` bytes from `from`.
///
/// # Safety
/// `from` can be read for `len` bytes; nobody holds a unique reference to them.
pub unsafe fn load(into: &mut Vec<u8>, from: *const u8, len: usize) {
    into.reserve(len);
    let to = into.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    let mut done = 0;
    while done < len {
        let at = from.cast_mut().wrapping_add(done);
        let step = step(at.addr(), len - done);
        let word = to.wrapping_add(done);
        // SAFETY:
        // - the word lies in what the caller lets be read, and is aligned: `step` says so;
        // - there is room for it, which need not be aligned;
        // - others use what is read by their CPU or by atomic operations only.
        unsafe {
            match step {
                8 => word
                    .cast::<u64>()
                    .write_unaligned(AtomicU64::from_ptr(at.cast()).load(Acquire)),
                4 => word
                    .cast::<u32>()
                    .write_unaligned(AtomicU32::from_ptr(at.cast()).load(Acquire)),
                2 => word
                    .cast::<u16>()
                    .write_unaligned(AtomicU16::from_ptr(at.cast()).load(Acquire)),
                _ => word.write(AtomicU8::from_ptr(at).load(Acquire)),
            }
        }
        done += step;
    }
    // SAFETY:
    // - all of it is written.
    unsafe { into.set_len(into.len() + len) };
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
