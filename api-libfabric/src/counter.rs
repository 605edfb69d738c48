//! Counters (fi_cntr(3)).

use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use unipgas_core::Deadline;
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::tally::Tally;
use unipgas_core::wait::WaitProgress;
use unipgas_core::waits::{self, polled};
use unipgas_core::watcher::Watched;

use crate::domain::Domain;
use crate::status::{Errno, Result};
use crate::waits::{Wait, Waits};

/// Counts completed operations and failed operations.
pub struct Counter {
    pub(crate) waits: Waits,
    /// Count without the additions of peers.
    value: AtomicU64,
    /// Word that peers increment, once the counter is bound to operations of peers.
    tally: OnceLock<Tally>,
    errors: AtomicU64,
    /// The value of `errors` that the program has set, read, or got from a wait.
    known_errors: AtomicU64,
    /// Count of successes that the program has read, or waited for.
    known: AtomicU64,
    /// Limits liveness checks of peers while the program polls the counter.
    liveness: LivenessTimer,
}

impl Counter {
    /// A counter at 0.
    pub fn new(domain: &Arc<Domain>) -> Arc<Counter> {
        Self::with_wait(domain, Wait::Call).expect("needs no descriptor")
    }

    /// A counter with this way to wait. Errors: the system refuses a descriptor or a thread.
    pub fn with_wait(domain: &Arc<Domain>, wait: Wait) -> Result<Arc<Counter>> {
        let counter = Arc::new(Counter {
            waits: Waits::new(domain, wait)?,
            value: AtomicU64::new(0),
            tally: OnceLock::new(),
            errors: AtomicU64::new(0),
            known_errors: AtomicU64::new(0),
            known: AtomicU64::new(0),
            liveness: LivenessTimer::default(),
        });
        if wait == Wait::Descriptor {
            let watched: Arc<dyn Watched> = counter.clone();
            domain.watcher().watch(Arc::downgrade(&watched))?;
        }
        Ok(counter)
    }

    /// Readable when the counter has changed, after [`Counter::arm`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.waits.point.descriptor()
    }

    /// Whether the program does not know the current value of one of the counts.
    fn has_changed(&self) -> bool {
        let changed = self.waits.progress_until(|| {
            let errors = self.errors.load(Ordering::Acquire);
            let changed = self.value() != self.known.load(Ordering::Acquire)
                || errors != self.known_errors.load(Ordering::Acquire);
            changed.then_some(())
        });
        changed.is_some()
    }

    /// Prepares a wait for the descriptor (fi_trywait(3)). Errors: [`Errno::AGAIN`] if the program has not read the current value of a count.
    pub fn arm(&self) -> Result<()> {
        self.waits.arm(|| self.has_changed())
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.waits.domain
    }

    /// Ends all waits, before the object is closed. Errors: [`Errno::BUSY`] if it has other users.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.waits.close(self)
    }

    /// Number of the word that peers increment. Errors: [`Errno::NOSPC`] if the domain has no free word.
    pub(crate) fn tally(&self) -> Result<NonZeroU32> {
        if self.tally.get().is_none() {
            let tally = self.waits.domain.tallies().take().ok_or(Errno::NOSPC)?;
            // A former counter may have used the word.
            self.value.fetch_sub(tally.read(), Ordering::AcqRel);
            if let Err(tally) = self.tally.set(tally) {
                self.value.fetch_add(tally.read(), Ordering::AcqRel);
            }
        }
        self.tally.get().map(Tally::number).ok_or(Errno::NOSPC)
    }

    fn tallied(&self) -> u64 {
        self.tally.get().map_or(0, Tally::read)
    }

    fn value(&self) -> u64 {
        let value = self.value.load(Ordering::Acquire);
        value.wrapping_add(self.tallied())
    }

    /// Whether the sum of successes and failures is at least `threshold`.
    pub(crate) fn has_reached(&self, threshold: u64) -> bool {
        let errors = self.errors.load(Ordering::Acquire);
        self.value().saturating_add(errors) >= threshold
    }

    /// Handles a poll of the counter. The program may poll nothing else.
    fn attend(&self) {
        if self.liveness.is_due() {
            self.waits.attached.look();
            let came = self.value() != self.known.load(Ordering::Acquire);
            polled(came, || waits::call("fi_cntr_read"));
        }
        self.waits.progress();
    }

    /// Number of completed operations.
    pub fn read(&self) -> u64 {
        self.attend();
        let value = self.value();
        self.known.store(value, Ordering::Release);
        value
    }

    /// Number of failed operations.
    pub fn read_errors(&self) -> u64 {
        self.attend();
        let errors = self.errors.load(Ordering::Acquire);
        self.known_errors.store(errors, Ordering::Release);
        errors
    }

    /// Adds to the count. It does not start operations that wait for the counter.
    #[inline]
    pub(crate) fn count(&self, value: u64) {
        self.value.fetch_add(value, Ordering::AcqRel);
        self.waits.domain.engine().ring();
    }

    /// Sets the count, as [`Counter::count`] adds to it.
    pub(crate) fn put(&self, value: u64) {
        let value = value.wrapping_sub(self.tallied());
        self.value.store(value, Ordering::Release);
        self.waits.domain.engine().ring();
    }

    /// Adds to the count of errors, as [`Counter::count`] does.
    pub(crate) fn count_errors(&self, value: u64) {
        self.errors.fetch_add(value, Ordering::AcqRel);
        self.waits.domain.engine().ring();
    }

    /// Adds to the count.
    pub fn add(&self, value: u64) {
        self.count(value);
        self.waits.domain.deferred().progress();
    }

    /// Sets the count.
    pub fn set(&self, value: u64) {
        self.put(value);
        self.waits.domain.deferred().progress();
    }

    /// Adds to the count of errors.
    pub fn add_errors(&self, value: u64) {
        self.known_errors.fetch_add(value, Ordering::AcqRel);
        self.count_errors(value);
        self.waits.domain.deferred().progress();
    }

    /// Sets the count of errors.
    pub fn set_errors(&self, value: u64) {
        self.known_errors.store(value, Ordering::Release);
        self.errors.store(value, Ordering::Release);
        self.waits.domain.engine().ring();
        self.waits.domain.deferred().progress();
    }

    /// Waits until the count is at least `threshold`. Errors: [`Errno::TIMEDOUT`]; [`Errno::AVAIL`] for a failure during the call, or an earlier one
    /// since the program last read the count of errors (fi_cntr(3)); [`Errno::INVAL`] for a counter of a wait set; [`Errno::CANCELED`] if
    /// another thread closes it.
    pub fn wait(&self, threshold: u64, deadline: Deadline) -> Result<()> {
        if self.waits.way == Wait::Set {
            return Err(Errno::INVAL);
        }
        let known = self.known_errors.load(Ordering::Acquire);
        let mut steps = WaitProgress::default();
        let note = || steps.note(self.value());
        let call = ("fi_cntr_wait", deadline);
        self.waits.wait(call, Errno::TIMEDOUT, note, || {
            let value = self.value();
            if value >= threshold {
                self.known.store(value, Ordering::Release);
                return Some(Ok(()));
            }
            let errors = self.errors.load(Ordering::Acquire);
            (errors != known).then(|| {
                self.known_errors.store(errors, Ordering::Release);
                Err(Errno::AVAIL)
            })
        })?
    }
}

impl Watched for Counter {
    fn look(&self, at_peers: bool) {
        self.waits.look(at_peers, || self.has_changed());
    }
}
