//! A channel over a network with [`Limits`]: it offers all operations without limits.
//!
//! It divides long transfers into pieces. It divides lines if the network does not keep their order. It copies bytes above the inline limit,
//! [registers](crate::registration) memory, and sends active messages for atomic operations that the network lacks. An operation that the network refuses for
//! now ([`Error::NotNow`]) waits here, in order for each peer. Polls and the driver issue it later. The channel therefore refuses an operation only for its
//! arguments. Each operation ends once, after all its pieces. The queues of the interfaces limit the number of waiting operations.

#[cfg(all(test, not(loom)))]
mod tests;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;

use self::work::Work;
use crate::agent;
use crate::deferred_op::DeferredOp;
use crate::driver::{self, Driven, Driver, Waits};
use crate::inbox::Record;
use crate::op::{
    AtomicRequest, Completion, Flags, GetRequest, Inbox, Notice, Outcome, PutRequest, Remote,
    ReplyBuffer, UnsignaledPut,
};
use crate::registration::Registrations;
use crate::transport::{Channel, LONGEST_MESSAGE, Limits};
use crate::{Deadline, Error, Result};

/// Bit of contexts that belong to no operation of [`State`]: the network takes the call unchanged.
const PLAIN: u64 = 1 << 63;

/// Longest wait of a closing channel for live peers that do not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A channel of a network with limits.
pub(crate) struct LimitAdapter {
    shared: Arc<Shared>,
    /// For networks that need registered memory. Outside of [`Shared`]: the progress thread must not drop the last reference of a network.
    registrations: Option<Arc<Registrations>>,
}

struct Shared {
    /// Dropped before the memory of its operations.
    inner: Box<dyn Channel>,
    limits: Limits,
    driver: Arc<Driver>,
    state: Mutex<State>,
    /// Operations that are posted and not reported.
    pending: AtomicUsize,
    /// Peers with waiting operations.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The key of an operation is the context of its pieces.
    operations: Slab<Operation>,
    /// For each peer the operations with pieces to issue, in the order of posting.
    waiting: BTreeMap<u32, VecDeque<usize>>,
    ended: VecDeque<Completion>,
    /// Empty between calls; keeps its allocation.
    ends: Vec<Completion>,
}

/// The way to take completions of the network.
#[derive(Clone, Copy)]
enum Look {
    /// A poll, which makes progress.
    Poll,
    /// A report of completions that are present.
    Report,
}

struct Operation {
    work: Work,
    flags: Flags,
    context: u64,
    /// Start of the next piece. `None`: all pieces are issued.
    next: Option<usize>,
    /// It is in [`State::waiting`], and leaves that before its report.
    waits: bool,
    /// Pieces in progress.
    under_way: usize,
    result: Result<()>,
}

impl Operation {
    /// Issues pieces until the network refuses one. Errors: [`Error::NotNow`]; each other error ends the operation.
    fn go_on(&mut self, number: usize, shared: &Shared) -> Result<()> {
        while let Some(at) = self.next {
            // SAFETY:
            // - contract of the post: the memory is valid until the report.
            let issued = unsafe {
                let (limits, inner) = (&shared.limits, &*shared.inner);
                self.work
                    .issue(at, self.flags, limits, inner, number as u64)
            };
            let (outcome, next) = issued.map_err(|error| self.work.error(error, &shared.limits))?;
            self.under_way += usize::from(outcome == Outcome::Pending);
            self.next = next;
        }
        Ok(())
    }

    /// Fails the operation. It issues no more pieces.
    fn fail(&mut self, error: Error) {
        self.next = None;
        if self.result.is_ok() {
            self.result = Err(error);
        }
    }

    fn is_over(&self) -> bool {
        self.next.is_none() && self.under_way == 0 && !self.waits
    }

    /// Delivers the result of an operation that is over.
    fn end(self) -> Completion {
        if self.result.is_ok() {
            // SAFETY:
            // - contract of the post: the memory is valid until the report, which comes after this.
            unsafe { self.work.land(self.flags) };
        }
        Completion {
            context: self.context,
            result: self.result,
        }
    }
}

