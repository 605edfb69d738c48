//! Lines of eight words, whose last word announces the others: one process writes a line, another one polls its end.

use std::sync::atomic::Ordering;

/// Words of a line.
pub const WORDS: usize = 8;

/// A word that both sides see: in memory that processes share one of `std`, in models the model's.
pub trait Word {
    /// As of atomics.
    fn load(&self, order: Ordering) -> u64;
    /// As of atomics.
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

/// Writes a line. Whoever sees its last word sees all of it, and what was written before.
#[inline(always)]
pub fn publish(to: &[impl Word; WORDS], line: &[u64; WORDS]) {
    let (last, others) = line.split_last().expect("eight");
    for (to, word) in to.iter().zip(others) {
        to.store(*word, Ordering::Relaxed);
    }
    to[WORDS - 1].store(*last, Ordering::Release);
}

/// The last word as it is now.
#[inline(always)]
pub fn end(from: &[impl Word; WORDS]) -> u64 {
    from[WORDS - 1].load(Ordering::Acquire)
}

/// The line whose [`end`] was `last`. Nobody writes it anew before it is told that this has been done.
#[inline(always)]
pub fn read(from: &[impl Word; WORDS], last: u64) -> [u64; WORDS] {
    let mut line = [last; WORDS];
    for (word, from) in line.iter_mut().zip(&from[..WORDS - 1]) {
        *word = from.load(Ordering::Relaxed);
    }
    line
}
