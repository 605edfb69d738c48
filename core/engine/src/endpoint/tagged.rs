//! Tagged operations. Each ends separately, and reports its end under a tag of the caller.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crossbeam::queue::ArrayQueue;
use parking_lot::Mutex;

use super::{Endpoint, refusal};
use crate::engine::Engine;
use crate::op::{Completion, Outcome};
use crate::post_counter::DRAINING;
use crate::{Error, Result};

/// Marks the contexts of this module. The slot number is above the mark.
const MARK: u64 = 2;

/// Tagged operations of an endpoint that has no depth.
const MOST: u64 = 1 << 12;

/// The tagged operations of one endpoint. The first operation allocates the memory.
#[derive(Default)]
pub(super) struct Tagged(OnceLock<Slots>);

struct Slots {
    all: Box<[Slot]>,
    /// Slots without an operation.
    free: ArrayQueue<u32>,
    /// Slots with an operation that has ended and is not reported.
    ended: ArrayQueue<u32>,
    /// Parts in progress on channels.
    pending: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    tag: AtomicU64,
    /// Parts in progress, and one for the posting call.
    left: AtomicU32,
    /// Set to 1 after success. Null: none.
    word: AtomicPtr<AtomicU32>,
    failure: Mutex<Option<Error>>,
}

impl Slots {
    fn new(depth: u64) -> Self {
        let depth = depth.min(MOST) as u32;
        let free = ArrayQueue::new(depth as usize);
        for number in 0..depth {
            let _ = free.push(number);
        }
        Slots {
            all: (0..depth).map(|_| Slot::default()).collect(),
            free,
            ended: ArrayQueue::new(depth as usize),
            pending: AtomicUsize::new(0),
        }
    }

    fn slot(&self, number: u32) -> &Slot {
        &self.all[number as usize]
    }
}

/// Whether a completion with this context is for [`Endpoint::part_ended`].
#[inline]
pub(super) fn is_tagged(context: u64) -> bool {
    context & MARK != 0
}

/// A tagged operation during its posting. A drop without [`end`](TaggedOperation::end) discards it, and it reports nothing.
pub struct TaggedOperation<'a> {
    endpoint: &'a Endpoint,
    slots: &'a Slots,
    number: u32,
    /// A part has been posted.
    posted: bool,
    ended: bool,
}

impl TaggedOperation<'_> {
    /// Calls `post` to post a part, with the part's context. Errors: as `post`.
    pub fn part(&mut self, post: impl FnOnce(u64) -> Result<Outcome>) -> Result<Outcome> {
        let slot = self.slots.slot(self.number);
        // Counts before the post, since another thread may take the completion.
        slot.left.fetch_add(1, Ordering::Relaxed);
        self.slots.pending.fetch_add(1, Ordering::Relaxed);
        let outcome = post(u64::from(self.number) << 2 | MARK);
        if outcome != Ok(Outcome::Pending) {
            self.slots.pending.fetch_sub(1, Ordering::Relaxed);
            slot.left.fetch_sub(1, Ordering::Relaxed);
        }
        self.posted |= outcome.is_ok();
        outcome
    }

    /// Sets the word to 1 when all parts have succeeded.
    ///
    /// # Safety
    /// The word is valid until the operation has ended.
    pub unsafe fn sets(&self, word: *const AtomicU32) {
        let slot = self.slots.slot(self.number);
        slot.word.store(word.cast_mut(), Ordering::Relaxed);
        self.endpoint.noticed.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the posting of parts. A failure after the first part, or by the peer's death, fails the operation, and its report has the error. Errors: any
    /// other failure; then nothing is posted or reported.
    pub fn end(mut self, engine: &Engine, result: Result<()>) -> Result<()> {
        if let Err(error) = result {
            if !self.posted && !matches!(error, Error::RankDead(_)) {
                return Err(error);
            }
            *self.slots.slot(self.number).failure.lock() = Some(error);
        }
        self.ended = true;
        if self.endpoint.share_ended(self.slots, self.number) {
            // Another thread may wait for this report, or for the word.
            engine.ring();
        }
        Ok(())
    }
}