impl State {
    /// Reports an operation that is over.
    fn end(&mut self, number: usize) {
        let operation = self.operations.remove(number);
        self.ended.push_back(operation.end());
    }

    /// Takes completions of the network.
    fn collect(&mut self, shared: &Shared, how: Look) {
        let mut ends = std::mem::take(&mut self.ends);
        let mut sink = |completion| ends.push(completion);
        match how {
            Look::Poll => shared.inner.poll(&mut sink),
            Look::Report => shared.inner.report(&mut sink),
        }
        for Completion { context, result } in ends.drain(..) {
            if context & PLAIN != 0 {
                let context = context & !PLAIN;
                self.ended.push_back(Completion { context, result });
                continue;
            }
            let number = context as usize;
            let Some(operation) = self.operations.get_mut(number) else {
                continue;
            };
            operation.under_way -= 1;
            if let Err(error) = result {
                operation.fail(operation.work.error(error, &shared.limits));
            }
            if operation.is_over() {
                self.end(number);
            }
        }
        self.ends = ends;
    }

    /// Issues waiting operations until the network refuses. A refusal for one peer does not stop the others.
    fn push(&mut self, shared: &Shared) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|_, numbers| {
            // Operations that fit now leave together.
            let several = numbers.len() > 1;
            let first = numbers.front().filter(|_| several);
            let to = first.map(|first| self.operations[*first].work.region().clone());
            if let Some(to) = &to {
                shared.inner.begin_batch(to);
            }
            while let Some(&number) = numbers.front() {
                let operation = &mut self.operations[number];
                match operation.go_on(number, shared) {
                    Ok(()) => {}
                    Err(Error::NotNow) => break,
                    Err(error) => operation.fail(error),
                }
                numbers.pop_front();
                operation.waits = false;
                if operation.is_over() {
                    self.end(number);
                }
            }
            if let Some(to) = &to {
                shared.inner.end_batch(to, false);
            }
            !numbers.is_empty()
        });
        self.waiting = waiting;
        shared.waiting.store(self.waiting.len(), Ordering::Release);
    }
}

impl Shared {
    /// Posts a checked operation.
    fn post(&self, work: Work, flags: Flags, context: u64) -> Result<Outcome> {
        let mut state = driver::lock(&self.state);
        let state = &mut *state;
        let peer = work.region().parts().peer;
        let entry = state.operations.vacant_entry();
        let number = entry.key();
        let operation = entry.insert(Operation {
            work,
            flags,
            context,
            next: Some(0),
            waits: false,
            under_way: 0,
            result: Ok(()),
        });
        // Counts before the issue: the completion wakes a thread only once, and that thread polls only pending operations.
        self.pending.fetch_add(1, Ordering::AcqRel);
        let comes_later = state.waiting.contains_key(&peer);
        if comes_later || operation.work.needs_cutting(flags, &self.limits) {
            // SAFETY:
            // - the call of the operation has not returned.
            unsafe { operation.work.take(flags) };
        }
        let issued = match comes_later {
            true => Err(Error::NotNow),
            false => operation.go_on(number, self),
        };
        match issued {
            Ok(()) => {}
            Err(Error::NotNow) => {
                // SAFETY:
                // - as above.
                unsafe { operation.work.take(flags) };
                operation.waits = true;
                if state.waiting.is_empty() {
                    self.driver.more();
                }
                state.waiting.entry(peer).or_default().push_back(number);
                self.waiting.store(state.waiting.len(), Ordering::Release);
            }
            Err(error) if operation.next == Some(0) => {
                state.operations.remove(number);
                self.pending.fetch_sub(1, Ordering::AcqRel);
                return Err(error);
            }
            Err(error) => operation.fail(error),
        }
        let operation = &state.operations[number];
        if operation.is_over() && operation.result.is_ok() {
            state.operations.remove(number).end();
            self.pending.fetch_sub(1, Ordering::AcqRel);
            return Ok(Outcome::Complete);
        }
        if operation.is_over() {
            state.end(number);
        }
        Ok(Outcome::Pending)
    }

