//! Global atomics (GASPI 17.1 §10).

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::calls::Call;
use unipgas_core::imports::Imported;
use unipgas_core::op::Remote;
use unipgas_core::{AtomicOp, Error};

use crate::process::{GaspiProcess, deadline};
use crate::status::{Result, Status};

/// Bytes of a global value.
const VALUE: usize = size_of::<u64>();

/// Address of a global value. It must be aligned to 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalAddress {
    /// The segment.
    pub segment: u8,
    /// Offset in the segment, in bytes.
    pub offset: u64,
    /// The owner of the segment.
    pub rank: u16,
}

/// A change of a global value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds a value (§10.2.1).
    Add(u64),
    /// Replaces the value if it equals the comparator (§10.2.2).
    Swap { comparator: u64, new: u64 },
}

impl Change {
    /// Changes the value and returns the previous one.
    #[inline(always)]
    fn of(self, at: &AtomicU64) -> u64 {
        match self {
            Change::Add(value) => at.fetch_add(value, Ordering::AcqRel),
            Change::Swap { comparator, new } => at
                .compare_exchange(comparator, new, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|before| before),
        }
    }
}

impl GaspiProcess {
    /// Adds `value` and returns the previous value (§10.2.1). Errors: [`Status::ErrUnalignOff`], and the errors of an access to `place`.
    #[inline]
    pub fn fetch_add(&self, place: GlobalAddress, value: u64, timeout: u64) -> Result<u64> {
        self.change(Change::Add(value), place, timeout)
    }

    /// Replaces the value by `new` if it equals `comparator`. Returns the previous value (§10.2.2). Errors: as [`fetch_add`](GaspiProcess::fetch_add).
    #[inline]
    pub fn compare_swap(
        &self,
        place: GlobalAddress,
        comparator: u64,
        new: u64,
        timeout: u64,
    ) -> Result<u64> {
        self.change(Change::Swap { comparator, new }, place, timeout)
    }

    #[inline(always)]
    fn change(&self, change: Change, place: GlobalAddress, timeout: u64) -> Result<u64> {
        let call = self.call();
        if let Some(before) = self.change_fast(&call, change, place) {
            return Ok(before);
        }
        drop(call);
        self.change_slow(change, place, timeout)
    }

    /// Changes a mapped value. `None` if its region is not imported, or if the slow path is due.
    #[inline(always)]
    pub(crate) fn change_fast(
        &self,
        _call: &Call,
        change: Change,
        place: GlobalAddress,
    ) -> Option<u64> {
        let posting = self.atomics.post_fast()?;
        // SAFETY:
        // - the import is used only within the call, and `self` keeps the world alive.
        let import = unsafe { self.imports.get(place.rank.into(), place.segment.into()) };
        let at = import.and_then(|import| posting.fast_path().value(at_place(&place, import)));
        let before = at.map(|at| change.of(at));
        posting.end(before.is_some(), VALUE);
        before
    }

    /// For threads that do not own the endpoint. Its owner takes this path for liveness checks, and for values that are not mapped.
    #[cold]
    pub(crate) fn change_slow(
        &self,
        change: Change,
        place: GlobalAddress,
        timeout: u64,
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
                    Some(at) => Ok(change.of(at)),
                    None => self.ask(place, change, found, timeout),
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
        Err(self.failed_at(rank, error))
    }

    /// Posts a change, or resumes an equal change that timed out earlier. §3.9: "the procedure has to be invoked subsequently in order to fully
    /// complete the operation".
    #[cold]
    fn ask(
        &self,
        place: GlobalAddress,
        change: Change,
        found: &Imported,
        timeout: u64,
    ) -> unipgas_core::Result<u64> {
        let key = (place, change);
        let (op, operand, compare) = match change {
            Change::Add(value) => (AtomicOp::Sum, value, 0),
            Change::Swap { comparator, new } => (AtomicOp::Cswap, new, comparator),
        };
        let awaited = match self.unfinished.take(&key) {
            Some(awaited) => awaited,
            None => {
                let executor = found.data.executor(deadline(timeout))?;
                let at = executor.at(place.offset as usize);
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
fn at_place<'a>(place: &GlobalAddress, import: &'a Imported) -> Remote<'a> {
    import.data.at(place.offset as usize)
}
