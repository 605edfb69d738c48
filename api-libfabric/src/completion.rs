//! Completion queues (fi_cq(3)).

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use unipgas_core::biased::Biased;
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::waiters::Waiters;
use unipgas_core::waits::{self, polled};
use unipgas_core::watcher::Watched;
use unipgas_core::{Deadline, Error, descriptor};

use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::name::EndpointName;
use crate::status::{Errno, Result};

/// Empty reads in a row before the reader begins to yield its core: with a core for each process, and without. The awaited process may need it.
/// [`OFFER`] is the number of reads between two yields.
const PATIENCE: (u32, u32) = (1024, 64);
const OFFER: u32 = 64;
/// Reads of available entries between two rounds of progress.
const TURN: u32 = 16;
/// Size of a queue if the user gives none.
const DEFAULT_SIZE: usize = 1024;
/// Maximum size of a queue; larger requests are reduced to it. The overflow list keeps entries that the ring has no room for.
const LARGEST: usize = 1 << 16;

/// A completed operation: the fields of `struct fi_cq_tagged_entry`, and the sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CqEntry {
    /// The operation's context.
    pub context: usize,
    /// Flags: the kind of operation.
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Address of the received bytes, if the user does not know it (FI_MULTI_RECV).
    pub buffer: usize,
    /// Remote completion data.
    pub data: u64,
    /// Tag of a message.
    pub tag: u64,
    /// The sender, or FI_ADDR_NOTAVAIL if it is unknown.
    pub source: u64,
}

/// A failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqErrorEntry {
    /// As for a completed operation.
    pub entry: CqEntry,
    /// The reason.
    pub errno: Errno,
    /// Bytes of a message beyond the end of the buffer.
    pub excess: usize,
    /// With [`Errno::ADDRNOTAVAIL`]: the sender of a message, if the address vector does not contain it (FI_SOURCE_ERR).
    pub sender: Option<EndpointName>,
}

/// An unread failure.
struct Pending {
    failure: CqErrorEntry,
    /// Unread successes that came between the failure before it and this one.
    behind: usize,
}

/// Endpoints that make progress when a thread polls a queue or a counter.
pub(crate) struct Attached(Biased<Vec<Arc<Endpoint>>>);

impl Default for Attached {
    fn default() -> Self {
        Attached(Biased::new(Vec::new()))
    }
}

impl Attached {
    pub fn add(&self, endpoint: &Arc<Endpoint>) {
        let mut all = self.0.lock();
        if !all.iter().any(|known| Arc::ptr_eq(known, endpoint)) {
            all.push(endpoint.clone());
        }
    }

    pub fn remove(&self, endpoint: &Endpoint) {
        self.0
            .lock()
            .retain(|known| !std::ptr::eq(&**known, endpoint));
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    #[inline]
    pub fn progress(&self) {
        for endpoint in &*self.0.lock() {
            endpoint.progress();
        }
    }

    /// Makes progress until `found` returns a value. `None`: no message is left, so a thread may sleep.
    pub fn progress_until<T>(&self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            self.progress();
            let found = found();
            if found.is_some() || !self.0.lock().iter().any(|endpoint| endpoint.has_lines()) {
                return found;
            }
        }
    }

    /// Checks the liveness of peers.
    pub fn look(&self) {
        for endpoint in &*self.0.lock() {
            endpoint.look_at_peers();
        }
    }
}

/// A descriptor for waits. It is not readable yet.
pub(crate) fn event() -> Result<OwnedFd> {
    let made = descriptor::above(|| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC));
    Ok(made.map_err(|e| Error::os("eventfd", e))?)
}

/// The supported ways to wait for a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// No waits, only reads.
    None,
    /// Calls of [`CompletionQueue::wait`].
    Call,
    /// Wait sets.
    Set,
    /// A file descriptor, and calls of [`CompletionQueue::wait`].
    Descriptor,
}

/// Unread entries in the order of arrival.
struct Entries {
    ring: Box<[CqEntry]>,
    first: usize,
    len: usize,
    /// Entries that came while the ring was full. No entry is ever lost.
    overflow: VecDeque<CqEntry>,
}

