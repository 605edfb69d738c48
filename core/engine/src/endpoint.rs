//! An ordered issue context that counts its operations: the base of GASPI queues and VCQs.

mod get_notify;
mod tagged;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam::queue::SegQueue;

use get_notify::GetNotice;
pub use tagged::TaggedOperation;
use tagged::{Tagged, is_tagged};

use crate::agent::ENVELOPE;
use crate::cache::OwnPair;
use crate::engine::Engine;
use crate::fast_path::{FastPath, Posting};
use crate::inbox::Record;
use crate::issue_totals::{IssueTotals, Issues, Listing};
use crate::liveness_timer::{LivenessTimer, now};
use crate::mapped::{self, MappedChannel};
use crate::op::{
    AtomicRequest, Completion, Flags, GetRequest, Inbox, Local, Notice, Outcome, PutRequest,
    Remote, ReplyBuffer, UnsignaledPut,
};
use crate::operands::Operands;
use crate::pending_fetch;
use crate::post_counter::{DRAINING, PostCounter};
use crate::region::RemoteRegion;
use crate::sync::counters;
use crate::transport::{Channel, LONGEST_MESSAGE, Transport};
use crate::{AtomicOp, Deadline, Error, Result, trace, waits};

impl Issues for Endpoint {
    fn issued(&self) -> IssueTotals {
        let (requests, bytes) = self.posted.so_far();
        IssueTotals {
            operations: requests + self.uncounted.so_far(),
            bytes,
        }
    }

    fn pending(&self) -> usize {
        self.pending()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(listing) = self.listing.get() {
            listing.ends(self.issued());
        }
    }
}

/// The depth of endpoints without a limit.
const UNBOUNDED: u64 = 1 << 60;

/// An issue context. All calls may come from any thread.
pub struct Endpoint {
    listing: OnceLock<Listing>,
    channels: Box<[Box<dyn Channel>]>,
    /// Present if there are several channels.
    operands: Option<Arc<Operands>>,
    /// Operations on a route may be pending after their calls.
    driven: bool,
    /// Without such a route: an [awaited](Flags::AWAITED) operation has been pending, so progress must poll.
    late: AtomicBool,
    depth: u64,
    /// Post count at which the next liveness check is due, or the queue is full.
    limit: AtomicU64,
    liveness: LivenessTimer,
    /// Counts operations that no queue counts.
    uncounted: LivenessTimer,
    pub(super) posted: OwnPair<PostCounter>,
    failed: SegQueue<Completion>,
    /// Owed notices: parts of [`get_notify`](Endpoint::get_notify) in flight, and tagged operations with a word to set.
    pub(super) noticed: AtomicUsize,
    tagged: Tagged,
    /// Owner of the bell at which other threads wait for effects of completions.
    rings: Option<Arc<dyn Transport>>,
}

impl Endpoint {
    pub(crate) fn new(
        channels: Box<[Box<dyn Channel>]>,
        operands: Option<Arc<Operands>>,
        driven: bool,
        depth: u32,
        rings: Option<Arc<dyn Transport>>,
    ) -> Self {
        Endpoint {
            listing: OnceLock::new(),
            channels,
            operands,
            driven,
            late: AtomicBool::new(false),
            depth: match depth {
                u32::MAX => UNBOUNDED,
                depth => depth.into(),
            },
            limit: AtomicU64::new(0),
            liveness: LivenessTimer::default(),
            uncounted: LivenessTimer::default(),
            posted: OwnPair::default(),
            failed: SegQueue::new(),
            noticed: AtomicUsize::new(0),
            tagged: Tagged::default(),
            rings,
        }
    }

    /// Lists the endpoint's operations under `name`, of at most 16 bytes, for observers outside the process.
    pub fn named(self, name: &str) -> Arc<Self> {
        let endpoint = Arc::new(self);
        // SAFETY:
        // - the endpoint stays in its Arc, and its listing ends with it.
        let listing = unsafe { Listing::new(&*endpoint, name) };
        endpoint.listing.get_or_init(|| listing);
        endpoint
    }

    /// Lists later operations under another name.
    pub fn rename(&self, name: &str) {
        if let Some(listing) = self.listing.get() {
            listing.rename(name);
        }
    }

