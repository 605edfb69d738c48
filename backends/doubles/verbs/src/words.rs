//! Copies from and to memory that other threads and processes access concurrently. An aligned word of 8, 4 or 2 bytes is copied in one access, and words in
//! ascending order: processes wait for words that a peer writes.

use std::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};

/// The longest aligned word at this address, of at most 8 and at most `left` bytes.
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
/// `to` is valid for writes of `from.len()` bytes, and no reference to them exists.
pub unsafe fn store(to: *mut u8, from: &[u8]) {
    let mut done = 0;
    while done < from.len() {
        let at = to.wrapping_add(done);
        let step = step(at.addr(), from.len() - done);
        let word = from.as_ptr().wrapping_add(done);
        // SAFETY:
        // - the word is in the range that the caller permits to write, and `step` aligns it;
        // - the source is in `from`, which need not be aligned;
        // - other processes, and threads outside Rust, access the range concurrently; threads of this library use atomic operations only.
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
/// `from` is valid for reads of `len` bytes, and no unique reference to them exists.
pub unsafe fn load(into: &mut Vec<u8>, from: *const u8, len: usize) {
    into.reserve(len);
    let to = into.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    let mut done = 0;
    while done < len {
        let at = from.cast_mut().wrapping_add(done);
        let step = step(at.addr(), len - done);
        let word = to.wrapping_add(done);
        // SAFETY:
        // - the word is in the range that the caller permits to read, and `step` aligns it;
        // - `into` has room for it, which need not be aligned;
        // - other processes, and threads outside Rust, access the range concurrently; threads of this library use atomic operations only.
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
    // - all `len` bytes are written.
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
