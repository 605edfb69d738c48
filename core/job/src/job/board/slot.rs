//! A slot on the board: one key that a rank has published, and its value.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::{MAX_KEY, MAX_VALUE, SLOT_WORDS};

// Words of a slot.
pub(super) const S_SEQ: usize = 0;
const S_LENGTHS: usize = 1;
const S_KEY: usize = 2;
const S_VALUE: usize = 10;
const S_ORDER: usize = S_VALUE + MAX_VALUE / 4;
const _: () = assert!(S_VALUE - S_KEY == (MAX_KEY + 1) / 4 && S_ORDER < SLOT_WORDS);

/// A sequence-locked key and value. The version is odd while the one writer writes.
pub(super) struct Slot<'a>(pub(super) &'a [AtomicU32; SLOT_WORDS]);

impl Slot<'_> {
    /// `order` grows with each write of the rank.
    pub(crate) fn write(&self, key: &[u8], value: &[u8], order: u32) {
        // A writer that died within a write left the version odd. The next one continues from there.
        let odd = self.0[S_SEQ].load(Ordering::Relaxed) | 1;
        self.0[S_SEQ].store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        self.0[S_LENGTHS].store(
            (value.len() as u32) << 8 | key.len() as u32,
            Ordering::Relaxed,
        );
        store_bytes(&self.0[S_KEY..], key);
        store_bytes(&self.0[S_VALUE..], value);
        self.0[S_ORDER].store(order, Ordering::Relaxed);
        self.0[S_SEQ].store(odd.wrapping_add(1), Ordering::Release);
    }

    /// `order` of the last write.
    pub(crate) fn order(&self) -> u32 {
        self.0[S_ORDER].load(Ordering::Relaxed)
    }

    /// Key and value, if both were stable during the read within a bounded number of attempts.
    pub fn read(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        for attempt in 0..64 {
            let before = self.0[S_SEQ].load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let content = self.read_unguarded();
                fence(Ordering::Acquire);
                if self.0[S_SEQ].load(Ordering::Relaxed) == before {
                    return content;
                }
            }
            if attempt < 48 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        None
    }

    /// Key and value as they are. `None`: an empty slot, or invalid lengths.
    pub(crate) fn read_unguarded(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let lengths = self.0[S_LENGTHS].load(Ordering::Relaxed);
        let (key_len, value_len) = ((lengths & 0xff) as usize, (lengths >> 8) as usize);
        if key_len == 0 || key_len > MAX_KEY || value_len > MAX_VALUE {
            return None;
        }
        Some((
            load_bytes(&self.0[S_KEY..], key_len),
            load_bytes(&self.0[S_VALUE..], value_len),
        ))
    }
}

fn store_bytes(words: &[AtomicU32], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(4)) {
        let mut padded = [0u8; 4];
        padded[..chunk.len()].copy_from_slice(chunk);
        word.store(u32::from_ne_bytes(padded), Ordering::Relaxed);
    }
}

fn load_bytes(words: &[AtomicU32], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words
        .iter()
        .take(len.div_ceil(4))
        .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}
