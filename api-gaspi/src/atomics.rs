//! Global atomics (GASPI 17.1 §10).

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::imports::Imported;
use unipgas_core::op::Remote;
use unipgas_core::{AtomicOp, Error};

use crate::process::{Process, deadline};
use crate::status::{Result, Status, from_engine};

/// Bytes of a global value.
const VALUE: usize = size_of::<u64>();

/// Where a global value lies. It must be aligned to 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The segment.
    pub segment: u8,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Whose segment.
    pub rank: u16,
}

/// Operation, operand, comparand.
pub(crate) type Asked = (AtomicOp, u64, u64);

impl Process {
    /// Adds `value` and gives what was there before (§10.2.1). Errors: [`Status::ErrUnalignOff`] and those of the place.
    #[inline]
    pub fn fetch_add(&self, place: Place, value: u64, timeout: u64) -> Result<u64> {
        self.on_value(
            place,
            timeout,
            |at| at.fetch_add(value, Ordering::AcqRel),
            (AtomicOp::Sum, value, 0),
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
            (AtomicOp::Cswap, new, comparator),
        )
    }

    /// `change`s a value that is mapped here, of a rank that has been talked to; `asked` says the same for others.
    #[inline(always)]
    fn on_value(
        &self,
        place: Place,
        timeout: u64,
        change: impl Fn(&AtomicU64) -> u64,
        asked: Asked,
    ) -> Result<u64> {
        if let Some(posting) = self.atomics.post_fast() {
            // SAFETY:
            // - used before the end of the posting, and self keeps the world.
            let import = unsafe { self.imports.get(place.rank.into(), place.segment.into()) };
            let at = import.and_then(|import| posting.fast_path().value(at_place(&place, import)));
            let before = at.map(&change);
            posting.end(before.is_some(), VALUE);
            if let Some(before) = before {
                return Ok(before);
            }
        }
        self.at_value(place, timeout, change, asked)
    }

    /// For other threads than the first, and now and then for that one.
    #[inline(never)]
    fn at_value(
        &self,
        place: Place,
        timeout: u64,
        change: impl Fn(&AtomicU64) -> u64,
        asked: Asked,
    ) -> Result<u64> {
        if place.offset & 7 != 0 {
            return Err(Status::ErrUnalignOff);
        }
        let (rank, id) = (u32::from(place.rank), usize::from(place.segment));
        let call = self.call();
        if self.atomics.is_look_due() {
            self.look_around();
        }
        self.atomics.own();
        let mut import = self.imported(rank, id, &call, timeout);
        let mut again = false;
        let error = loop {
            let run =
                |found: &Imported| match self.atomics.fast_path().value(at_place(&place, found)) {
                    Some(at) => Ok(change(at)),
                    None => self.ask(place, asked, found, timeout),
                };
            match import.and_then(run) {
                Ok(value) => {
                    self.atomics.count(VALUE);
                    return Ok(value);
                }
                Err(Error::StaleRegion) if !again => {
                    again = true;
                    import = self.import(rank, id, &call, deadline(timeout));
                }
                Err(error) => break error,
            }
        };
        self.check_rank(place.rank)?;
        Err(from_engine(error))
    }

    /// Asks for a change; or goes on with one that was asked for, and not waited out: §3.9, "the procedure has to be invoked subsequently in
    /// order to fully complete the operation".
    #[cold]
    fn ask(
        &self,
        place: Place,
        asked: Asked,
        found: &Imported,
        timeout: u64,
    ) -> unipgas_core::Result<u64> {
        let key = (place, asked);
        let (op, operand, compare) = asked;
        let awaited = match self.unfinished.take(&key) {
            Some(awaited) => awaited,
            None => {
                let at = Remote {
                    region: found.data.executor(deadline(timeout))?,
                    offset: place.offset as usize,
                };
                self.atomics.change(at, op, operand, compare)?
            }
        };
        let (engine, watch) = (self.world.engine(), &mut self.world.watch_lives());
        let value = awaited.value(&self.atomics, engine, deadline(timeout), watch);
        if value == Err(Error::Timeout) {
            self.unfinished.keep(key, awaited);
        }
        value
    }
}

#[inline(always)]
fn at_place<'a>(place: &Place, import: &'a Imported) -> Remote<'a> {
    Remote {
        region: &import.data,
        offset: place.offset as usize,
    }
}
