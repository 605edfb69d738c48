//! Global atomics (GASPI 17.1 §10).

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
        self.at_value(place, timeout, |remote, deadline| {
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
        self.at_value(place, timeout, |remote, deadline| {
            self.atomics
                .compare_swap(self.world.engine(), remote, comparator, new, deadline)
        })
    }

    #[inline(always)]
    fn at_value(
        &self,
        place: Place,
        timeout: u64,
        run: impl Fn(Remote<'_>, Deadline) -> unipgas_core::Result<u64>,
    ) -> Result<u64> {
        if place.offset & 7 != 0 {
            return Err(Status::ErrUnalignOff);
        }
        let (rank, id) = (u32::from(place.rank), usize::from(place.segment));
        let deadline = deadline(timeout);
        let call = self.call();
        let mut import = self.imported(rank, id, &call);
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
                            import = self.world.import(rank, id, &call);
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