    /// Counts an operation of this thread that no queue counts, and its bytes. Returns whether a liveness check of peers is due.
    #[inline(always)]
    pub fn count(&self, bytes: usize) -> bool {
        self.posted.moved(bytes);
        self.uncounted.is_due()
    }

    /// Takes back the last [count](Endpoint::count) of this thread: the operation has not been done.
    #[cold]
    pub fn not_done(&self, bytes: usize) {
        self.posted.moved(bytes.wrapping_neg());
        self.uncounted.take_back();
    }

    /// Counts the bytes of a request that a queue counts, if it has been posted. A [`Posting`] does this itself.
    #[inline]
    pub fn count_bytes<T>(&self, bytes: usize, posted: Result<T>) -> Result<T> {
        posted.inspect(|_| self.posted.moved(bytes))
    }

    #[inline]
    pub(crate) fn is_driven(&self) -> bool {
        self.driven
    }

    /// # Safety
    /// `put.len` bytes at `put.src` are valid.
    #[inline(never)]
    pub(super) unsafe fn put_unsignaled(&self, put: &UnsignaledPut<'_>) -> bool {
        // SAFETY:
        // - contract of this call: the bytes are valid.
        unsafe { self.channel(put.dst.region).put_unsignaled(put) }
    }

    #[inline(always)]
    pub(super) fn channel(&self, region: &RemoteRegion) -> &dyn Channel {
        &*self.channels[region.route()]
    }

    /// The operand with the descriptor of the transport that leads to `region`.
    #[inline(always)]
    fn operand(&self, local: Local, region: &RemoteRegion) -> Local {
        match &self.operands {
            Some(operands) => operands.seen_by(region.route(), local),
            None => local,
        }
    }

    /// Claims `requests` places of the queue, before posting. Errors: [`Error::QueueFull`]; [`Error::Busy`] while another thread drains (wait and try again).
    /// Call [`posted_or_not`](Endpoint::posted_or_not) after each success.
    ///
    /// If all operations are complete when they return, no queue can overflow. The places are then only compared here, and counted after the post, so that
    /// the count does not delay the data.
    #[inline(always)]
    pub fn claim(&self, requests: u32) -> Result<()> {
        if self.driven {
            self.posted.own();
            return self.posted.try_add(requests, self.depth).map_err(refusal);
        }
        let before = self.posted.look();
        if before + u64::from(requests) > self.depth {
            return Err(refusal(before));
        }
        Ok(())
    }