impl Entries {
    fn new(size: usize) -> Self {
        Entries {
            ring: vec![CqEntry::default(); size.next_power_of_two()].into(),
            first: 0,
            len: 0,
            overflow: VecDeque::new(),
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len + self.overflow.len()
    }

    /// Adds an entry and returns the number of entries.
    #[inline(always)]
    fn push(&mut self, entry: CqEntry) -> usize {
        let mask = self.ring.len() - 1;
        if self.len > mask || !self.overflow.is_empty() {
            return self.keep(entry);
        }
        // Word by word: a copy of an entry just built in memory would wait for its own stores.
        let CqEntry {
            context,
            flags,
            len,
            buffer,
            data,
            tag,
            source,
        } = entry;
        let place = &raw mut self.ring[(self.first + self.len) & mask];
        // SAFETY:
        // - `place` is an entry of the ring, and `&mut self` makes this thread its only user.
        unsafe {
            (&raw mut (*place).context).write_volatile(context);
            (&raw mut (*place).flags).write_volatile(flags);
            (&raw mut (*place).len).write_volatile(len);
            (&raw mut (*place).buffer).write_volatile(buffer);
            (&raw mut (*place).data).write_volatile(data);
            (&raw mut (*place).tag).write_volatile(tag);
            (&raw mut (*place).source).write_volatile(source);
        }
        self.len += 1;
        self.len
    }

    #[cold]
    fn keep(&mut self, entry: CqEntry) -> usize {
        self.overflow.push_back(entry);
        self.len()
    }

    /// Passes the oldest entry to `sink`. False: there is none.
    #[inline(always)]
    fn take(&mut self, sink: &mut impl FnMut(&CqEntry)) -> bool {
        if self.len == 0 {
            return self.take_kept(sink);
        }
        let mask = self.ring.len() - 1;
        sink(&self.ring[self.first & mask]);
        self.first = (self.first + 1) & mask;
        self.len -= 1;
        true
    }

    #[cold]
    fn take_kept(&mut self, sink: &mut impl FnMut(&CqEntry)) -> bool {
        self.overflow.pop_front().inspect(sink).is_some()
    }
}

/// A completion queue.
pub struct CompletionQueue {
    domain: Arc<Domain>,
    entries: Biased<Entries>,
    /// Number of entries, for reads without the lock.
    count: AtomicUsize,
    /// Number of entries that makes it full.
    size: usize,
    failures: Mutex<VecDeque<Pending>>,
    /// Number of failures, for reads without the lock.
    failed: AtomicUsize,
    pub(crate) attached: Attached,
    pub(crate) waiters: Waiters,
    wait: Wait,
    descriptor: Option<OwnedFd>,
    /// A thread is about to wait for the descriptor.
    armed: AtomicBool,
    interrupted: AtomicBool,
    vain: AtomicU32,
    /// Limits liveness checks of peers during empty reads.
    liveness: LivenessTimer,
    /// Reads since the last progress.
    turn: AtomicU32,
}

impl CompletionQueue {
    /// A queue of `size` entries. 0: the default size.
    pub fn new(domain: &Arc<Domain>, size: usize, wait: Wait) -> Result<Arc<CompletionQueue>> {
        let size = if size == 0 {
            DEFAULT_SIZE
        } else {
            size.min(LARGEST)
        };
        let descriptor = match wait {
            Wait::Descriptor => Some(event()?),
            _ => None,
        };
        let queue = Arc::new(CompletionQueue {
            domain: domain.clone(),
            entries: Biased::new(Entries::new(size)),
            count: AtomicUsize::new(0),
            size,
            failures: Mutex::default(),
            failed: AtomicUsize::new(0),
            attached: Attached::default(),
            waiters: Waiters::default(),
            wait,
            descriptor,
            armed: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            vain: AtomicU32::new(0),
            liveness: LivenessTimer::default(),
            turn: AtomicU32::new(0),
        });
        if queue.descriptor.is_some() {
            let watched: Arc<dyn Watched> = queue.clone();
            domain.watcher().watch(Arc::downgrade(&watched))?;
        }
        Ok(queue)
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Readable when the queue has an entry or a failure, after [`CompletionQueue::arm`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Ends all waits, before the object is closed. Errors: [`Errno::BUSY`] if it has other users.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if !self.attached.is_empty() || Arc::strong_count(self) > 1 {
            return Err(Errno::BUSY);
        }
        self.waiters.end(|| self.domain.engine().ring());
        Ok(())
    }

    /// Whether it has no room for a completion. Callers retry later.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.size
    }

