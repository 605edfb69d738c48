//! Operations with a timeout. A result lands in memory of the engine, so it may come after the caller's timeout.

use std::cell::UnsafeCell;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::inbox::Record;
use crate::op::{AtomicRequest, Completion, Flags, Inbox, Local, Outcome, Remote, ReplyBuffer};
use crate::pages::Pages;
use crate::registration::COPIED;
use crate::{AtomicOp, AtomicType, Deadline, Error, Result};

/// Marks contexts that are a [`Landing`]. The alignment of a landing leaves this bit free.
const MARK: u64 = 1;

/// Memory for the result, and the outcome.
struct Landing {
    words: Box<[UnsafeCell<u64>]>,
    /// Instead of words, for a length that a device may register.
    pages: Option<Pages>,
    len: usize,
    ended: Mutex<Option<Result<()>>>,
}

// SAFETY:
// - only the operation writes the words or pages. They are read after its end, and the lock orders both.
unsafe impl Send for Landing {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Landing {}

impl Landing {
    /// Errors: as [`Pages::new`].
    fn new(len: usize) -> Result<Self> {
        let pages = (len > COPIED).then(|| Pages::new(len)).transpose()?;
        let words = match pages {
            Some(_) => 0,
            None => len.div_ceil(8),
        };
        Ok(Landing {
            words: (0..words).map(|_| UnsafeCell::new(0)).collect(),
            pages,
            len,
            ended: Mutex::new(None),
        })
    }

    fn base(&self) -> *mut u8 {
        match &self.pages {
            Some(pages) => pages.base(),
            None => self.words.as_ptr().cast::<u8>().cast_mut(),
        }
    }
}

/// A posted operation. The caller may wait for it repeatedly.
pub struct PendingFetch(Arc<Landing>);

/// Whether a completion with this context is for [`ended`].
#[inline]
pub(crate) fn is_awaited(context: u64) -> bool {
    context & MARK != 0
}

/// Notes the end of an operation.
///
/// # Safety
/// The context is one of this module, and has not been reported before.
pub(crate) unsafe fn ended(completion: Completion) {
    let landing = (completion.context & !MARK) as *const Landing;
    // SAFETY:
    // - contract of this call: the context holds a reference, which is taken once.
    let landing = unsafe { Arc::from_raw(landing) };
    *landing.ended.lock() = Some(completion.result);
}

impl PendingFetch {
    /// Posts an operation by `post`, which gets the address of `len` bytes for the result, and the context. Errors: as `post`.
    fn post(len: usize, post: impl FnOnce(*mut u8, u64) -> Result<Outcome>) -> Result<Self> {
        let landing = Arc::new(Landing::new(len)?);
        let at = landing.base();
        let shared = Arc::into_raw(landing.clone());
        let outcome = post(at, shared as u64 | MARK);
        if !matches!(outcome, Ok(Outcome::Pending)) {
            // SAFETY:
            // - the reference of the context, which is never reported.
            drop(unsafe { Arc::from_raw(shared) });
            outcome?;
            *landing.ended.lock() = Some(Ok(()));
        }
        Ok(PendingFetch(landing))
    }

    /// Whether it has ended, with success or failure.
    pub(crate) fn is_over(&self) -> bool {
        self.0.ended.lock().is_some()
    }

    fn settle(&self, endpoint: &Endpoint, engine: &Engine, deadline: Deadline) -> Result<()> {
        self.end(endpoint, engine, deadline, &mut || Ok(()))
    }

    /// Waits until it has ended. Errors: [`Error::Timeout`] (it is still in progress: wait again); its failure; errors of `check`, which runs now and then.
    pub fn end(
        &self,
        endpoint: &Endpoint,
        engine: &Engine,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        engine.wait(deadline, check, || {
            if !self.is_over() {
                endpoint.progress();
            }
            self.0.ended.lock().clone().transpose()
        })
    }

    /// Waits for the previous value of an atomic operation. Errors: as [`end`](PendingFetch::end).
    pub fn value(
        &self,
        endpoint: &Endpoint,
        engine: &Engine,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<u64> {
        self.end(endpoint, engine, deadline, check)?;
        // SAFETY:
        // - the operation has ended, and only it writes there.
        Ok(unsafe { *self.0.words[0].get() })
    }
}

impl Endpoint {
    /// Whether reads and writes there are complete when their calls return. Then they need no landing.
    #[inline]
    pub fn ends_in_calls(&self, there: Remote<'_>) -> bool {
        there.region.is_direct() || !self.is_driven()
    }

    /// Reads `into.len()` bytes, and waits for them. Errors: [`Error::Timeout`]; as [`Endpoint::get`].
    pub fn read(
        &self,
        engine: &Engine,
        src: Remote<'_>,
        into: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        self.read_on(engine, &mut None, src, into, deadline)
    }

    /// As [`Endpoint::read`]. After a timeout the read stays in `open`, and a retry collects it.
    pub fn read_on(
        &self,
        engine: &Engine,
        open: &mut Option<PendingFetch>,
        src: Remote<'_>,
        into: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        let len = into.len();
        if self.ends_in_calls(src) {
            let desc = 0;
            let ptr = into.as_mut_ptr();
            // SAFETY:
            // - the buffer is valid during the call, and the get is complete when it returns.
            return unsafe { self.get(Local { ptr, desc }, src, len, Flags::empty(), 0) }.map(drop);
        }
        let read = match open.take() {
            Some(read) if read.0.len == len => read,
            _ => PendingFetch::post(len, |at, context| {
                let local = Local { ptr: at, desc: 0 };
                // SAFETY:
                // - the landing lives until the operation has been reported.
                unsafe { self.get(local, src, len, Flags::empty(), context) }
            })?,
        };
        if let Err(error) = read.settle(self, engine, deadline) {
            *open = (error == Error::Timeout).then_some(read);
            return Err(error);
        }
        // SAFETY:
        // - the operation has ended, and only it writes there. The landing has `len` bytes.
        unsafe {
            let from = read.0.base();
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), len);
        }
        Ok(())
    }

