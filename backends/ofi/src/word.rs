//! The word that a write carries to the target's completion queue: the value of a notification, and the number of its word.
//!
//! The target numbers the words of its registered memory. Each registration gets a range of numbers while there are free ones. Peers learn the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use unipgas_core::op::Notice;

use crate::region::first_word;

/// Wakes a thread that waits for written data, without a notification.
pub const WAKE: u64 = u64::MAX;
/// The registration has no numbers.
pub const NONE: u32 = 0;
/// End of the numbers.
const END: u32 = u32::MAX;

/// The word for `notice`. `None`: its place has no number.
pub fn notice(notice: &Notice<'_>) -> Option<u64> {
    let first = first_word(notice.slot.region);
    // The place is in the region, and all words of the region have numbers.
    let index = u64::from(first) + notice.slot.offset as u64 / 4;
    (first != NONE && index < END.into()).then(|| u64::from(notice.value) << 32 | index)
}

/// Words of a registration.
struct Range {
    base: *const AtomicU32,
    words: u32,
}

// SAFETY:
// - `base` leads to memory that is shared: all accesses are atomic.
unsafe impl Send for Range {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Range {}

/// The numbers of this process.
#[derive(Default)]
pub(crate) struct WordNumbers(RwLock<BTreeMap<u32, Range>>);

/// The numbers of a registration, until it is dropped.
pub(crate) struct Numbered {
    words: Arc<WordNumbers>,
    first: u32,
}

impl WordNumbers {
    /// Numbers the words of `len` bytes at `base`. `None`: there are no words, they are not aligned, or numbers are used up.
    ///
    /// # Safety
    /// The bytes are valid until the returned value is dropped.
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

    /// Carries out a received notification. Unknown numbers are ignored.
    pub fn take(&self, word: u64) {
        let (index, value) = (word as u32, (word >> 32) as u32);
        let ranges = self.0.read();
        if let Some((first, range)) = ranges.range(..=index).next_back()
            && index - first < range.words
        {
            // SAFETY:
            // - contract of `number`: the memory is valid while it has numbers. It is aligned, and all accesses are atomic.
            let word = unsafe { &*range.base.add((index - first) as usize) };
            word.store(value, Ordering::Release);
        }
    }
}

impl Numbered {
    /// The number of the first word.
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
        let words = Arc::new(WordNumbers::default());
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
        // In the gap, and after the last range.
        assert_eq!(number(0, 100).unwrap().first(), gone);
        let (d, e) = (number(0, 60).unwrap(), number(0, 60).unwrap());
        assert_eq!(d.first(), gone);
        assert!(e.first() > c.first());
        // SAFETY:
        // - no notification is sent there.
        let whole = unsafe { words.number(at(0), (END as usize - 300) * 4) };
        assert!(whole.is_none());
        // SAFETY:
        // - as above.
        assert!(unsafe { words.number(at(0).wrapping_add(2), 8) }.is_none());
    }
}
