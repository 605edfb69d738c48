//! Notification words of a region: a wait for one of several, and its reset (GASPI 17.1 §8.3).

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::Region;
use crate::bundle::RegionKey;
use crate::engine::Engine;
use crate::{Deadline, Result};

/// Consecutive u32 words at the beginning of a region of this process, which peers set by notices.
pub struct NotificationArray {
    words: Words,
    key: RegionKey,
    region: Mutex<Option<Region>>,
}

/// The words themselves. Their values mean nothing after the region has been released.
#[derive(Clone, Copy)]
pub struct Words {
    first: *const AtomicU32,
    count: usize,
}

// SAFETY:
// - the words are shared memory, accessed by atomics only. Contract of `Transport::allocate`: they stay mapped while the transport lives.
unsafe impl Send for Words {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Words {}

impl NotificationArray {
    /// The first `count` words of `region`. Errors: [`crate::Error::OutOfBounds`] if it is shorter.
    pub fn new(region: Region, count: usize) -> Result<Self> {
        let words = region.local(0, count.saturating_mul(4))?;
        Ok(NotificationArray {
            words: Words {
                first: words.ptr.cast(),
                count,
            },
            key: region.key(),
            region: Mutex::new(Some(region)),
        })
    }

    /// The key by which peers find the words.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// Ends the registration. Threads that still read the words get values that mean nothing.
    pub fn release(&self) {
        *self.region.lock() = None;
    }
}

impl Deref for NotificationArray {
    type Target = Words;
    #[inline(always)]
    fn deref(&self) -> &Words {
        &self.words
    }
}

impl Words {
    /// The words of a [`NotificationArray`], from the result of [`as_ptr`](Words::as_ptr). They stay in place after its drop.
    ///
    /// # Safety
    /// `first` leads to `count` words. They are not used after the region's transport has been dropped.
    #[inline(always)]
    pub unsafe fn from_raw(first: *const AtomicU32, count: usize) -> Self {
        Words { first, count }
    }

    /// The address of the first word.
    pub fn as_ptr(&self) -> *const AtomicU32 {
        self.first
    }

    /// The address of a word, for a later store. Errors: [`crate::Error::OutOfBounds`].
    pub fn word(&self, index: usize) -> Result<*const AtomicU32> {
        Ok(&self.range(index, 1)?[0])
    }

    /// Number of words.
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn all(&self) -> &[AtomicU32] {
        // SAFETY:
        // - `NotificationArray::new` has checked the length. Regions of the library are page-aligned. All accesses are atomic.
        // - contracts of `Transport::allocate` and `from_raw`: the memory stays mapped while the transport lives, and the words are not used longer.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }

    #[inline(always)]
    fn range(&self, begin: usize, num: usize) -> Result<&[AtomicU32]> {
        crate::region::check_range(begin, num, self.count)?;
        Ok(&self.all()[begin..begin + num])
    }

    /// The first of the words `begin..begin + num` that is not zero.
    #[inline(always)]
    pub fn find(&self, begin: usize, num: usize) -> Option<usize> {
        match self.range(begin, num).ok()? {
            [word] => (word.load(Ordering::Acquire) != 0).then_some(begin),
            words => first_set(words).map(|index| begin + index),
        }
    }

    /// Waits until one of the words `begin..begin + num` is not zero, and returns its index. The data that the notice announced is then visible. With `num` 0
    /// it waits until the deadline: the interfaces handle that case.
    #[inline]
    pub fn wait_some(
        &self,
        engine: &Engine,
        begin: usize,
        num: usize,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        progress: impl Fn(),
    ) -> Result<usize> {
        let words = self.range(begin, num)?;
        if let [word] = words {
            engine.wait_for(deadline, check, || {
                if word.load(Ordering::Acquire) != 0 {
                    return Some(());
                }
                progress();
                None
            })?;
            return Ok(begin);
        }
        engine.wait_for(deadline, check, || {
            if let Some(index) = first_set(words) {
                return Some(begin + index);
            }
            progress();
            None
        })
    }

    /// Sets the word to zero and returns its previous value, in one atomic step. Errors: [`crate::Error::OutOfBounds`].
    #[inline]
    pub fn take(&self, index: usize) -> Result<u32> {
        let word = &self.range(index, 1)?[0];
        Ok(word.swap(0, Ordering::AcqRel))
    }

    /// Sets a word of this process and wakes its waiters.
    pub fn set(&self, engine: &Engine, index: usize, value: u32) -> Result<()> {
        self.range(index, 1)?[0].store(value, Ordering::Release);
        engine.ring();
        Ok(())
    }
}

/// The first word that is not zero. Reads a line at a time, since most words of a long range are zero.
#[inline]
fn first_set(words: &[AtomicU32]) -> Option<usize> {
    const LINE: usize = 16;
    for (i, line) in words.chunks(LINE).enumerate() {
        let any = line
            .iter()
            .fold(0, |sum, word| sum | word.load(Ordering::Relaxed));
        if any != 0
            && let Some(at) = line
                .iter()
                .position(|word| word.load(Ordering::Acquire) != 0)
        {
            return Some(i * LINE + at);
        }
    }
    None
}