    /// Writes the bytes, and waits for completion. Errors: [`Error::Timeout`] (the write may still happen); as [`Endpoint::put`].
    pub(crate) fn write(
        &self,
        engine: &Engine,
        from: &[u8],
        dst: Remote<'_>,
        flags: Flags,
        deadline: Deadline,
    ) -> Result<()> {
        if self.ends_in_calls(dst) {
            let desc = 0;
            let ptr = from.as_ptr().cast_mut();
            // SAFETY:
            // - the bytes are valid during the call, and the put is complete when it returns.
            return unsafe { self.put(Local { ptr, desc }, dst, from.len(), flags, 0) }.map(drop);
        }
        let written = PendingFetch::post(from.len(), |at, context| {
            let local = Local { ptr: at, desc: 0 };
            // SAFETY:
            // - the landing has room for the bytes, and no other thread knows it yet. It lives until the operation has been reported.
            unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len());
                self.put(local, dst, from.len(), flags, context)
            }
        })?;
        written.settle(self, engine, deadline)
    }

    /// Writes `len` bytes from `src`, and waits for completion, without a timeout.
    ///
    /// # Safety
    /// `len` bytes at `src` are valid.
    pub(crate) unsafe fn put_and_wait(
        &self,
        engine: &Engine,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> Result<()> {
        if self.ends_in_calls(dst) {
            // SAFETY:
            // - contract of this call: the bytes are valid, and the put is complete when its call returns.
            return unsafe { self.put(src, dst, len, flags, 0) }.map(drop);
        }
        let put = PendingFetch::post(0, |_, context| {
            // SAFETY:
            // - contract of this call: the bytes are valid until the wait below ends.
            unsafe { self.put(src, dst, len, flags, context) }
        })?;
        put.settle(self, engine, Deadline::Never)
    }

    /// Delivers `record`, and waits for completion. Errors: as [`Endpoint::deliver`].
    pub(crate) fn deliver_and_wait(
        &self,
        engine: &Engine,
        inbox: Inbox<'_>,
        record: Record,
    ) -> Result<()> {
        if !self.is_driven() {
            return self.deliver(inbox, record, Flags::empty(), 0).map(drop);
        }
        let delivered = PendingFetch::post(0, |_, context| {
            self.deliver(inbox, record, Flags::empty(), context)
        })?;
        delivered.settle(self, engine, Deadline::Never)
    }

    /// Sends an active message. The caller waits for its [end](PendingFetch::end). Errors: as [`Endpoint::active_message`].
    pub fn tell_of(&self, to: Remote<'_>, message: &[u8]) -> Result<PendingFetch> {
        PendingFetch::post(0, |_, context| {
            let flags = Flags::ORDERED | Flags::AWAITED;
            self.active_message(to, message, ReplyBuffer::NONE, flags, context)
        })
    }

    /// Changes the u64 at `dst`. The caller waits for its [previous value](PendingFetch::value). `dst` must be 8-byte aligned. Errors: as [`Endpoint::atomic`].
    pub fn change(
        &self,
        dst: Remote<'_>,
        op: AtomicOp,
        operand: u64,
        compare: u64,
    ) -> Result<PendingFetch> {
        PendingFetch::post(8, |at, context| {
            let request = AtomicRequest {
                op,
                ty: AtomicType::U64,
                count: 1,
                operand: (&raw const operand).cast(),
                compare: (&raw const compare).cast(),
                result: at,
            };
            // SAFETY:
            // - operand and comparand are read before the call returns. The landing lives until the operation has been reported.
            unsafe { self.atomic(dst, &request, Flags::AWAITED, context) }
        })
    }
}

/// Operations that outlasted their callers' timeouts. A retry with the same `key` collects them.
pub struct Unfinished<Key>(Mutex<Vec<(Key, PendingFetch)>>);

impl<Key> Default for Unfinished<Key> {
    fn default() -> Self {
        Unfinished(Mutex::default())
    }
}

impl<Key: PartialEq> Unfinished<Key> {
    /// Beyond this number, ended operations are dropped: their callers probably do not retry.
    const MOST_FORGOTTEN: usize = 64;

    /// Removes the operation with this key, and gives it to the caller.
    pub fn take(&self, key: &Key) -> Option<PendingFetch> {
        let mut list = self.0.lock();
        let at = list.iter().position(|(known, _)| known == key)?;
        Some(list.remove(at).1)
    }

    /// Drops the operations that no caller retries any more: `which` selects them by key.
    pub fn forget(&self, which: impl Fn(&Key) -> bool) {
        self.0.lock().retain(|(key, _)| !which(key));
    }

    /// Keeps an operation for a retry.
    pub fn keep(&self, key: Key, awaited: PendingFetch) {
        let mut list = self.0.lock();
        if list.len() >= Self::MOST_FORGOTTEN {
            list.retain(|(_, awaited)| !awaited.is_over());
        }
        list.push((key, awaited));
    }
}
