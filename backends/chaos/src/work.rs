//! An operation that has been posted and waits to be carried out, and how a part of it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unipgas_core::kept::{self, Kept, Place};
use unipgas_core::op::{Flags, Outcome};
use unipgas_core::transport::Channel;
use unipgas_core::{RemoteRegion, Result};

use crate::plan::Part;

/// An operation to be carried out later.
pub struct Work {
    kept: Kept,
    /// The word that says that there was no room, as long as the record is offered again.
    overflow: Option<Place>,
}

/// Names an inbox: records of one channel to one inbox stay in order.
pub type InboxId = (u32, usize, usize, [u64; 4]);

impl Work {
    /// With a copy of what is the caller's for the time of the call alone.
    ///
    /// # Safety
    /// The call whose arguments these are has not returned.
    pub unsafe fn new(mut kept: Kept, flags: Flags) -> Self {
        // SAFETY:
        // - the caller's word.
        unsafe { kept.take(flags) };
        Work {
            kept,
            overflow: None,
        }
    }

    /// The region that says which peer the operation is for.
    pub fn region(&self) -> &RemoteRegion {
        self.kept.region()
    }

    /// The inbox that the operation delivers to, if it does.
    pub fn inbox(&self) -> Option<InboxId> {
        match &self.kept {
            Kept::Deliver { first, .. } => {
                let parts = first.parts();
                Some((
                    parts.peer,
                    parts.base as usize,
                    parts.generation as usize,
                    parts.detail,
                ))
            }
            _ => None,
        }
    }

    /// Whether a record that finds no room is not offered again: then its owner is told so.
    pub fn set_last_try(&mut self, last: bool) {
        if let Kept::Deliver { overflow, .. } = &mut self.kept
            && overflow.is_some() != last
        {
            std::mem::swap(overflow, &mut self.overflow);
        }
    }

    /// Gives `part` of the work to the channel below.
    ///
    /// # Safety
    /// What the user has said of the pointers still holds.
    pub unsafe fn carry_out(
        &self,
        part: &Part,
        inner: &dyn Channel,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let part = match part {
            Part::Whole => self.kept.whole(),
            Part::Data => kept::Part::Data(0..self.kept.extent()),
            Part::Range(range) => kept::Part::Data(range.clone()),
            Part::Notice => kept::Part::Notice,
        };
        // SAFETY:
        // - the caller's word; `new` has copied the rest.
        unsafe { self.kept.post(&part, inner, flags, context) }
    }
}

/// What befalls the process at a chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disaster {
    /// SIGKILL.
    Kill,
    /// Nothing goes on for so long.
    Stall(Duration),
}

impl Disaster {
    /// Does not return from [`Disaster::Kill`].
    pub fn strike(self, stalls: &Stalls) {
        match self {
            Disaster::Kill => {
                let me = rustix::process::getpid();
                let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
                // A process 1 that ignores the signal ends all the same.
                std::process::abort()
            }
            Disaster::Stall(span) => {
                tracing::debug!(?span, "chaos: stall");
                stalls.begin(span);
                stalls.pass();
            }
        }
    }
}

/// The gate that all of a process's communication passes.
pub struct Stalls {
    start: Instant,
    /// Nanoseconds after `start`.
    until: AtomicU64,
}

impl Stalls {
    pub fn new() -> Self {
        Stalls {
            start: Instant::now(),
            until: AtomicU64::new(0),
        }
    }

    fn begin(&self, span: Duration) {
        let until = self.start.elapsed().saturating_add(span).as_nanos();
        self.until
            .fetch_max(until.min(u128::from(u64::MAX)) as u64, Ordering::Relaxed);
    }

    /// Returns when no stall is on.
    pub fn pass(&self) {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return;
        }
        while let Some(rest) = Duration::from_nanos(until).checked_sub(self.start.elapsed()) {
            if rest.is_zero() {
                break;
            }
            std::thread::sleep(rest);
        }
    }
}
