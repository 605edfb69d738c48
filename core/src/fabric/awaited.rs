//! Operations that their callers wait for, within a time: what they bring lands in memory of the engine's, so that it may come when
//! the caller has given up.

use std::cell::UnsafeCell;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::inbox::Record;
use crate::op::{AtomicRequest, Completion, Flags, Inbox, Local, Outcome, Remote, Reply};
use crate::{AtomicOp, AtomicType, Deadline, Error, Result};

/// Marks contexts that are a [`Landing`]: its alignment leaves that bit free.
const MARK: u64 = 1;

/// Where it lands, and how it has ended.
struct Landing {
    words: Box<[UnsafeCell<u64>]>,
    ended: Mutex<Option<Result<()>>>,
}

// SAFETY:
// - the words are written by the operation alone, and read after its end, which the lock orders.
unsafe impl Send for Landing {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Landing {}

/// An operation that has been posted, and that may be waited for more than once.
pub struct Awaited(Arc<Landing>);

/// Whether a completion with this context is for [`ended`].
#[inline]
pub(crate) fn is_awaited(context: u64) -> bool {
    context & MARK != 0
}

/// An operation has ended.
///
/// # Safety
/// The context is of this module, of an operation that has not been reported before.
pub(crate) unsafe fn ended(completion: Completion) {
    let landing = (completion.context & !MARK) as *const Landing;
    // SAFETY:
    // - the share that the context stands for.
    let landing = unsafe { Arc::from_raw(landing) };
    *landing.ended.lock() = Some(completion.result);
}

impl Awaited {
    /// Posts what `post` does with the place where it is to land, of `len` bytes, and with the context. Errors: those of `post`.
    fn post(len: usize, post: impl FnOnce(*mut u8, u64) -> Result<Outcome>) -> Result<Self> {
        let words = (0..len.div_ceil(8)).map(|_| UnsafeCell::new(0)).collect();
        let landing = Arc::new(Landing {
            words,
            ended: Mutex::new(None),
        });
        let at = landing.words.as_ptr().cast::<u8>().cast_mut();
        let shared = Arc::into_raw(landing.clone());
        let outcome = post(at, shared as u64 | MARK);
        if !matches!(outcome, Ok(Outcome::Pending)) {
            // SAFETY:
            // - the share of the context, which nobody will be told.
            drop(unsafe { Arc::from_raw(shared) });
            outcome?;
            *landing.ended.lock() = Some(Ok(()));
        }
        Ok(Awaited(landing))
    }

    /// Whether it has ended, well or not.
    pub fn is_over(&self) -> bool {
        self.0.ended.lock().is_some()
    }

    fn settle(&self, endpoint: &Endpoint, engine: &Engine, deadline: Deadline) -> Result<()> {
        self.end(endpoint, engine, deadline, &mut || Ok(()))
    }

    /// Waits until it has ended. Errors: [`Error::Timeout`] (it is under way still: wait again), its failure; those of `check`, which is called now and then.
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

    /// Waits for the value that an atomic operation has found. Errors: as [`end`](Awaited::end).
    pub fn value(
        &self,
        endpoint: &Endpoint,
        engine: &Engine,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<u64> {
        self.end(endpoint, engine, deadline, check)?;
        // SAFETY:
        // - the operation has ended, and nobody else writes there.
        Ok(unsafe { *self.0.words[0].get() })
    }
}

impl Endpoint {
    /// Whether reads and writes there are over when their calls return: then nothing has to be kept.
    #[inline]
    pub(crate) fn ends_in_calls(&self, there: Remote<'_>) -> bool {
        there.region.is_direct() || !self.is_driven()
    }

    /// Reads `into.len()` bytes, waiting for them. Errors: [`Error::Timeout`]; those of the operation.
    pub fn read(
        &self,
        engine: &Engine,
        src: Remote<'_>,
        into: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        self.read_on(engine, &mut None, src, into, deadline)
    }

    /// As [`Endpoint::read`]; after a timeout the read is `open`, and who calls again with it gets what it brings.
    pub(crate) fn read_on(
        &self,
        engine: &Engine,
        open: &mut Option<Awaited>,
        src: Remote<'_>,
        into: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        let len = into.len();
        if self.ends_in_calls(src) {
            let desc = 0;
            let ptr = into.as_mut_ptr();
            // SAFETY:
            // - the buffer is there for the time of the call.
            return unsafe { self.get(Local { ptr, desc }, src, len, Flags::empty(), 0) }.map(drop);
        }
        let read = match open.take() {
            Some(read) if read.0.words.len() == len.div_ceil(8) => read,
            _ => Awaited::post(len, |at, context| {
                let local = Local { ptr: at, desc: 0 };
                // SAFETY:
                // - the landing stays until the operation has been reported.
                unsafe { self.get(local, src, len, Flags::empty(), context) }
            })?,
        };
        if let Err(error) = read.settle(self, engine, deadline) {
            *open = (error == Error::Timeout).then_some(read);
            return Err(error);
        }
        // SAFETY:
        // - the operation has ended, and nobody else writes there; as many bytes have landed.
        unsafe {
            let from = read.0.words.as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), len);
        }
        Ok(())
    }

