//! Counters (fi_cntr(3)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::Deadline;

use crate::completion::Attached;
use crate::domain::Domain;
use crate::status::{Errno, Result};

/// Counts completed operations, and failed ones.
pub struct Counter {
    domain: Arc<Domain>,
    value: AtomicU64,
    errors: AtomicU64,
    pub(crate) attached: Attached,
}

impl Counter {
    /// At 0.
    pub fn new(domain: &Arc<Domain>) -> Arc<Counter> {
        Arc::new(Counter {
            domain: domain.clone(),
            value: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            attached: Attached::default(),
        })
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Completed operations.
    pub fn read(&self) -> u64 {
        self.attached.progress();
        self.value.load(Ordering::Acquire)
    }

    /// Failed operations.
    pub fn read_errors(&self) -> u64 {
        self.attached.progress();
        self.errors.load(Ordering::Acquire)
    }

    /// Adds to the count.
    #[inline]
    pub fn add(&self, value: u64) {
        self.value.fetch_add(value, Ordering::AcqRel);
        self.domain.engine().ring();
    }

    /// Sets the count.
    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        self.domain.engine().ring();
    }

    /// Adds to the count of errors.
    pub fn add_errors(&self, value: u64) {
        self.errors.fetch_add(value, Ordering::AcqRel);
        self.domain.engine().ring();
    }

    /// Sets the count of errors.
    pub fn set_errors(&self, value: u64) {
        self.errors.store(value, Ordering::Release);
        self.domain.engine().ring();
    }

    /// Waits until the count is `threshold` at least. Errors: [`Errno::TIMEDOUT`]; [`Errno::AVAIL`] if an operation fails meanwhile.
    pub fn wait(&self, threshold: u64, deadline: Deadline) -> Result<()> {
        let errors = self.errors.load(Ordering::Acquire);
        let mut check = || {
            self.attached.look();
            Ok(())
        };
        let waited = self.domain.engine().wait_for(deadline, &mut check, || {
            self.attached.progress();
            if self.value.load(Ordering::Acquire) >= threshold {
                return Some(Ok(()));
            }
            (self.errors.load(Ordering::Acquire) != errors).then_some(Err(Errno::AVAIL))
        });
        waited.unwrap_or(Err(Errno::TIMEDOUT))
    }
}
