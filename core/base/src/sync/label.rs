//! A short text in memory that other processes read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Holds at most 8 * `WORDS` bytes, and cuts longer texts. A read during a change may return parts of both texts.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Label<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Label<WORDS> {
    pub(crate) const fn empty() -> Self {
        Label([const { AtomicU64::new(0) }; WORDS])
    }

    pub fn set(&self, text: &str) {
        let mut words = [0u64; WORDS];
        let bytes = bytemuck::cast_slice_mut(&mut words);
        let len = text.len().min(8 * WORDS);
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        for (place, word) in self.0.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    pub fn get(&self) -> String {
        let words: [u64; WORDS] = std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        let bytes = bytemuck::cast_slice(&words);
        let end = bytes.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(8 * WORDS)]).into_owned()
    }
}