    /// Whether it has room for the reports of an operation: its failure, and its success if that is `wanted`.
    #[inline(always)]
    pub(crate) fn has_room(&self, wanted: bool) -> bool {
        let failed = self.failed.load(Ordering::Acquire);
        failed < self.size && !(wanted && self.len() + failed >= self.size)
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn push(&self, entry: CqEntry) {
        let mut entries = self.entries.lock();
        self.count.store(entries.push(entry), Ordering::Release);
        drop(entries);
        self.wake();
    }

    #[cold]
    pub(crate) fn fail(&self, failure: CqErrorEntry) {
        let mut failures = self.failures.lock();
        let known: usize = failures.iter().map(|pending| pending.behind).sum();
        let entries = self.entries.lock().len();
        failures.push_back(Pending {
            failure,
            behind: entries.saturating_sub(known),
        });
        self.failed.store(failures.len(), Ordering::Release);
        drop(failures);
        self.wake();
    }

    #[inline(always)]
    fn wake(&self) {
        if self.wait != Wait::None {
            self.domain.engine().ring();
            self.signal_descriptor();
        }
    }

    fn signal_descriptor(&self) {
        if let Some(descriptor) = &self.descriptor
            && self.armed.swap(false, Ordering::AcqRel)
        {
            // A full eventfd is readable, too.
            let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
        }
    }

    fn has_something(&self) -> bool {
        self.len() > 0 || self.has_failed()
    }

    /// Prepares a wait for the descriptor (fi_trywait(3)). Errors: [`Errno::AGAIN`] if the queue has an entry or a failure.
    pub fn arm(&self) -> Result<()> {
        if let Some(descriptor) = &self.descriptor {
            let _ = rustix::io::read(descriptor, &mut [0u8; 8]);
        }
        self.armed.store(true, Ordering::Release);
        if self.look_for_entries() {
            self.armed.store(false, Ordering::Release);
            return Err(Errno::AGAIN);
        }
        // The progress thread may be asleep, and must poll once more.
        self.domain.engine().ring();
        Ok(())
    }

    /// Makes progress. Returns whether the queue has an entry or a failure.
    pub(crate) fn look_for_entries(&self) -> bool {
        let found = self.attached.progress_until(|| {
            self.domain.deferred().progress();
            self.has_something().then_some(())
        });
        found.is_some()
    }

    /// Reads up to `most` entries. Errors: [`Errno::AGAIN`] if there are none; [`Errno::AVAIL`] if a failure comes next.
    #[inline(always)]
    pub fn read(&self, most: usize, mut sink: impl FnMut(&CqEntry)) -> Result<usize> {
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        // Available entries need no progress first, but reads of them must not prevent progress.
        if self.len() == 0 || turn >= TURN {
            self.turn.store(0, Ordering::Relaxed);
            self.attached.progress();
            self.domain.deferred().progress();
        }
        if self.has_failed() {
            return self.read_up_to_failure(most, sink);
        }
        if self.len() == 0 && most > 0 {
            self.in_vain();
            return Err(Errno::AGAIN);
        }
        let mut entries = self.entries.lock();
        let mut count = 0;
        while count < most && entries.take(&mut sink) {
            count += 1;
        }
        self.count.store(entries.len(), Ordering::Release);
        drop(entries);
        self.vain.store(0, Ordering::Relaxed);
        if count == 0 && most > 0 {
            return Err(Errno::AGAIN);
        }
        Ok(count)
    }

    /// Reads the entries before the first failure. Errors: [`Errno::AVAIL`] if the failure comes next.
    #[cold]
    fn read_up_to_failure(&self, most: usize, mut sink: impl FnMut(&CqEntry)) -> Result<usize> {
        let mut failures = self.failures.lock();
        let mut entries = self.entries.lock();
        let first = failures.front_mut();
        // Another thread may have read entries before it saw the failure. The failure does not wait for entries that are gone.
        let before = first.as_ref().map_or(most, |first| first.behind);
        let most_now = before.min(most);
        let mut count = 0;
        while count < most_now && entries.take(&mut sink) {
            count += 1;
        }
        self.count.store(entries.len(), Ordering::Release);
        let none = before == 0 || entries.len() == 0;
        match first {
            Some(first) => {
                first.behind = if none { 0 } else { before - count };
                if count == 0 && (none || most > 0) {
                    return Err(Errno::AVAIL);
                }
            }
            None if count == 0 && most > 0 => return Err(Errno::AGAIN),
            None => {}
        }
        Ok(count)
    }

    #[inline(always)]
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) != 0
    }

