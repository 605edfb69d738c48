//! Completion queues (fi_cq(3)).

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use unipgas_core::biased::Biased;
use unipgas_core::pace::Pace;
use unipgas_core::waits::{self, polled};
use unipgas_core::{Deadline, Error, descriptor};

use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::name::Name;
use crate::status::{Errno, Result};
use crate::waiters::Waiters;
use crate::watcher::Watched;

/// Reads in vain, one after the other, from which on another process gets the core now and then, in case it is the one that is waited for:
/// where each process has a core, and where not; and reads between two such offers.
const PATIENCE: (u32, u32) = (1024, 64);
const OFFER: u32 = 64;
/// Reads of what is there after which endpoints get on nevertheless.
const TURN: u32 = 16;
/// Entries of a queue whose user does not say how many.
const DEFAULT_SIZE: usize = 1024;
/// The largest queue that is made at once; what it has no room for is kept nevertheless.
const LARGEST: usize = 1 << 16;

/// A completed operation: the fields of `struct fi_cq_tagged_entry`, and where a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Entry {
    /// The operation's context.
    pub context: usize,
    /// What kind of operation it was.
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Where they are, if the user could not know.
    pub buffer: usize,
    /// Remote completion data.
    pub data: u64,
    /// Tag of a message.
    pub tag: u64,
    /// The sender; FI_ADDR_NOTAVAIL if it is not known.
    pub source: u64,
}

/// A failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// As of a completed one.
    pub entry: Entry,
    /// Why.
    pub errno: Errno,
    /// Bytes of a message that the buffer had no room for.
    pub excess: usize,
    /// With [`Errno::ADDRNOTAVAIL`]: the sender of a message, which is not in the address vector (FI_SOURCE_ERR).
    pub sender: Option<Name>,
}

/// A failure that has not been read.
struct Pending {
    failure: Failure,
    /// Successes that came before it, and after the failure before it, and have not been read.
    behind: usize,
}

/// Endpoints that get on when somebody looks at a queue or a counter.
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

    /// Moves everything on until there is what `found` looks for. `None`: nothing else has come, so that a thread may sleep.
    pub fn progress_until<T>(&self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            self.progress();
            let found = found();
            if found.is_some() || !self.0.lock().iter().any(|endpoint| endpoint.has_lines()) {
                return found;
            }
        }
    }

    /// Looks whether peers still live.
    pub fn look(&self) {
        for endpoint in &*self.0.lock() {
            endpoint.look_at_peers();
        }
    }
}

/// A descriptor to be waited for, which is not readable.
pub(crate) fn event() -> Result<OwnedFd> {
    let made = descriptor::above(|| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC));
    Ok(made.map_err(|e| Error::os("eventfd", e))?)
}

/// How a queue can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    None,
    /// By [`CompletionQueue::wait`].
    Call,
    /// By whoever waits for several at once.
    Set,
    /// By that, or by a file descriptor.
    Descriptor,
}

/// Entries that have not been read, in the order in which they came.
struct Entries {
    ring: Box<[Entry]>,
    first: usize,
    len: usize,
    /// What came when the ring was full: nothing is ever lost.
    overflow: VecDeque<Entry>,
}