    /// Writes the bytes, waiting for the end of that. Errors: [`Error::Timeout`] (they may be written still); those of the operation.
    pub fn write(
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
            // - the bytes are there for the time of the call.
            return unsafe { self.put(Local { ptr, desc }, dst, from.len(), flags, 0) }.map(drop);
        }
        let written = Awaited::post(from.len(), |at, context| {
            let local = Local { ptr: at, desc: 0 };
            // SAFETY:
            // - the landing has room for the bytes, nobody else knows it yet, and it stays until the operation has been reported.
            unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len());
                self.put(local, dst, from.len(), flags, context)
            }
        })?;
        written.settle(self, engine, deadline)
    }

    /// Writes `len` bytes from `src`, waiting for the end of that, however long it takes.
    ///
    /// # Safety
    /// `len` bytes at `src` are valid.
    pub unsafe fn put_and_wait(
        &self,
        engine: &Engine,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> Result<()> {
        if self.ends_in_calls(dst) {
            // SAFETY:
            // - the caller's word.
            return unsafe { self.put(src, dst, len, flags, 0) }.map(drop);
        }
        let put = Awaited::post(0, |_, context| {
            // SAFETY:
            // - the caller's word, until the wait below is over.
            unsafe { self.put(src, dst, len, flags, context) }
        })?;
        put.settle(self, engine, Deadline::Never)
    }

    /// Delivers `record`, waiting for the end of that. Errors: as for [`Endpoint::deliver`].
    pub fn deliver_and_wait(
        &self,
        engine: &Engine,
        inbox: Inbox<'_>,
        record: Record,
    ) -> Result<()> {
        if !self.is_driven() {
            return self.deliver(inbox, record, Flags::empty(), 0).map(drop);
        }
        let delivered = Awaited::post(0, |_, context| {
            self.deliver(inbox, record, Flags::empty(), context)
        })?;
        delivered.settle(self, engine, Deadline::Never)
    }

    /// Sends an active message, and waits until it has been handled. Errors: as for [`Endpoint::active_message`]; [`Error::Timeout`] (it may be handled still).
    pub fn tell(
        &self,
        engine: &Engine,
        to: Remote<'_>,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<()> {
        self.tell_of(to, message)?.settle(self, engine, deadline)
    }

    /// Sends an active message, whose [end](Awaited::end) is waited for. Errors: as for [`Endpoint::active_message`].
    pub fn tell_of(&self, to: Remote<'_>, message: &[u8]) -> Result<Awaited> {
        Awaited::post(0, |_, context| {
            let flags = Flags::ORDERED | Flags::AWAITED;
            self.active_message(to, message, Reply::NONE, flags, context)
        })
    }

    /// Changes the u64 at `dst`, to be [waited for](Awaited::value). `dst` must be 8-byte aligned. Errors: as for
    /// [`Endpoint::atomic`].
    pub fn change(
        &self,
        dst: Remote<'_>,
        op: AtomicOp,
        operand: u64,
        compare: u64,
    ) -> Result<Awaited> {
        Awaited::post(8, |at, context| {
            let request = AtomicRequest {
                op,
                ty: AtomicType::U64,
                count: 1,
                operand: (&raw const operand).cast(),
                compare: (&raw const compare).cast(),
                result: at,
            };
            // SAFETY:
            // - operand and comparand are read before the call returns; the landing stays until the operation has been reported.
            unsafe { self.atomic(dst, &request, Flags::AWAITED, context) }
        })
    }
}

/// Operations that callers have not waited out, for who calls again with the same `key`.
pub struct Unfinished<Key>(Mutex<Vec<(Key, Awaited)>>);

impl<Key> Default for Unfinished<Key> {
    fn default() -> Self {
        Unfinished(Mutex::default())
    }
}

impl<Key: PartialEq> Unfinished<Key> {
    /// Nobody calls again for more than these, as it seems.
    const MOST_FORGOTTEN: usize = 64;

    /// The one with this key, if there is one: it is the caller's then.
    pub fn take(&self, key: &Key) -> Option<Awaited> {
        let mut list = self.0.lock();
        let at = list.iter().position(|(known, _)| known == key)?;
        Some(list.remove(at).1)
    }

    /// Those that `which` says are nobody's any more.
    pub fn forget(&self, which: impl Fn(&Key) -> bool) {
        self.0.lock().retain(|(key, _)| !which(key));
    }

    /// Keeps one.
    pub fn keep(&self, key: Key, awaited: Awaited) {
        let mut list = self.0.lock();
        if list.len() >= Self::MOST_FORGOTTEN {
            list.retain(|(_, awaited)| !awaited.is_over());
        }
        list.push((key, awaited));
    }
}
