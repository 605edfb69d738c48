//! Lines of eight words. The writer stores the last word after the others; the reader polls it.

use std::sync::atomic::Ordering;

/// Words of a line.
pub const WORDS: usize = 8;

/// A shared word: an atomic of `std` in memory that processes share, or of loom in models.
pub trait Word {
    /// As for atomics.
    fn load(&self, order: Ordering) -> u64;
    /// As for atomics.
    fn store(&self, value: u64, order: Ordering);
}

macro_rules! words {
    ($($word:ty),*) => {$(
        impl Word for $word {
            #[inline(always)]
            fn load(&self, order: Ordering) -> u64 {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: u64, order: Ordering) {
                self.store(value, order);
            }
        }
    )*};
}

words!(std::sync::atomic::AtomicU64);
#[cfg(loom)]
words!(loom::sync::atomic::AtomicU64);

/// Writes a line. A reader that sees its last word sees the other words and all earlier writes.
#[inline(always)]
pub fn publish(to: &[impl Word; WORDS], line: &[u64; WORDS]) {
    let (last, others) = line.split_last().expect("eight");
    for (to, word) in to.iter().zip(others) {
        to.store(*word, Ordering::Relaxed);
    }
    to[WORDS - 1].store(*last, Ordering::Release);
}

/// The current last word.
#[inline(always)]
pub fn end(from: &[impl Word; WORDS]) -> u64 {
    from[WORDS - 1].load(Ordering::Acquire)
}

/// Reads the line after [`end`] has returned `last`. The writer may overwrite the line only after the reader has confirmed it.
#[inline(always)]
pub fn read(from: &[impl Word; WORDS], last: u64) -> [u64; WORDS] {
    let mut line = [last; WORDS];
    for (word, from) in line.iter_mut().zip(&from[..WORDS - 1]) {
        *word = from.load(Ordering::Relaxed);
    }
    line
}
