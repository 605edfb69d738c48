//! Several gets, after whose end a notification of this process is set.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Endpoint;
use crate::Result;
use crate::bell::Bell;
use crate::engine::Engine;
use crate::op::{Flags, Local, Outcome, Remote};

/// Sets a word of this process when the last of several gets is done. Shared by raw pointer: the gets' contexts.
pub(super) struct GetNotice {
    /// Gets under way, and one for the posting call.
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
    /// `context` came from [`share`](Self::share), and each share is ended once.
    pub(super) unsafe fn part_done(context: u64, success: bool) {
        let this = context as *const GetNotice;
        // SAFETY:
        // - alive while shares are left; the last one frees it; word and bell are valid by the word of `get_notify`'s caller.
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
    /// Reads the `parts`, then sets a notification word of this process to 1 (GASPI 17.1 §8.4.4). Ordered against nothing else.
    /// Errors: those of [`Channel::get`](crate::transport::Channel::get) for the first part that is refused; then no word is set.
    ///
    /// # Safety
    /// As [`Channel::get`](crate::transport::Channel::get), for every part; `word` stays valid until the operation is complete.
    pub unsafe fn get_notify<'a>(
        &self,
        engine: &Engine,
        parts: impl Iterator<Item = (Local, Remote<'a>, usize)>,
        word: *const AtomicU32,
    ) -> Result<()> {
        if !self.driven {
            for (dst, src, len) in parts {
                // SAFETY:
                // - the caller's word.
                unsafe { self.get(dst, src, len, Flags::empty(), 0) }?;
            }
            // SAFETY:
            // - the caller's word.
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
            // - the caller's word.
            let outcome = unsafe { self.get(dst, src, len, Flags::empty(), context) };
            if let Ok(Outcome::Pending) = outcome {
                continue;
            }
            self.noticed.fetch_sub(1, Ordering::Relaxed);
            // SAFETY:
            // - the share that was just taken; this is its only end.
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