impl Drop for TaggedOperation<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.endpoint.take_word(self.slots.slot(self.number));
            let _ = self.slots.free.push(self.number);
        }
    }
}

impl Endpoint {
    /// Claims a slot for an operation with `tag`, until its report is taken. Tag 0: the operation has no report, and [`drain`](Endpoint::drain) returns its
    /// failure. Errors: as [`claim`](Endpoint::claim). The endpoint's depth limits tagged operations and other requests separately.
    pub fn tagged(&self, tag: u64) -> Result<TaggedOperation<'_>> {
        if self.posted.look() & DRAINING != 0 {
            return Err(refusal(DRAINING));
        }
        let slots = self.tagged.0.get_or_init(|| Slots::new(self.depth));
        let number = slots.free.pop().ok_or_else(|| refusal(0))?;
        let slot = slots.slot(number);
        slot.tag.store(tag, Ordering::Relaxed);
        slot.left.store(1, Ordering::Relaxed);
        Ok(TaggedOperation {
            endpoint: self,
            slots,
            number,
            posted: false,
            ended: false,
        })
    }

    /// Number of tagged operations with a report that is not taken, or still to come.
    pub fn unreported(&self) -> u32 {
        let slots = self.tagged.0.get();
        slots.map_or(0, |slots| (slots.all.len() - slots.free.len()) as u32)
    }

    /// Takes the report of an operation that has ended: its tag and its result.
    pub fn take_report(&self) -> Option<(u64, Result<()>)> {
        let slots = self.tagged.0.get()?;
        let number = slots.ended.pop()?;
        let slot = slots.slot(number);
        let failure = slot.failure.lock().take();
        let report = (
            slot.tag.load(Ordering::Relaxed),
            failure.map_or(Ok(()), Err),
        );
        let _ = slots.free.push(number);
        Some(report)
    }

    /// Frees the places of requests without tags. Condition: half of all places are taken, no failure is unreported, and none of those requests is in
    /// progress. For programs that wait for reports only.
    pub fn free_untagged(&self, engine: &Engine) {
        let crowded = u64::from(self.posted()) * 2 >= self.depth && self.failed.is_empty();
        if !crowded || !self.posted.close() {
            return;
        }
        let covered = self.posted();
        self.progress();
        let slots = self.tagged.0.get();
        let tagged = slots.map_or(0, |slots| slots.pending.load(Ordering::Relaxed));
        if self.pending() <= tagged {
            let _ = self.drained(covered);
        }
        self.open(engine);
    }

    /// Takes the completion of a part.
    pub(super) fn part_ended(&self, completion: Completion) {
        let Some(slots) = self.tagged.0.get() else {
            return;
        };
        let number = (completion.context >> 2) as u32;
        if let Err(error) = completion.result {
            slots.slot(number).failure.lock().get_or_insert(error);
        }
        slots.pending.fetch_sub(1, Ordering::Relaxed);
        self.share_ended(slots, number);
    }

    /// Ends a share of an operation. Returns whether it was the last share.
    fn share_ended(&self, slots: &Slots, number: u32) -> bool {
        let slot = slots.slot(number);
        if slot.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        let word = self.take_word(slot);
        let mut failure = slot.failure.lock();
        if failure.is_none() && !word.is_null() {
            // SAFETY:
            // - contract of `TaggedOperation::sets`: valid until this end.
            unsafe { &*word }.store(1, Ordering::Release);
        }
        if slot.tag.load(Ordering::Relaxed) != 0 {
            drop(failure);
            let _ = slots.ended.push(number);
            return true;
        }
        if let Some(error) = failure.take() {
            self.failed.push(Completion {
                context: 0,
                result: Err(error),
            });
        }
        drop(failure);
        let _ = slots.free.push(number);
        true
    }

    fn take_word(&self, slot: &Slot) -> *mut AtomicU32 {
        let word = slot.word.swap(null_mut(), Ordering::Relaxed);
        if !word.is_null() {
            self.noticed.fetch_sub(1, Ordering::Relaxed);
        }
        word
    }
}