impl Entries {
    fn new(size: usize) -> Self {
        Entries {
            ring: vec![Entry::default(); size.next_power_of_two()].into(),
            first: 0,
            len: 0,
            overflow: VecDeque::new(),
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len + self.overflow.len()
    }

    /// How many there are now.
    #[inline(always)]
    fn push(&mut self, entry: Entry) -> usize {
        let mask = self.ring.len() - 1;
        if self.len > mask || !self.overflow.is_empty() {
            return self.keep(entry);
        }
        // Word by word: an entry that is put together in memory and copied from there would have to wait for its own stores.
        let Entry {
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
        // - a place of the ring, which is this thread's alone.
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
    fn keep(&mut self, entry: Entry) -> usize {
        self.overflow.push_back(entry);
        self.len()
    }

    /// Gives the oldest entry to `sink`; false if there is none.
    #[inline(always)]
    fn take(&mut self, sink: &mut impl FnMut(&Entry)) -> bool {
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
    fn take_kept(&mut self, sink: &mut impl FnMut(&Entry)) -> bool {
        self.overflow.pop_front().inspect(sink).is_some()
    }
}

/// A completion queue.
pub struct CompletionQueue {
    domain: Arc<Domain>,
    entries: Biased<Entries>,
    /// How many there are, for whoever only looks.
    count: AtomicUsize,
    /// From so many on it is full.
    size: usize,
    failures: Mutex<VecDeque<Pending>>,
    /// How many there are, for whoever only looks.
    failed: AtomicUsize,
    pub(crate) attached: Attached,
    pub(crate) waiters: Waiters,
    wait: Wait,
    descriptor: Option<OwnedFd>,
    /// Somebody is about to wait for the descriptor.
    armed: AtomicBool,
    interrupted: AtomicBool,
    vain: AtomicU32,
    /// Says when a program that reads in vain looks at the lives of peers.
    lives: Pace,
    /// Reads since endpoints got on.
    turn: AtomicU32,
}

impl CompletionQueue {
    /// A queue of `size` entries (0: as many as usual).
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
            lives: Pace::default(),
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

    /// Readable when there is something to read, after [`CompletionQueue::arm`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether there is no room for a completion: operations are to be tried again later.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.size
    }

    /// Whether there is room for what an operation may have told: its failure, and its success if that is `wanted`.
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
    pub(crate) fn push(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        self.count.store(entries.push(entry), Ordering::Release);
        drop(entries);
        self.wake();
    }

    #[cold]
    pub(crate) fn fail(&self, failure: Failure) {
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
            // Full means readable.
            let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
        }
    }

    fn has_something(&self) -> bool {
        self.len() > 0 || self.has_failed()
    }

    /// Gets ready for a wait for the descriptor (fi_trywait(3)). Errors: [`Errno::AGAIN`]: there is something to read.
    pub fn arm(&self) -> Result<()> {
        if let Some(descriptor) = &self.descriptor {
            let _ = rustix::io::read(descriptor, &mut [0u8; 8]);
        }
        self.armed.store(true, Ordering::Release);
        if self.look_for_entries() {
            self.armed.store(false, Ordering::Release);
            return Err(Errno::AGAIN);
        }
        // The watcher may be asleep, and must look once more.
        self.domain.engine().ring();
        Ok(())
    }

    /// Moves everything on; whether there is something to read.
    pub(crate) fn look_for_entries(&self) -> bool {
        let found = self.attached.progress_until(|| {
            self.domain.deferred().progress();
            self.has_something().then_some(())
        });
        found.is_some()
    }

    /// Reads up to `most` entries. Errors: [`Errno::AGAIN`] if there are none; [`Errno::AVAIL`] if a failure comes next.
    #[inline(always)]
    pub fn read(&self, most: usize, mut sink: impl FnMut(&Entry)) -> Result<usize> {
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        // What is there need not wait for what may come; but it must not keep it from coming.
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

    /// Reads what came before the first failure. Errors: [`Errno::AVAIL`] if it is the failure's turn.
    #[cold]
    fn read_up_to_failure(&self, most: usize, mut sink: impl FnMut(&Entry)) -> Result<usize> {
        let mut failures = self.failures.lock();
        let mut entries = self.entries.lock();
        let first = failures.front_mut();
        // Another thread may have read on without having seen the failure: it waits for nothing that is not there.
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

    /// Programs that poll keep the core from whoever they wait for.
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
            // By time, not by a count of reads: each offer may last as long as the scheduler lets other processes run.
            if self.lives.is_due() {
                self.attached.look();
            }
            polled(vain < patience + OFFER, || waits::call("fi_cq_read"));
            std::thread::yield_now();
        }
    }

    /// Reads a failure. Errors: [`Errno::AGAIN`] if there is none.
    pub fn read_failure(&self) -> Result<Failure> {
        let mut failures = self.failures.lock();
        let pending = failures.pop_front().ok_or(Errno::AGAIN)?;
        // Read too early: what was to come before it comes before the next one.
        if let Some(next) = failures.front_mut() {
            next.behind += pending.behind;
        }
        self.failed.store(failures.len(), Ordering::Release);
        Ok(pending.failure)
    }

    /// Waits until there are `least` entries (or a failure), then reads as [`CompletionQueue::read`] does. Errors: [`Errno::AGAIN`] when
    /// the deadline has passed, or after [`CompletionQueue::interrupt`]; [`Errno::INVAL`] if the queue cannot be waited for;
    /// [`Errno::CANCELED`] if another thread closes it.
    pub fn wait(
        &self,
        most: usize,
        least: usize,
        deadline: Deadline,
        sink: impl FnMut(&Entry),
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
    fn look(&self) {
        if self.armed.load(Ordering::Acquire) && self.look_for_entries() {
            self.signal_descriptor();
        }
    }
}
