//! Completion queues (fi_cq(3)).

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use bytemuck::{Pod, Zeroable};
use parking_lot::Mutex;
use unipgas_core::biased::Biased;
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::waits::{self, polled};
use unipgas_core::watcher::Watched;
use unipgas_core::{Deadline, word_ring::WordRing};

use crate::domain::Domain;
use crate::name::EndpointName;
use crate::status::{Errno, Result};
pub use crate::waits::Wait;
use crate::waits::Waits;

/// Empty reads in a row before the reader begins to yield its core: with a core for each process, and without. The awaited process may need it.
/// [`OFFER`] is the number of reads between two yields.
const PATIENCE: (u32, u32) = (1024, 64);
const OFFER: u32 = 64;
/// Reads of available entries between two rounds of progress.
const TURN: u32 = 16;
/// Size of a queue if the user gives none.
const DEFAULT_SIZE: usize = 1024;
/// Maximum size of a queue; larger requests are reduced to it. The ring grows for entries beyond it: no entry is ever lost.
const LARGEST: usize = 1 << 16;

/// A completed operation: the fields of `struct fi_cq_tagged_entry`, and the sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
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

/// Unread entries.
type Entries = WordRing<{ size_of::<CqEntry>() / size_of::<u64>() }>;

/// Passes the oldest entry to `sink`. False: there is none.
#[inline(always)]
fn take(entries: &mut Entries, sink: &mut impl FnMut(&CqEntry)) -> bool {
    let entry = entries.pop();
    entry
        .inspect(|words| sink(bytemuck::cast_ref(*words)))
        .is_some()
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

/// A completion queue.
pub struct CompletionQueue {
    pub(crate) waits: Waits,
    entries: Biased<Entries>,
    /// Number of entries, for reads without the lock.
    count: AtomicUsize,
    /// Number of entries that makes it full.
    size: usize,
    failures: Mutex<VecDeque<Pending>>,
    /// Number of failures, for reads without the lock.
    failed: AtomicUsize,
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
        let queue = Arc::new(CompletionQueue {
            waits: Waits::new(domain, wait)?,
            entries: Biased::new(Entries::with_room(size)),
            count: AtomicUsize::new(0),
            size,
            failures: Mutex::default(),
            failed: AtomicUsize::new(0),
            interrupted: AtomicBool::new(false),
            vain: AtomicU32::new(0),
            liveness: LivenessTimer::default(),
            turn: AtomicU32::new(0),
        });
        if wait == Wait::Descriptor {
            let watched: Arc<dyn Watched> = queue.clone();
            domain.watcher().watch(Arc::downgrade(&watched))?;
        }
        Ok(queue)
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.waits.domain
    }

    /// Readable when the queue has an entry or a failure, after [`CompletionQueue::arm`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.waits.point.descriptor()
    }

    /// Ends all waits, before the object is closed. Errors: [`Errno::BUSY`] if it has other users.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.waits.close(self)
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
        let CqEntry {
            context,
            flags,
            len,
            buffer,
            data,
            tag,
            source,
        } = entry;
        entries.push([
            context as u64,
            flags,
            len as u64,
            buffer as u64,
            data,
            tag,
            source,
        ]);
        self.count.store(entries.len(), Ordering::Release);
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
        if self.waits.way != Wait::None {
            self.waits.domain.engine().ring();
            self.waits.point.signal();
        }
    }

    fn has_something(&self) -> bool {
        self.len() > 0 || self.has_failed()
    }

    /// Prepares a wait for the descriptor (fi_trywait(3)). Errors: [`Errno::AGAIN`] if the queue has an entry or a failure.
    pub fn arm(&self) -> Result<()> {
        self.waits.arm(|| self.look_for_entries())
    }

    /// Makes progress. Returns whether the queue has an entry or a failure.
    pub(crate) fn look_for_entries(&self) -> bool {
        let found = (self.waits).progress_until(|| self.has_something().then_some(()));
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
            self.waits.progress();
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
        while count < most && take(&mut entries, &mut sink) {
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
        while count < most_now && take(&mut entries, &mut sink) {
            count += 1;
        }
        self.count.store(entries.len(), Ordering::Release);
        let none = before == 0 || entries.is_empty();
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
        let patience = if self.waits.domain.engine().crowded() {
            PATIENCE.1
        } else {
            PATIENCE.0
        };
        if vain >= patience && vain.is_multiple_of(OFFER) {
            // The timer depends on time, not on reads: a yield lasts as long as the scheduler runs other processes.
            if self.liveness.is_due() {
                self.waits.attached.look();
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
        if matches!(self.waits.way, Wait::None | Wait::Set) {
            return Err(Errno::INVAL);
        }
        let least = least.clamp(1, most.max(1));
        let ready = || {
            let ready = self.len() >= least
                || self.has_failed()
                || self.interrupted.load(Ordering::Acquire)
                    && self.interrupted.swap(false, Ordering::AcqRel);
            ready.then_some(())
        };
        self.waits
            .wait(("fi_cq_sread", deadline), Errno::AGAIN, || (), ready)?;
        self.read(most, sink)
    }

    /// Ends a wait (fi_cq_signal(3)).
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.waits.domain.engine().ring();
        self.waits.point.signal();
    }
}

impl Watched for CompletionQueue {
    fn look(&self, at_peers: bool) {
        self.waits.look(at_peers, || self.look_for_entries());
    }
}
