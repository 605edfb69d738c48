//! Waits for notifications, and their reset (GASPI 17.1 §8.3).

use std::sync::atomic::Ordering;

use unipgas_core::Error;
use unipgas_core::calls::Call;

use crate::process::{GaspiProcess, deadline};
use crate::status::{Result, Status};

/// Number of polls of notifications for each round of progress of the queues.
const LOOKS: u32 = 64;

impl GaspiProcess {
    /// Waits until one of the `num` notifications from `begin` on is set. Returns its number (§8.3.3).
    #[inline]
    pub fn notify_waitsome(&self, segment: u8, begin: u32, num: u32, timeout: u64) -> Result<u32> {
        let call = self.call();
        if let Some(id) = self.find_fast(&call, segment, begin, num) {
            return Ok(id);
        }
        drop(call);
        self.waitsome_slow(segment, begin, num, timeout)
    }

    /// [`notify_waitsome`](GaspiProcess::notify_waitsome), if a notification is already set.
    #[inline(always)]
    pub(crate) fn find_fast(&self, _: &Call, segment: u8, begin: u32, num: u32) -> Option<u32> {
        let words = self.words(segment).ok()?;
        let id = words.find(begin as usize, num as usize)?;
        Some(id as u32)
    }

    #[cold]
    pub(crate) fn waitsome_slow(
        &self,
        segment: u8,
        begin: u32,
        num: u32,
        timeout: u64,
    ) -> Result<u32> {
        let words = self.words(segment)?;
        if begin >= self.config.notification_num {
            return Err(Status::ErrInvNotifId);
        }
        if num > self.config.notification_num - begin {
            return Err(Status::ErrInvNum);
        }
        if num == 0 {
            return Ok(begin);
        }
        let driven = self.world.engine().is_driven();
        let mut watch = self.watch();
        let mut check = || match self.has_words(segment, &words) {
            true => watch(),
            false => Err(Error::StaleRegion),
        };
        words
            .wait_some(
                self.world.engine(),
                begin as usize,
                num as usize,
                deadline(timeout),
                &mut check,
                || {
                    if driven && (self.look().is_multiple_of(LOOKS) || self.owes_notices()) {
                        self.progress();
                    }
                },
            )
            .map(|id| id as u32)
            .map_err(|error| match error {
                Error::Timeout => Status::Timeout,
                Error::StaleRegion => Status::ErrInvSeg,
                _ => Status::Error,
            })
    }

    fn look(&self) -> u32 {
        self.looks.fetch_add(1, Ordering::Relaxed)
    }

    /// Atomically sets a notification to 0 and returns its previous value (§8.3.4).
    #[inline]
    pub fn notify_reset(&self, segment: u8, id: u32) -> Result<u32> {
        self.words(segment)?
            .take(id as usize)
            .map_err(|_| Status::ErrInvNotifId)
    }
}
