//! Several gets, with a notification of this process after their end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Endpoint;
use crate::Result;
use crate::bell::Bell;
use crate::engine::Engine;
use crate::op::{Flags, Local, Outcome, Remote};

/// Sets a word of this process when the last of several gets has completed. The gets' contexts share it by raw pointer.
pub(super) struct GetNotice {
    /// Gets in progress, and one for the posting call.
    left: AtomicU32,
    failed: AtomicBool,
    word: *const AtomicU32,
    bell: *const Bell,
}

impl GetNotice {
    fn new(engine: &Engine, word: *const AtomicU32) -> &'static Self {
        Box::leak(Box::new(GetNotice {
            left: AtomicU32::new(1),
            failed: AtomicBool::new(false),
            word,
            bell: engine.bell(),
        }))
    }

    fn share(&self) -> u64 {
        self.left.fetch_add(1, Ordering::Relaxed);
        std::ptr::from_ref(self) as u64
    }

    fn all_posted(&self) {
        // SAFETY:
        // - ends the share of the posting call, which `new` has counted.
        unsafe { Self::part_done(std::ptr::from_ref(self) as u64, true) };
    }

    /// # Safety
    /// `context` came from [`share`](Self::share). Each share is ended once.
    pub(super) unsafe fn part_done(context: u64, success: bool) {
        let this = context as *const GetNotice;
        // SAFETY:
        // - it exists while shares are left, and the last share frees it.
        // - contract of `get_notify`: `word` is valid until completion. The endpoint keeps the owner of the bell (`rings`).
        unsafe {
            if !success {
                (*this).failed.store(true, Ordering::Relaxed);
            }
            if (*this).left.fetch_sub(1, Ordering::AcqRel) == 1 {
                if !(*this).failed.load(Ordering::Relaxed) {
                    (*(*this).word).store(1, Ordering::Release);
                    (*(*this).bell).ring_if_heard();
                }
                drop(Box::from_raw(this.cast_mut()));
            }
        }
    }
}

impl Endpoint {
    /// Reads the `parts`, then sets a notification word of this process to 1 (GASPI 17.1 §8.4.4). It has no other order. Errors: as
    /// [`Channel::get`](crate::transport::Channel::get), for the first part that is refused. The word is not set then.
    ///
    /// # Safety
    /// As [`Channel::get`](crate::transport::Channel::get), for each part. `word` is valid until the operation is complete.
    pub unsafe fn get_notify<'a>(
        &self,
        engine: &Engine,
        parts: impl Iterator<Item = (Local, Remote<'a>, usize)>,
        word: *const AtomicU32,
    ) -> Result<()> {
        if !self.driven {
            for (dst, src, len) in parts {
                // SAFETY:
                // - contract of this call.
                unsafe { self.get(dst, src, len, Flags::empty(), 0) }?;
            }
            // SAFETY:
            // - contract of this call: `word` is valid.
            unsafe { &*word }.store(1, Ordering::Release);
            engine.ring();
            return Ok(());
        }
        let notice = GetNotice::new(engine, word);
        let mut result = Ok(());
        for (dst, src, len) in parts {
            let context = notice.share();
            self.noticed.fetch_add(1, Ordering::Relaxed);
            // SAFETY:
            // - contract of this call.
            let outcome = unsafe { self.get(dst, src, len, Flags::empty(), context) };
            if let Ok(Outcome::Pending) = outcome {
                continue;
            }
            self.noticed.fetch_sub(1, Ordering::Relaxed);
            // SAFETY:
            // - the share was taken above, and this is its only end.
            unsafe { GetNotice::part_done(context, outcome.is_ok()) };
            if let Err(error) = outcome {
                result = Err(error);
                break;
            }
        }
        notice.all_posted();
        result
    }
}
