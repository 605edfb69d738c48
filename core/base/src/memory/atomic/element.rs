//! The values that atomic operations work on: arithmetic and comparison as C defines them for the type.

use super::long_double::LongDouble;
use super::word::{Bits, Copied, Word};

/// A value of an atomic type.
pub(super) trait Element: Copy + PartialEq {
    /// The unsigned word of the same size, for memory accesses.
    type Word: Word;
    /// The representation in memory.
    fn to_word(self) -> Self::Word;
    /// The value of a representation. Every bit pattern is valid.
    fn from_word(word: Self::Word) -> Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// C's reading of the value as a condition.
    fn truth(self) -> bool;
    /// 1 for true, 0 for false.
    fn from_truth(truth: bool) -> Self;
}

/// An element type for which two values are equal if and only if their words are.
pub(super) trait Integer: Element<Word: Bits> + PartialOrd {}

/// A floating-point number.
pub(super) trait Real: Element + PartialOrd {}

/// A pair of real and imaginary part, without an order.
pub(super) trait Complex: Element {}

macro_rules! integers {
    ($($ty:ty => $word:ty),*) => {$(
        impl Element for $ty {
            type Word = $word;
            #[inline(always)]
            fn to_word(self) -> $word { self as $word }
            #[inline(always)]
            fn from_word(word: $word) -> Self { word as $ty }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn truth(self) -> bool { self != 0 }
            #[inline(always)]
            fn from_truth(truth: bool) -> Self { truth as $ty }
        }
        impl Integer for $ty {}
    )*};
}

integers!(i8 => u8, u8 => u8, i16 => u16, u16 => u16, i32 => u32, u32 => u32, i64 => u64, u64 => u64,
    i128 => u128, u128 => u128);

macro_rules! reals {
    ($($ty:ty => $word:ty, $pair:ty);*) => {$(
        impl Element for $ty {
            type Word = $word;
            #[inline(always)]
            fn to_word(self) -> $word { self.to_bits() }
            #[inline(always)]
            fn from_word(word: $word) -> Self { <$ty>::from_bits(word) }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn truth(self) -> bool { self != 0.0 }
            #[inline(always)]
            fn from_truth(truth: bool) -> Self { if truth { 1.0 } else { 0.0 } }
        }
        impl Real for $ty {}

        impl Element for [$ty; 2] {
            type Word = $pair;
            #[inline(always)]
            fn to_word(self) -> $pair { bytemuck::cast(self) }
            #[inline(always)]
            fn from_word(word: $pair) -> Self { bytemuck::cast(word) }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { [self[0] + other[0], self[1] + other[1]] }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                [self[0] * other[0] - self[1] * other[1], self[0] * other[1] + self[1] * other[0]]
            }
            #[inline(always)]
            fn truth(self) -> bool { self[0] != 0.0 || self[1] != 0.0 }
            #[inline(always)]
            fn from_truth(truth: bool) -> Self { [<$ty>::from_truth(truth), 0.0] }
        }
        impl Complex for [$ty; 2] {}
    )*};
}

reals!(f32 => u32, u64; f64 => u64, u128);

impl Element for LongDouble {
    type Word = u128;
    #[inline(always)]
    fn to_word(self) -> u128 {
        self.0
    }
    #[inline(always)]
    fn from_word(word: u128) -> Self {
        LongDouble(word)
    }
    fn plus(self, other: Self) -> Self {
        self.add(other)
    }
    fn times(self, other: Self) -> Self {
        self.multiply(other)
    }
    fn truth(self) -> bool {
        self != LongDouble::ZERO
    }
    fn from_truth(truth: bool) -> Self {
        if truth {
            LongDouble::ONE
        } else {
            LongDouble::ZERO
        }
    }
}
impl Real for LongDouble {}

impl Element for [LongDouble; 2] {
    type Word = Copied;
    fn to_word(self) -> Copied {
        Copied(bytemuck::cast([self[0].0, self[1].0]))
    }
    fn from_word(word: Copied) -> Self {
        let [real, imaginary]: [u128; 2] = bytemuck::cast(word.0);
        [LongDouble(real), LongDouble(imaginary)]
    }
    fn plus(self, other: Self) -> Self {
        [self[0].add(other[0]), self[1].add(other[1])]
    }
    fn times(self, other: Self) -> Self {
        let [a, b, c, d] = [self[0], self[1], other[0], other[1]];
        [
            a.multiply(c).subtract(b.multiply(d)),
            a.multiply(d).add(b.multiply(c)),
        ]
    }
    fn truth(self) -> bool {
        self[0].truth() || self[1].truth()
    }
    fn from_truth(truth: bool) -> Self {
        [LongDouble::from_truth(truth), LongDouble::ZERO]
    }
}
impl Complex for [LongDouble; 2] {}
