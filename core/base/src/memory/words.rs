//! Elements of memory that other processes may write: loads and stores of whole words, by atomics.
//!
//! In Rust a plain access that races with a write is undefined behaviour, and `&[T]` promises the absence of writes. So the functions
//! copy elements to and from private memory. A word is as long as an element's alignment, 8 bytes at most. An element of this size is
//! read and written in one piece, and all accesses to an address have the same size.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use bytemuck::Pod;

trait Word: Copy {
    /// # Safety
    /// Valid and aligned; all concurrent accesses are atomic, and of this size.
    unsafe fn load(at: *const Self) -> Self;

    /// # Safety
    /// As [`Word::load`].
    unsafe fn store(at: *mut Self, value: Self);
}

macro_rules! words {
    ($($word:ty: $atomic:ty;)*) => {$(
        impl Word for $word {
            #[inline(always)]
            unsafe fn load(at: *const Self) -> Self {
                // SAFETY:
                // - contract of this call.
                unsafe { <$atomic>::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
            }

            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self) {
                // SAFETY:
                // - contract of this call.
                unsafe { <$atomic>::from_ptr(at) }.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

words! { u8: AtomicU8; u16: AtomicU16; u32: AtomicU32; u64: AtomicU64; }

/// Copies elements out.
///
/// # Safety
/// `from` points to `to.len()` elements; all concurrent accesses of this process are atomic, and of whole words.
#[inline]
pub unsafe fn load<T: Pod>(from: *const T, to: &mut [T]) {
    #[inline(always)]
    unsafe fn by<W: Word, T: Pod>(from: *const T, to: &mut [T]) {
        let (from, words) = (from.cast::<W>(), size_of_val(to) / size_of::<W>());
        let to = to.as_mut_ptr().cast::<W>();
        for at in 0..words {
            // SAFETY:
            // - the access is within the range at both ends, and aligned as the elements are; any bytes are a valid `Pod` element.
            unsafe { to.add(at).write(W::load(from.add(at))) };
        }
    }
    // SAFETY:
    // - contract of this call; the size of an element is a multiple of its alignment.
    unsafe {
        match align_of::<T>() {
            1 => by::<u8, T>(from, to),
            2 => by::<u16, T>(from, to),
            4 => by::<u32, T>(from, to),
            _ => by::<u64, T>(from, to),
        }
    }
}

/// Copies elements in.
///
/// # Safety
/// As [`load`]: `to` points to `from.len()` elements.
#[inline]
pub unsafe fn store<T: Pod>(from: &[T], to: *mut T) {
    #[inline(always)]
    unsafe fn by<W: Word, T: Pod>(from: &[T], to: *mut T) {
        let (to, words) = (to.cast::<W>(), size_of_val(from) / size_of::<W>());
        let from = from.as_ptr().cast::<W>();
        for at in 0..words {
            // SAFETY:
            // - as in `load`.
            unsafe { W::store(to.add(at), from.add(at).read()) };
        }
    }
    // SAFETY:
    // - as in `load`.
    unsafe {
        match align_of::<T>() {
            1 => by::<u8, T>(from, to),
            2 => by::<u16, T>(from, to),
            4 => by::<u32, T>(from, to),
            _ => by::<u64, T>(from, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways<T: Pod + PartialEq + std::fmt::Debug>(values: &[T]) {
        let mut place = vec![T::zeroed(); values.len()];
        let mut back = place.clone();
        // SAFETY:
        // - `place` and `back` have as many elements as `values`, and no other thread uses them.
        unsafe {
            store(values, place.as_mut_ptr());
            load(place.as_ptr(), &mut back);
        }
        assert_eq!(place, values);
        assert_eq!(back, values);
    }

    #[test]
    fn elements_of_every_alignment() {
        both_ways::<u8>(&[1, 2, 3]);
        both_ways::<[u8; 3]>(&[[1, 2, 3], [4, 5, 6]]);
        both_ways::<u16>(&[1, 2, 0xffff]);
        both_ways::<f32>(&[1.5, -2.0, f32::MAX]);
        both_ways::<[u32; 3]>(&[[1, 2, 3]]);
        both_ways::<f64>(&[1.5, -2.0, f64::MIN]);
        both_ways::<u128>(&[1, 1 << 100]);
        both_ways::<u64>(&[]);
    }
}