    /// Operations that are complete when they return, and that no queue counts.
    #[inline(always)]
    pub fn fast_path(&self) -> FastPath<'_> {
        FastPath::alone()
    }

    /// Begins to post an operation, claimed and counted as one request. It completes in its call, or before [`drain`](Endpoint::drain) ends, which gives its
    /// failure. `None`: use the ordinary calls, which give the reason.
    #[inline(always)]
    pub fn post_fast(&self) -> Option<Posting<'_>> {
        let begun = self.posted.begin(self.limit.load(Ordering::Relaxed))?;
        Some(Posting::new(self, begun))
    }

    /// Makes this thread the owner, which may [`post_fast`](Endpoint::post_fast), unless another thread is.
    #[inline]
    pub fn own(&self) {
        self.posted.own();
    }

    /// For a thread that cannot [`post_fast`](Endpoint::post_fast): whether a liveness check of peers is due, by the number of posted requests.
    pub fn is_look_due(&self) -> bool {
        let count = self.posted.counted();
        if count < self.limit.load(Ordering::Relaxed) {
            return false;
        }
        let (due, more) = self.liveness.end_count(now());
        let limit = count + u64::from(more);
        self.limit.store(limit.min(self.depth), Ordering::Relaxed);
        due
    }

    /// Ends a claim: `posted` of the `claimed` requests were posted, and take their places until the next drain.
    #[inline(always)]
    pub fn posted_or_not(&self, claimed: u32, posted: u32) {
        if !self.driven {
            self.posted.count(posted);
        } else if posted < claimed {
            self.posted.take_back(claimed - posted);
        }
    }

    /// Ends a claim with requests that were posted and have failed. The next drain gives `error`.
    #[cold]
    pub fn post_failed(&self, claimed: u32, error: Error) {
        self.failed.push(Completion {
            context: 0,
            result: Err(error),
        });
        self.posted_or_not(claimed, claimed);
    }

    /// Requests posted since the last drain.
    pub fn posted(&self) -> u32 {
        (self.posted.look() & !DRAINING) as u32
    }

    /// Waits until all posted requests are complete, then frees their places. One thread at a time; posting waits meanwhile. Errors: [`Error::Timeout`]; the
    /// failure of a request, one in each call. After a failure the state of the queue is undefined until [`purge`](Endpoint::purge) (GASPI 17.1 §8.2.3), or
    /// until a call has no failure left.
    pub fn drain(
        &self,
        engine: &Engine,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        if let Some(drained) = self.try_drain(engine) {
            return drained;
        }
        engine.wait(deadline, check, || {
            let closed = self.posted.close();
            if !closed {
                // The thread that drains may sleep. An unsignaled operation that this thread has posted meanwhile needs a poll.
                self.progress();
            }
            Ok(closed.then_some(()))
        })?;
        let covered = self.posted();
        let mut check = || {
            waits::pending(self.pending());
            check()
        };
        let result = engine.wait(deadline, &mut check, || {
            self.progress();
            Ok((self.pending() == 0).then_some(()))
        });
        let result = result.and_then(|()| self.drained(covered));
        self.open(engine);
        result
    }

    /// [`drain`](Endpoint::drain), if it needs no wait.
    #[inline]
    pub fn try_drain(&self, engine: &Engine) -> Option<Result<()>> {
        if !self.posted.close() {
            return None;
        }
        let covered = self.posted();
        self.progress();
        let drained = (self.pending() == 0).then(|| self.drained(covered));
        self.open(engine);
        drained
    }

    /// Frees the places, as nothing is pending. Errors: the failure of a request.
    #[inline]
    fn drained(&self, covered: u32) -> Result<()> {
        if let Some(failure) = self.failed.pop() {
            return Err(failure.result.err().unwrap_or(Error::PeerDead));
        }
        self.posted.end_all(covered);
        let limit = u64::from(self.liveness.given()).min(self.depth);
        self.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn open(&self, engine: &Engine) {
        self.posted.open();
        if self.driven {
            // A thread that has found it draining may sleep.
            engine.ring();
        }
    }

    /// Discards failures and reports, and frees all places. Pending operations still end by themselves.
    pub fn purge(&self) {
        while self.failed.pop().is_some() {}
        while self.take_report().is_some() {}
        let covered = self.posted();
        self.posted.end_all(covered);
    }

    /// Makes progress with pending operations. [`drain`](Endpoint::drain) gives their failures.
    #[inline]
    pub fn progress(&self) {
        if !self.driven && !self.late.load(Ordering::Relaxed) {
            return;
        }
        self.handle_ends(|sink| self.poll(sink));
    }

    /// As [`progress`](Endpoint::progress), for a caller that does not wait for operations of this endpoint ([`Channel::report`]).
    #[inline]
    pub fn report(&self) {
        if !self.driven && !self.late.load(Ordering::Relaxed) {
            return;
        }
        self.handle_ends(|sink| self.report_to(sink));
    }

    /// Handles the completions of `take`. Then rings the bell: a thread that waits for their effects may have looked too early.
    fn handle_ends(&self, take: impl FnOnce(&mut dyn FnMut(Completion))) {
        let mut any = false;
        take(&mut |completion| {
            any = true;
            self.ended(completion);
        });
        if let Some(transport) = self.rings.as_ref().filter(|_| any) {
            transport.bell().ring_if_heard();
        }
    }

    /// Whether notices of [`get_notify`](Endpoint::get_notify) or of tagged operations are owed. Progress of this endpoint sets them.
    #[inline]
    pub fn owes_notices(&self) -> bool {
        self.noticed.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn ended(&self, completion: Completion) {
        if pending_fetch::is_awaited(completion.context) {
            // SAFETY:
            // - a marked context comes from `pending_fetch`, and stands for one operation that is reported once. Other contexts of drained endpoints lack the mark.
            return unsafe { pending_fetch::ended(completion) };
        }
        if is_tagged(completion.context) {
            return self.part_ended(completion);
        }
        if completion.context != 0 {
            self.noticed.fetch_sub(1, Ordering::Relaxed);
            // SAFETY:
            // - contexts of drained endpoints come from `pending_fetch`, from `Tagged`, and from `GetNotice::share`. This one has no mark of the first two. Each is
            //   reported once.
            unsafe { GetNotice::part_done(completion.context, completion.result.is_ok()) };
        }
        if completion.result.is_err() {
            self.failed.push(completion);
        }
    }

    /// Makes progress, and gives each completion to `sink`. For interfaces that report completions one by one.
    pub fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        for channel in &self.channels {
            channel.poll(sink);
            while let Some(error) = channel.quick_failure() {
                sink(Completion {
                    context: 0,
                    result: Err(error),
                });
            }
        }
    }

    /// As [`poll`](Endpoint::poll), for a caller that waits for none of the completions ([`Channel::report`]).
    pub fn report_to(&self, sink: &mut dyn FnMut(Completion)) {
        for channel in &self.channels {
            channel.report(sink);
        }
    }

    /// Number of operations in flight.
    pub fn pending(&self) -> usize {
        let of_one = |channel: &dyn Channel| channel.pending() + channel.quick_pending();
        self.channels.iter().map(|channel| of_one(&**channel)).sum()
    }

    /// See [`Channel::put`].
    ///
    /// # Safety
    /// As [`Channel::put`].
    #[inline]
    pub unsafe fn put(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        // SAFETY:
        // - contract of `Channel::put`: `src` is valid until completion.
        unsafe {
            if dst.region.is_direct() {
                mapped::put_alone(src, dst, len, flags)
            } else {
                self.put_afar(PutRequest::new(src, dst, len), flags, context)
            }
        }
    }

    /// See [`Channel::get`].
    ///
    /// # Safety
    /// As [`Channel::get`].
    #[inline]
    pub unsafe fn get(
        &self,
        dst: Local,
        src: Remote<'_>,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        // SAFETY:
        // - contract of `Channel::get`: `dst` is valid until completion.
        unsafe {
            if src.region.is_direct() {
                MappedChannel.get(&GetRequest { dst, src, len }, flags, context)
            } else {
                let dst = self.operand(dst, src.region);
                let get = GetRequest { dst, src, len };
                let span = trace::transfer(len);
                let outcome = self.channel(src.region).get(&get, flags, context);
                span.inspect(|span| span.transferred(len));
                outcome
            }
        }
    }

    /// See [`Channel::notify`].
    #[inline]
    pub fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        if notice.slot.region.is_direct() {
            return MappedChannel.notify(notice, flags, context);
        }
        self.channel(notice.slot.region)
            .notify(notice, flags, context)
    }

    /// See [`Channel::put`], for a put with a notice. Both regions must belong to one peer.
    ///
    /// # Safety
    /// As [`Channel::put`].
    #[inline]
    pub unsafe fn put_notify(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        notice: Notice<'_>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        // SAFETY:
        // - contract of `Channel::put`: `src` is valid until completion.
        unsafe {
            if dst.region.is_direct() && notice.slot.region.is_direct() {
                mapped::put_and_notify(src, dst, len, notice)
            } else {
                let put = PutRequest::new(src, dst, len).with(notice);
                self.put_afar(put, flags, context)
            }
        }
    }

    /// # Safety
    /// As [`Channel::put`].
    unsafe fn put_afar(&self, put: PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let src = self.operand(put.src, put.dst.region);
        let span = trace::transfer(put.len);
        let channel = self.channel(put.dst.region);
        // SAFETY:
        // - contract of this call: the source is valid until completion.
        let outcome = unsafe { channel.put(&PutRequest { src, ..put }, flags, context) };
        span.inspect(|span| span.transferred(put.len));
        outcome
    }

    /// See [`Channel::atomic`]. Waits for the route to the device that carries the operation out, unless [it is known](RemoteRegion::executor).
    ///
    /// # Safety
    /// As [`Channel::atomic`].
    #[inline]
    pub unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        if dst.region.has_words_only() {
            request.check_word()?;
        }
        let dst = dst.region.executor(Deadline::Never)?.at(dst.offset);
        // SAFETY:
        // - contract of `Channel::atomic`: the pointers of the request are valid.
        let outcome = unsafe {
            self.channel(dst.region)
                .atomic(dst, request, 0, flags, context)
        };
        self.note_late(&outcome);
        outcome
    }

    #[inline(always)]
    fn note_late(&self, outcome: &Result<Outcome>) {
        if !self.driven && *outcome == Ok(Outcome::Pending) {
            self.late.store(true, Ordering::Relaxed);
        }
    }

    /// See [`Channel::deliver`].
    pub fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        self.channel(inbox.first)
            .deliver(inbox, record, flags, context)
    }

    /// Whether the route to a region keeps [`Flags::CHAINED`].
    pub fn chains(&self, to: &RemoteRegion) -> bool {
        self.channel(to).chains()
    }

    /// See [`Channel::put_deliver`]. All arguments must belong to one peer.
    ///
    /// # Safety
    /// As [`Channel::put_deliver`].
    #[allow(clippy::too_many_arguments, reason = "those of the channel's")]
    pub unsafe fn put_deliver(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let channel = self.channel(dst.region);
        // SAFETY:
        // - contract of `Channel::put_deliver`: `len` bytes at `src` are valid.
        unsafe {
            let put = PutRequest::new(src, dst, len);
            channel.put_deliver(&put, inbox, record, flags, context)
        }
    }

    /// See [`Channel::active_message`]. At most [`LONGEST_MESSAGE`] bytes, less the [envelope](ENVELOPE). A handler must not refuse with [`u32::MAX`].
    pub fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        if message.len() > LONGEST_MESSAGE - ENVELOPE {
            return Err(Error::InvalidArgument(format!(
                "an active message has at most {} bytes",
                LONGEST_MESSAGE - ENVELOPE
            )));
        }
        let channel = self.channel(to.region);
        let outcome = channel.active_message(to, message, reply, flags, context);
        self.note_late(&outcome);
        outcome
    }

    /// Reads the u64 at `src`, which other threads change by atomics, and waits for it if needed. `src` must be 8-byte aligned. A caller with a deadline uses
    /// [`change`](Endpoint::change), as for the next two.
    #[inline]
    pub fn load(&self, engine: &Engine, src: Remote<'_>) -> Result<u64> {
        if src.region.is_direct() && !src.region.excludes_processors() {
            return Ok(mapped::value(src)?.load(Ordering::Acquire));
        }
        self.fetch(engine, src, AtomicOp::Sum, 0, 0)
    }

    /// Adds `value` to the u64 at `dst`, and waits if needed. Returns the previous value. `dst` must be 8-byte aligned.
    #[inline]
    pub fn fetch_add(&self, engine: &Engine, dst: Remote<'_>, value: u64) -> Result<u64> {
        if dst.region.is_direct() && !dst.region.excludes_processors() {
            return Ok(mapped::value(dst)?.fetch_add(value, Ordering::AcqRel));
        }
        self.fetch(engine, dst, AtomicOp::Sum, value, 0)
    }

    /// Replaces the u64 at `dst` by `value` if it equals `expected`. Returns the previous value.
    #[inline]
    pub fn compare_swap(
        &self,
        engine: &Engine,
        dst: Remote<'_>,
        expected: u64,
        value: u64,
    ) -> Result<u64> {
        if dst.region.is_direct() && !dst.region.excludes_processors() {
            let at = mapped::value(dst)?;
            return Ok(
                match at.compare_exchange(expected, value, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(before) | Err(before) => before,
                },
            );
        }
        self.fetch(engine, dst, AtomicOp::Cswap, value, expected)
    }

    #[cold]
    fn fetch(
        &self,
        engine: &Engine,
        dst: Remote<'_>,
        op: AtomicOp,
        operand: u64,
        compare: u64,
    ) -> Result<u64> {
        self.change(dst, op, operand, compare)?
            .value(self, engine, Deadline::Never, &mut || Ok(()))
    }
}

/// The error of an endpoint with this count that takes no request.
#[cold]
fn refusal(before: u64) -> Error {
    counters::retried();
    if before & DRAINING != 0 {
        Error::Busy
    } else {
        Error::QueueFull
    }
}
