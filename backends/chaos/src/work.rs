//! A posted operation that waits to be carried out, and its parts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unipgas_core::deferred_op::{self, DeferredOp, RegionPlace};
use unipgas_core::op::{Flags, Outcome};
use unipgas_core::transport::Channel;
use unipgas_core::{RemoteRegion, Result};

use crate::plan::OperationPart;

/// An operation to be carried out later.
pub(crate) struct Work {
    kept: DeferredOp,
    /// The overflow word of the inbox, removed from the operation while retries are left.
    overflow: Option<RegionPlace>,
}

/// Identifies an inbox. Records of one channel to one inbox stay in order.
pub(crate) type InboxId = (u32, usize, usize, [u64; 4]);

impl Work {
    /// Copies the data that is valid only during the call.
    ///
    /// # Safety
    /// The arguments belong to a call that has not returned.
    pub unsafe fn new(mut kept: DeferredOp, flags: Flags) -> Self {
        // SAFETY:
        // - contract of this function: the call has not returned.
        unsafe { kept.take(flags) };
        Work {
            kept,
            overflow: None,
        }
    }

    /// The region that identifies the peer of the operation.
    pub fn region(&self) -> &RemoteRegion {
        self.kept.region()
    }

    /// The inbox of a delivery; `None` for other operations.
    pub fn inbox(&self) -> Option<InboxId> {
        match &self.kept {
            DeferredOp::Deliver { first, .. } => {
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

    /// Sets whether the next try is the last. Only the last try may set the overflow word of the inbox.
    pub fn set_last_try(&mut self, last: bool) {
        if let DeferredOp::Deliver { overflow, .. } = &mut self.kept
            && overflow.is_some() != last
        {
            std::mem::swap(overflow, &mut self.overflow);
        }
    }

    /// Posts `part` of the operation to the channel below.
    ///
    /// # Safety
    /// The pointers of the user are still valid, as the operation requires.
    pub unsafe fn carry_out(
        &self,
        part: &OperationPart,
        inner: &dyn Channel,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let part = match part {
            OperationPart::Whole => self.kept.whole(),
            OperationPart::Data => deferred_op::DeferredPart::Data(0..self.kept.extent()),
            OperationPart::Range(range) => deferred_op::DeferredPart::Data(range.clone()),
            OperationPart::Notice => deferred_op::DeferredPart::Notice,
        };
        // SAFETY:
        // - contract of this function: the pointers of the user are valid. `new` has copied the rest.
        unsafe { self.kept.post(&part, inner, flags, context) }
    }
}

/// Disaster of the process at a chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disaster {
    /// SIGKILL.
    Kill,
    /// All communication stops for this time.
    Stall(Duration),
}

impl Disaster {
    /// Does not return for [`Disaster::Kill`].
    pub fn strike(self, stalls: &Stalls) {
        match self {
            Disaster::Kill => {
                let me = rustix::process::getpid();
                let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
                // Process 1 ignores the signal, so it aborts.
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

/// Gate that all communication of the process passes.
pub(crate) struct Stalls {
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

    /// Returns when no stall is in progress.
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
