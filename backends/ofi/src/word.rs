//! The word that goes with a write into the target's completion queue: a notification's value, and its place among all words of memory that the target has registered.
//!
//! The target numbers them: each registration gets as many numbers as it has words, as long as there are some, and peers are told the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use unipgas_core::op::Notice;

use crate::region::first_word;

/// Nothing but: somebody may sleep who waits for what was written.
pub const WAKE: u64 = u64::MAX;
/// It has none.
pub const NONE: u32 = 0;
/// Numbers end before this one.
const END: u32 = u32::MAX;

/// For the word in `notice`; `None` where the target has no number for its place.
pub fn notice(notice: &Notice<'_>) -> Option<u64> {
    let first = first_word(notice.slot.region);
    // The place is in the region, all of whose words have numbers.
    let index = u64::from(first) + notice.slot.offset as u64 / 4;
    (first != NONE && index < END.into()).then(|| u64::from(notice.value) << 32 | index)
}

/// Words of a registration.
struct Range {
    base: *const AtomicU32,
    words: u32,
}

// SAFETY:
// - leads to memory that is shared by purpose.
unsafe impl Send for Range {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Range {}

/// This process's numbers.
#[derive(Default)]
pub struct Words(RwLock<BTreeMap<u32, Range>>);

/// The numbers of a registration, until it is dropped.
pub struct Numbered {
    words: Arc<Words>,
    first: u32,
}

impl Words {
    /// Numbers the words of `len` bytes at `base`, unless they are too many, or no words.
    ///
    /// # Safety
    /// The bytes are valid until what this gives is dropped.
    pub unsafe fn number(self: &Arc<Self>, base: *mut u8, len: usize) -> Option<Numbered> {
        let words = u32::try_from(len / 4).ok().filter(|words| *words > 0)?;
        if !base.addr().is_multiple_of(4) {
            return None;
        }
        let mut ranges = self.0.write();
        let mut first = NONE + 1;
        for (begin, range) in &*ranges {
            if begin - first >= words {
                break;
            }
            first = begin + range.words;
        }
        if END - first < words {
            return None;
        }
        let base = base.cast_const().cast();
        ranges.insert(first, Range { base, words });
        Some(Numbered {
            words: self.clone(),
            first,
        })
    }

    /// Does what a peer has sent. What does not fit is ignored.
    pub fn take(&self, word: u64) {
        let (index, value) = (word as u32, (word >> 32) as u32);
        let ranges = self.0.read();
        if let Some((first, range)) = ranges.range(..=index).next_back()
            && index - first < range.words
        {
            // SAFETY:
            // - valid as long as it is numbered (the word of who has asked for that), and aligned; everybody uses atomics.
            let word = unsafe { &*range.base.add((index - first) as usize) };
            word.store(value, Ordering::Release);
        }
    }
}

impl Numbered {
    /// Of the first word.
    pub fn first(&self) -> u32 {
        self.first
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.words.0.write().remove(&self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_a_number_of_its_own_as_long_as_it_is_there() {
        let words = Arc::new(Words::default());
        let memory: Vec<AtomicU32> = (0..300).map(AtomicU32::new).collect();
        let at = |nth: usize| memory[nth..].as_ptr().cast_mut().cast::<u8>();
        // SAFETY:
        // - the memory outlives the numbers.
        let number = |nth, count: usize| unsafe { words.number(at(nth), count * 4) };
        let [a, b, c] =
            [(0, 100), (100, 100), (200, 100)].map(|(nth, count)| number(nth, count).unwrap());
        let send = |first: u32, nth: u32, value: u32| {
            words.take(u64::from(value) << 32 | u64::from(first + nth));
        };
        send(b.first(), 99, 7);
        send(a.first(), 0, 8);
        assert_eq!(
            [0, 199].map(|nth| memory[nth].load(Ordering::Relaxed)),
            [8, 7]
        );
        let gone = b.first();
        drop(b);
        send(gone, 0, 999);
        send(c.first(), 100, 999);
        words.take(WAKE);
        assert!(
            memory
                .iter()
                .all(|word| word.load(Ordering::Relaxed) != 999)
        );
        // In the gap, and after the last one.
        assert_eq!(number(0, 100).unwrap().first(), gone);
        let (d, e) = (number(0, 60).unwrap(), number(0, 60).unwrap());
        assert_eq!(d.first(), gone);
        assert!(e.first() > c.first());
        // SAFETY:
        // - nothing is sent there.
        let whole = unsafe { words.number(at(0), (END as usize - 300) * 4) };
        assert!(whole.is_none());
        // SAFETY:
        // - as above.
        assert!(unsafe { words.number(at(0).wrapping_add(2), 8) }.is_none());
    }
}