    /// Handles an empty read. A polling program may keep the core from the process for which it waits.
    #[inline]
    fn in_vain(&self) {
        let vain = self.vain.load(Ordering::Relaxed).wrapping_add(1);
        self.vain.store(vain, Ordering::Relaxed);
        let patience = if self.domain.engine().crowded() {
            PATIENCE.1
        } else {
            PATIENCE.0
        };
        if vain >= patience && vain.is_multiple_of(OFFER) {
            // The timer depends on time, not on reads: a yield lasts as long as the scheduler runs other processes.
            if self.liveness.is_due() {
                self.attached.look();
            }
            polled(vain < patience + OFFER, || waits::call("fi_cq_read"));
            std::thread::yield_now();
        }
    }

    /// Reads a failure. Errors: [`Errno::AGAIN`] if there is none.
    pub fn read_failure(&self) -> Result<CqErrorEntry> {
        let mut failures = self.failures.lock();
        let pending = failures.pop_front().ok_or(Errno::AGAIN)?;
        // The failure was read early: the entries before it now precede the next failure.
        if let Some(next) = failures.front_mut() {
            next.behind += pending.behind;
        }
        self.failed.store(failures.len(), Ordering::Release);
        Ok(pending.failure)
    }

    /// Waits until there are `least` entries or a failure, then reads as [`CompletionQueue::read`] does. Errors: [`Errno::AGAIN`] at the
    /// deadline, or after [`CompletionQueue::interrupt`]; [`Errno::INVAL`] if the queue does not support waits by call;
    /// [`Errno::CANCELED`] if another thread closes it.
    pub fn wait(
        &self,
        most: usize,
        least: usize,
        deadline: Deadline,
        sink: impl FnMut(&CqEntry),
    ) -> Result<usize> {
        if matches!(self.wait, Wait::None | Wait::Set) {
            return Err(Errno::INVAL);
        }
        let least = least.clamp(1, most.max(1));
        let _inside = self.waiters.enter();
        let mut check = || {
            waits::call("fi_cq_sread");
            self.attached.look();
            self.waiters.check()
        };
        let waited = self.domain.engine().wait_for(deadline, &mut check, || {
            self.attached.progress_until(|| {
                self.domain.deferred().progress();
                let ready = self.len() >= least
                    || self.has_failed()
                    || self.interrupted.load(Ordering::Acquire)
                        && self.interrupted.swap(false, Ordering::AcqRel);
                ready.then_some(())
            })
        });
        match waited {
            Ok(()) => self.read(most, sink),
            Err(Error::Ended) => Err(Errno::CANCELED),
            Err(_) => Err(Errno::AGAIN),
        }
    }

    /// Ends a wait (fi_cq_signal(3)).
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.domain.engine().ring();
        self.signal_descriptor();
    }
}

impl Watched for CompletionQueue {
    fn look(&self, at_peers: bool) {
        if !self.armed.load(Ordering::Acquire) {
            return;
        }
        if at_peers {
            self.attached.look();
        }
        if self.look_for_entries() {
            self.signal_descriptor();
        }
    }
}