    /// Waits until the network uses no memory of operations. False: at the deadline it still uses some.
    fn settle(&self, deadline: Deadline) -> bool {
        loop {
            let mut state = driver::lock(&self.state);
            state.collect(self, Look::Poll);
            let mut operations = state.operations.iter();
            if !operations.any(|(_, operation)| operation.under_way > 0) {
                return true;
            }
            drop(state);
            if deadline.expired() {
                return false;
            }
            driver::give_way();
        }
    }

    /// Makes progress. Returns whether an operation has ended.
    fn go_on(&self, how: Look) -> bool {
        let mut state = driver::lock(&self.state);
        let waited = !state.waiting.is_empty();
        state.collect(self, how);
        if waited {
            state.push(self);
            if state.waiting.is_empty() {
                self.driver.fewer(1);
            }
        }
        !state.ended.is_empty()
    }
}

impl Driven for Shared {
    fn drive(&self) {
        // Without waiting operations the polling threads take completions. A lock here would delay them.
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.go_on(Look::Report);
        }
    }
}

impl Drop for LimitAdapter {
    /// Discards waiting operations and waits for the end of all others. Their memory then belongs to the caller again. Exception: operations that are still
    /// in progress after [`PATIENCE`].
    fn drop(&mut self) {
        let mut state = driver::lock(&self.shared.state);
        if !std::mem::take(&mut state.waiting).is_empty() {
            self.shared.driver.fewer(1);
        }
        drop(state);
        if self.shared.driver.is_here() && !self.shared.settle(Deadline::after(PATIENCE)) {
            crate::tell(
                "operations to a peer that does not answer are discarded: their memory must stay valid until it answers or ends",
            );
        }
        let mut state = driver::lock(&self.shared.state);
        for operation in state.operations.drain() {
            if operation.under_way > 0 {
                operation.work.abandon();
            }
        }
    }
}

impl LimitAdapter {
    /// A channel over `inner` with the network's `limits`. `registrations`: for networks that need registered memory. Errors: as
    /// [`Driver::of_this_process`].
    pub(crate) fn over(
        inner: Box<dyn Channel>,
        limits: Limits,
        registrations: Option<Arc<Registrations>>,
    ) -> Result<Self> {
        let driver = Driver::of_this_process()?;
        let shared = Arc::new(Shared {
            inner,
            limits,
            driver,
            state: Mutex::default(),
            pending: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        });
        let driven = Arc::downgrade(&shared) as Weak<dyn Driven>;
        shared.driver.enrol(driven, Waits::Maybe);
        Ok(LimitAdapter {
            shared,
            registrations,
        })
    }

    /// Posts an operation that the network may not take unchanged.
    fn post(&self, kept: DeferredOp, flags: Flags, context: u64) -> Result<Outcome> {
        let mut work = Work::new(kept);
        work.check()?;
        if let Some(registrations) = &self.registrations {
            // SAFETY:
            // - contract of `Channel`: the memory is valid until completion. The call of the operation has not returned.
            unsafe { work.hold(flags, &self.shared.limits, registrations) }?;
        }
        // Each piece has a completion.
        (self.shared).post(work, flags.difference(Flags::GATHERED), context)
    }

    /// Posts an unsignaled operation. The network copies its bytes in the call. `None`: [`post`](LimitAdapter::post) must take it.
    #[inline]
    fn post_plain(
        &self,
        len: usize,
        flags: Flags,
        context: u64,
        post: impl FnOnce(&dyn Channel, Flags, u64) -> Result<Outcome>,
    ) -> Option<Result<Outcome>> {
        let gathers = context == 0 || flags.contains(Flags::GATHERED);
        let plain = gathers && len <= self.shared.limits.inline && !flags.contains(Flags::LINES);
        let flags = flags | Flags::INLINE | Flags::GATHERED;
        let post = |inner: &dyn Channel, context| post(inner, flags, context);
        plain.then(|| self.post_as_it_is(context, post)).flatten()
    }

