//! Counters (fi_cntr(3)).

use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::tally::Tally;
use unipgas_core::wait::WaitProgress;
use unipgas_core::waiters::Waiters;
use unipgas_core::waits::{self, polled};
use unipgas_core::watcher::Watched;
use unipgas_core::{Deadline, Error};

use crate::completion::{Attached, Wait, event};
use crate::domain::Domain;
use crate::status::{Errno, Result};

/// Counts completed operations and failed operations.
pub struct Counter {
    domain: Arc<Domain>,
    /// Count without the additions of peers.
    value: AtomicU64,
    /// Word that peers increment, once the counter is bound to operations of peers.
    tally: OnceLock<Tally>,
    errors: AtomicU64,
    /// The value of `errors` that the program has set, read, or got from a wait.
    known_errors: AtomicU64,
    /// Count of successes that the program has read, or waited for.
    known: AtomicU64,
    wait: Wait,
    descriptor: Option<OwnedFd>,
    /// A thread is about to wait for the descriptor.
    armed: AtomicBool,
    /// Limits liveness checks of peers while the program polls the counter.
    liveness: LivenessTimer,
    pub(crate) attached: Attached,
    pub(crate) waiters: Waiters,
}

impl Counter {
    /// A counter at 0.
    pub fn new(domain: &Arc<Domain>) -> Arc<Counter> {
        Arc::new(Self::open(domain, Wait::Call, None))
    }

    /// A counter with this way to wait. Errors: the system refuses a descriptor or a thread.
    pub fn with_wait(domain: &Arc<Domain>, wait: Wait) -> Result<Arc<Counter>> {
        let descriptor = match wait {
            Wait::Descriptor => Some(event()?),
            _ => None,
        };
        let counter = Arc::new(Self::open(domain, wait, descriptor));
        if wait == Wait::Descriptor {
            let watched: Arc<dyn Watched> = counter.clone();
            domain.watcher().watch(Arc::downgrade(&watched))?;
        }
        Ok(counter)
    }

    fn open(domain: &Arc<Domain>, wait: Wait, descriptor: Option<OwnedFd>) -> Counter {
        Counter {
            domain: domain.clone(),
            value: AtomicU64::new(0),
            tally: OnceLock::new(),
            errors: AtomicU64::new(0),
            known_errors: AtomicU64::new(0),
            known: AtomicU64::new(0),
            wait,
            descriptor,
            armed: AtomicBool::new(false),
            liveness: LivenessTimer::default(),
            attached: Attached::default(),
            waiters: Waiters::default(),
        }
    }

    /// Readable when the counter has changed, after [`Counter::arm`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether the program does not know the current value of one of the counts.
    fn has_changed(&self) -> bool {
        let changed = self.attached.progress_until(|| {
            self.domain.deferred().progress();
            let errors = self.errors.load(Ordering::Acquire);
            let changed = self.value() != self.known.load(Ordering::Acquire)
                || errors != self.known_errors.load(Ordering::Acquire);
            changed.then_some(())
        });
        changed.is_some()
    }

    /// Prepares a wait for the descriptor (fi_trywait(3)). Errors: [`Errno::AGAIN`] if the program has not read the current value of a count.
    pub fn arm(&self) -> Result<()> {
        if let Some(descriptor) = &self.descriptor {
            let _ = rustix::io::read(descriptor, &mut [0u8; 8]);
        }
        self.armed.store(true, Ordering::Release);
        if self.has_changed() {
            self.armed.store(false, Ordering::Release);
            return Err(Errno::AGAIN);
        }
        // The progress thread may be asleep, and must poll once more.
        self.domain.engine().ring();
        Ok(())
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Ends all waits, before the object is closed. Errors: [`Errno::BUSY`] if it has other users.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if !self.attached.is_empty() || Arc::strong_count(self) > 1 {
            return Err(Errno::BUSY);
        }
        self.waiters.end(|| self.domain.engine().ring());
        Ok(())
    }

    /// Number of the word that peers increment. Errors: [`Errno::NOSPC`] if the domain has no free word.
    pub(crate) fn tally(&self) -> Result<NonZeroU32> {
        if self.tally.get().is_none() {
            let tally = self.domain.tallies().take().ok_or(Errno::NOSPC)?;
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

    fn progress(&self) {
        self.attached.progress();
        self.domain.deferred().progress();
    }

    /// Handles a poll of the counter. The program may poll nothing else.
    fn attend(&self) {
        if self.liveness.is_due() {
            self.attached.look();
            let came = self.value() != self.known.load(Ordering::Acquire);
            polled(came, || waits::call("fi_cntr_read"));
        }
        self.progress();
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
        self.domain.engine().ring();
    }

    /// Sets the count, as [`Counter::count`] adds to it.
    pub(crate) fn put(&self, value: u64) {
        let value = value.wrapping_sub(self.tallied());
        self.value.store(value, Ordering::Release);
        self.domain.engine().ring();
    }

    /// Adds to the count of errors, as [`Counter::count`] does.
    pub(crate) fn count_errors(&self, value: u64) {
        self.errors.fetch_add(value, Ordering::AcqRel);
        self.domain.engine().ring();
    }

    /// Adds to the count.
    pub fn add(&self, value: u64) {
        self.count(value);
        self.domain.deferred().progress();
    }

    /// Sets the count.
    pub fn set(&self, value: u64) {
        self.put(value);
        self.domain.deferred().progress();
    }

    /// Adds to the count of errors.
    pub fn add_errors(&self, value: u64) {
        self.known_errors.fetch_add(value, Ordering::AcqRel);
        self.count_errors(value);
        self.domain.deferred().progress();
    }

    /// Sets the count of errors.
    pub fn set_errors(&self, value: u64) {
        self.known_errors.store(value, Ordering::Release);
        self.errors.store(value, Ordering::Release);
        self.domain.engine().ring();
        self.domain.deferred().progress();
    }

    /// Waits until the count is at least `threshold`. Errors: [`Errno::TIMEDOUT`]; [`Errno::AVAIL`] for a failure during the call, or an earlier one
    /// since the program last read the count of errors (fi_cntr(3)); [`Errno::INVAL`] for a counter of a wait set; [`Errno::CANCELED`] if
    /// another thread closes it.
    pub fn wait(&self, threshold: u64, deadline: Deadline) -> Result<()> {
        if self.wait == Wait::Set {
            return Err(Errno::INVAL);
        }
        let known = self.known_errors.load(Ordering::Acquire);
        let _inside = self.waiters.enter();
        let mut steps = WaitProgress::default();
        let mut check = || {
            waits::call("fi_cntr_wait");
            steps.note(self.value());
            self.attached.look();
            self.waiters.check()
        };
        let waited = self.domain.engine().wait_for(deadline, &mut check, || {
            self.attached.progress_until(|| {
                self.domain.deferred().progress();
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
            })
        });
        match waited {
            Ok(reached) => reached,
            Err(Error::Ended) => Err(Errno::CANCELED),
            Err(_) => Err(Errno::TIMEDOUT),
        }
    }
}

impl Watched for Counter {
    fn look(&self, at_peers: bool) {
        if !self.armed.load(Ordering::Acquire) {
            return;
        }
        if at_peers {
            self.attached.look();
        }
        if self.has_changed()
            && self.armed.swap(false, Ordering::AcqRel)
            && let Some(descriptor) = &self.descriptor
        {
            // A full eventfd is readable, too.
            let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
        }
    }
}
