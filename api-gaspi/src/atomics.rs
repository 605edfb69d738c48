//! Global atomics (GASPI 17.1 §10).

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::calls::Call;
use unipgas_core::op::Remote;
use unipgas_core::{AtOnce, Deadline, Error};

use crate::process::{Process, deadline};
use crate::status::{Result, Status, from_engine};

/// Where a global value lies. It must be aligned to 8 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The segment.
    pub segment: u8,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Whose segment.
    pub rank: u16,
}

impl Process {
    /// Adds `value` and gives what was there before (§10.2.1). Errors: [`Status::ErrUnalignOff`] and those of the place.
    #[inline]
    pub fn fetch_add(&self, place: Place, value: u64, timeout: u64) -> Result<u64> {
        self.on_value(
            place,
            timeout,
            |at| at.fetch_add(value, Ordering::AcqRel),
            |remote, deadline| {
                self.atomics
                    .fetch_add(self.world.engine(), remote, value, deadline)
            },
        )
    }

    /// Replaces the value by `new` if it equals `comparator`; gives what was there before (§10.2.2).
    #[inline]
    pub fn compare_swap(
        &self,
        place: Place,
        comparator: u64,
        new: u64,
        timeout: u64,
    ) -> Result<u64> {
        self.on_value(
            place,
            timeout,
            |at| {
                at.compare_exchange(comparator, new, Ordering::AcqRel, Ordering::Acquire)
                    .unwrap_or_else(|before| before)
            },
            |remote, deadline| {
                self.atomics
                    .compare_swap(self.world.engine(), remote, comparator, new, deadline)
            },
        )
    }

    /// `change`s a value that is mapped here, of a rank that has been talked to; `ask`s for the change of others.
    #[inline(always)]
    fn on_value(
        &self,
        place: Place,
        timeout: u64,
        change: impl Fn(&AtomicU64) -> u64,
        ask: impl Fn(Remote<'_>, Deadline) -> unipgas_core::Result<u64>,
    ) -> Result<u64> {
        if let Some(posting) = self.atomics.post_at_once() {
            // SAFETY:
            // - used before the end of the posting, and self keeps the world.
            let before = unsafe { self.value_at_hand(&place, posting.at_once()) }.map(&change);
            posting.end(before.is_some());
            if let Some(before) = before {
                return Ok(before);
            }
        }
        self.on_value_beside(place, timeout, change, ask)
    }

    /// # Safety
    /// The result is used in a call, or before the end of a posting.
    #[inline(always)]
    unsafe fn value_at_hand(&self, place: &Place, now: AtOnce) -> Option<&AtomicU64> {
        // SAFETY:
        // - the caller's word; self keeps the world.
        let import = unsafe { self.imports.get(place.rank.into(), place.segment.into()) }?;
        now.value(Remote {
            region: &import.data,
            offset: place.offset as usize,
        })
    }

    /// For other threads than the first, and now and then for that one.
    #[inline(never)]
    fn on_value_beside(
        &self,
        place: Place,
        timeout: u64,
        change: impl Fn(&AtomicU64) -> u64,
        ask: impl Fn(Remote<'_>, Deadline) -> unipgas_core::Result<u64>,
    ) -> Result<u64> {
        let call = self.call();
        if self.atomics.is_look_due() {
            self.look_around();
        }
        if let Some(now) = self.atomics.at_once() {
            self.atomics.own();
            // SAFETY:
            // - used in the call.
            if let Some(at) = unsafe { self.value_at_hand(&place, now) } {
                return Ok(change(at));
            }
        }
        self.at_value(place, timeout, &call, ask)
    }

    #[cold]
    fn at_value(
        &self,
        place: Place,
        timeout: u64,
        call: &Call,
        run: impl Fn(Remote<'_>, Deadline) -> unipgas_core::Result<u64>,
    ) -> Result<u64> {
        if place.offset & 7 != 0 {
            return Err(Status::ErrUnalignOff);
        }
        let (rank, id) = (u32::from(place.rank), usize::from(place.segment));
        let deadline = deadline(timeout);
        let mut import = self.imported(rank, id, call);
        let mut again = false;
        let error = loop {
            match import {
                Ok(found) => {
                    let remote = Remote {
                        region: &found.data,
                        offset: place.offset as usize,
                    };
                    match run(remote, deadline) {
                        Ok(value) => return Ok(value),
                        Err(Error::StaleRegion) if !again => {
                            again = true;
                            import = self.world.import(rank, id, call);
                        }
                        Err(error) => break error,
                    }
                }
                Err(error) => break error,
            }
        };
        self.check_rank(place.rank)?;
        Err(from_engine(error))
    }
}
