//! Global atomics (GASPI 17.1 §10).

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::calls::Call;
use unipgas_core::op::Remote;
use unipgas_core::{Deadline, Error};

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
        let call = self.call();
        if let Some(at) = self.value_at_hand(&place, &call) {
            return Ok(at.fetch_add(value, Ordering::AcqRel));
        }
        self.at_value(place, timeout, &call, |remote, deadline| {
            self.atomics
                .fetch_add(self.world.engine(), remote, value, deadline)
        })
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
        let call = self.call();
        if let Some(at) = self.value_at_hand(&place, &call) {
            let swapped = at.compare_exchange(comparator, new, Ordering::AcqRel, Ordering::Acquire);
            return Ok(swapped.unwrap_or_else(|before| before));
        }
        self.at_value(place, timeout, &call, |remote, deadline| {
            self.atomics
                .compare_swap(self.world.engine(), remote, comparator, new, deadline)
        })
    }

    /// A value that is mapped here, of a rank that has been talked to. `None`: look closely.
    #[inline(always)]
    fn value_at_hand<'a>(&'a self, place: &Place, _call: &'a Call) -> Option<&'a AtomicU64> {
        let now = self.atomics.at_once()?;
        // SAFETY:
        // - the result borrows the call, and self, which keeps the world.
        let import = unsafe { self.imports.get(place.rank.into(), place.segment.into()) }?;
        now.value(Remote {
            region: &import.data,
            offset: place.offset as usize,
        })
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