    /// Posts an operation unchanged, unless other operations wait. `None`: as [`post_plain`](LimitAdapter::post_plain).
    #[inline]
    fn post_as_it_is(
        &self,
        context: u64,
        post: impl FnOnce(&dyn Channel, u64) -> Result<Outcome>,
    ) -> Option<Result<Outcome>> {
        let shared = &*self.shared;
        if context >= PLAIN || shared.waiting.load(Ordering::Acquire) > 0 {
            return None;
        }
        shared.pending.fetch_add(1, Ordering::AcqRel);
        let posted = post(&*shared.inner, context | PLAIN);
        if posted != Ok(Outcome::Pending) {
            shared.pending.fetch_sub(1, Ordering::AcqRel);
        }
        match posted {
            Err(Error::NotNow | Error::Unsupported) => None,
            posted => Some(posted),
        }
    }

    fn look(&self, how: Look, sink: &mut dyn FnMut(Completion)) {
        let none = self.pending() == 0 && self.quick_pending() == 0;
        if none || !self.shared.go_on(how) {
            return;
        }
        loop {
            let next = driver::lock(&self.shared.state).ended.pop_front();
            let Some(completion) = next else { return };
            sink(completion);
            // Decrements after the sink: a thread that sees no pending operation has all reports.
            self.shared.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Channel for LimitAdapter {
    fn below(&self) -> Result<&dyn Channel> {
        Ok(&*self.shared.inner)
    }

    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        // SAFETY:
        // - the network's call has the contract of this call.
        let now = |inner: &dyn Channel, flags, context| unsafe { inner.put(put, flags, context) };
        self.post_plain(put.len, flags, context, now)
            .unwrap_or_else(|| self.post(DeferredOp::put(put), flags, context))
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        self.post(DeferredOp::get(get), flags, context)
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let notify = |inner: &dyn Channel, flags, context| inner.notify(notice, flags, context);
        self.post_plain(0, flags, context, notify)
            .unwrap_or_else(|| self.post(DeferredOp::notify(notice), flags, context))
    }

    unsafe fn put_unsignaled(&self, put: &UnsignaledPut<'_>) -> bool {
        let shared = &*self.shared;
        // It must not overtake waiting operations.
        let first = shared.waiting.load(Ordering::Acquire) == 0;
        // SAFETY:
        // - the network's call has the contract of this call.
        first && put.len <= shared.limits.inline && unsafe { shared.inner.put_unsignaled(put) }
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        _: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        self.post(DeferredOp::atomic(dst, request, 0), flags, context)
    }

    fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let deliver = |inner: &dyn Channel, context| inner.deliver(inbox, record, flags, context);
        self.post_as_it_is(context, deliver)
            .unwrap_or_else(|| self.post(DeferredOp::deliver(None, inbox, record), flags, context))
    }

    unsafe fn put_deliver(
        &self,
        put: &PutRequest<'_>,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let limits = &self.shared.limits;
        let long = put.len > limits.largest.min(LONGEST_MESSAGE);
        let lines = flags.contains(Flags::LINES) && !limits.lines;
        if !self.carries() || long || lines {
            return Err(Error::Unsupported);
        }
        let flags = flags.difference(Flags::INLINE);
        // SAFETY:
        // - the network's call has the contract of this call.
        let now = |inner: &dyn Channel, context| unsafe {
            inner.put_deliver(put, inbox, record, flags, context)
        };
        let kept = || DeferredOp::deliver(Some(put), inbox, record);
        self.post_as_it_is(context, now)
            .unwrap_or_else(|| self.post(kept(), flags, context))
    }

    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let enveloped;
        let message = match self.shared.limits.atomics {
            true => message,
            false => {
                enveloped = agent::programs(message);
                &enveloped
            }
        };
        self.post(DeferredOp::message(to, message, reply), flags, context)
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        self.look(Look::Poll, sink);
    }

    fn report(&self, sink: &mut dyn FnMut(Completion)) {
        self.look(Look::Report, sink);
    }

    fn pending(&self) -> usize {
        self.shared.pending.load(Ordering::Acquire)
    }
}
